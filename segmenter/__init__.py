"""Text in, speakable segments out."""
