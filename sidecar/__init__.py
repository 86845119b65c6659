"""The server: who speaks, when, to whom."""

__version__ = "0.1.0"
