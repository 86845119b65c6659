"""What makes a voice the same voice."""
