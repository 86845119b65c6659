"""Audio formats."""
