"""The conversation without I/O: no await, no clock, no network, no torch."""
