"""Which releases of the libraries a result was made with."""

from importlib.metadata import version

LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "SimpleITK", "pandas")


def library_versions() -> dict[str, str]:
    """Return the installed version, by name, of every library that can change a result."""
    return {name: version(name) for name in LIBRARIES}
