"""List the releases of the libraries that can change a result."""

from importlib.metadata import version

LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "SimpleITK", "pandas")


def library_versions() -> dict[str, str]:
    """Return the installed version, by name, of every library that can change a result."""
    return {name: version(name) for name in LIBRARIES}
