"""Between a client and a speech server: shows what they say to each other, records it, plays it to another server."""
