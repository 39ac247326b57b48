"""List the installed versions of the libraries that can change a result."""

from functools import cache
from importlib.metadata import version

LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "SimpleITK", "pandas")


def library_versions() -> dict[str, str]:
    """Return the installed version, by name, of every library that can change a result."""
    return {name: _installed_version(name) for name in LIBRARIES}


@cache
def _installed_version(name: str) -> str:
    """Return the version of an installed library.

    The result is cached, because the version does not change while a process runs.
    """
    return version(name)
