"""Find the pipelines, configurations, released models and sample data of the project."""

from pathlib import Path

from cad.base.errors import CadError

_PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = ("pipelines", "configs", "models", "sample_data")


def shared(*names: str) -> Path:
    """Return the path of a file or folder that is distributed with the project.

    Parameters
    ----------
    *names : str
        Parts of the path below the project, e.g. ``"pipelines", "psvm.yaml"``.

    Returns
    -------
    Path
        Path in the installed wheel (``cad/share``) or, in a checkout, beside the package.

    Raises
    ------
    CadError
        When the file or folder does not exist.
    """
    # A wheel has the files inside the package; in a checkout they lie beside it.
    installed = _PACKAGE / "share"
    folder = installed if installed.is_dir() else _PACKAGE.parent
    path = folder.joinpath(*names)
    if not path.exists():
        raise CadError("this installation of cad lacks it; reinstall the project", file=path)
    return path


def find(folder: str, name: str, suffix: str = "") -> Path:
    """Return the path of a file or folder that is given by its path, or by its name in the project.

    Parameters
    ----------
    folder : str
        Folder of the project in which names are looked up: ``models``, ``pipelines``.
    name : str
        A path, or the name of a file or folder in ``folder``. An existing path is preferred.
    suffix : str
        Ending of the file's name, such as ``.yaml``; empty for a folder.

    Raises
    ------
    CadError
        When ``name`` is neither an existing path nor a name in ``folder``. The hint lists the names
        that exist in ``folder``.
    """
    stated_path = Path(name)
    is_path = stated_path.is_file() if suffix else stated_path.is_dir()
    if is_path:
        return stated_path
    # A name is looked up with or without its ending; a path with folders is no name.
    shared_path = shared(folder) / f"{name.removesuffix(suffix)}{suffix}"
    if stated_path.name == name and shared_path.exists():
        return shared_path
    names = sorted(path.name.removesuffix(suffix) for path in shared(folder).glob(f"*{suffix}"))
    raise CadError(f"no such path or name in {folder}: {name}", hint=f"known: {', '.join(names)}")
