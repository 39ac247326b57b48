"""List the models that are released with the project, in the order in which they are tried."""

from cad.base.errors import CadError
from cad.base.reading import read_json
from cad.base.share import shared


def released_models() -> list[str]:
    """Return the names of the released models: those that need more kinds of images come first.

    A study is scored by the first model whose images the study has. So a study with a dynamic
    series is scored by the model that was trained with such series, and a study without one by a
    later model.

    Raises
    ------
    CadError
        When the installation brings no model.
    """
    images: dict[str, int] = {}
    for folder in sorted(shared("models").iterdir()):
        metadata = folder / "metadata.json"
        if metadata.is_file():
            images[folder.name] = len(read_json(metadata)["modalities"])
    if not images:
        raise CadError(
            "this installation of cad brings no model", file=shared("models"), hint="name --model"
        )
    return sorted(images, key=lambda name: (-images[name], name))
