"""Return the version of the program; every module may import this one."""

__version__ = "1.0.0"
