"""The version, below everything that states it."""

__version__ = "1.0.0"
