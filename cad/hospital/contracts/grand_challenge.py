"""Follow the Grand Challenge contract: a study in ``/input``, a likelihood and map in ``/output``.

Grand Challenge is a platform that runs models in containers. The input has
``images/transverse-t2-prostate-mri/*.mha`` and ``images/transverse-adc-prostate-mri/*.mha``. It may
have ``images/transverse-hbv-prostate-mri/*.mha``. The regions are a reader's label map in
``images/prostate-lesion-segmentation/*.mha``, or the map of a detector (a program that finds
lesions) in ``images/cspca-detection-map/*.mha``.

The output has ``cspca-case-level-likelihood.json``, which is one number, and
``images/cspca-detection-map/<name of the T2>.mha`` on the grid of the T2. The map has in every
region the region's probability.
"""

from __future__ import annotations

import shutil
import tempfile
from copy import copy
from pathlib import Path

import numpy as np
from scipy import ndimage

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.files import make_folder, write_json
from cad.base.share import find
from cad.hospital.contracts.scored import Scored, require_empty, score, write_map
from cad.mri.imaging.nifti import read_image
from cad.run.execution.options import HERE
from cad.run.workflows.imports import import_cohort

IMAGES = {
    "t2w": "transverse-t2-prostate-mri",
    "adc": "transverse-adc-prostate-mri",
    "hbv": "transverse-hbv-prostate-mri",
}
"""Folder of each image in a job's input; ``hbv``, the image of high b-value, may be missing."""
READERS_MASK = "prostate-lesion-segmentation"
DETECTION_MAP = "cspca-detection-map"
LIKELIHOOD = "cspca-case-level-likelihood.json"
_STEM = "case_1"
_CORNERS = np.ones((3, 3, 3), bool)


@door("own", "links in a temporary folder")
def run_grand_challenge(
    source: Path,
    out: Path,
    models: list[str],
    without_regions: float | None = None,
    highest: bool = False,
) -> Scored | None:
    """Score the one study of a Grand Challenge job, and write its two results.

    Parameters
    ----------
    source : Path
        Folder of the input, ``/input`` on the platform.
    out : Path
        Folder of the output, ``/output`` on the platform.
    models : list of str
        Models in order of preference. The study is scored by the first model whose images it has.
    without_regions : float, optional
        Likelihood to return for a study in which the detector or reader marked nothing. By default
        such a study is refused, because no model here gives a study without regions a probability.
    highest : bool
        Whether a man to whom the model gives no probability gets the highest probability of his
        regions.

    Returns
    -------
    Scored or None
        The scored study; None for a study without regions.

    Raises
    ------
    CadError
        For an image that is missing or not the only one in its folder, and for a study that gets no
        probability. Also for regions that are missing, given twice or touch each other.
    """
    require_empty(out)
    images = {}
    for kind, folder in IMAGES.items():
        image_file = _only(source / "images" / folder, needed=kind != "hbv")
        if image_file is not None:
            images[kind] = image_file
    images["regions"] = _regions_file(source)
    target = out / "images" / DETECTION_MAP / images["t2w"].name
    if not np.any(read_image(images["regions"]).array):
        if without_regions is None:
            raise CadError(
                "the study has no region: nothing is marked",
                file=images["regions"],
                hint="--without-regions P states the likelihood of such studies",
            )
        if not 0 <= without_regions <= 1:
            raise CadError(f"--without-regions {without_regions}, must lie between 0 and 1")
        write_map(target, read_image(images["regions"]), images["t2w"])
        write_json(out / LIKELIHOOD, float(without_regions))
        return None
    # The import takes the images from one folder, by names that its rules know.
    with tempfile.TemporaryDirectory(prefix="cad-contract-") as scratch:
        staged = Path(scratch) / "source"
        make_folder(staged)
        for kind, path in images.items():
            # The image is copied and not linked, because the import follows no link that leads out
            # of the folder that it reads.
            shutil.copyfile(path, staged / f"{_STEM}_{kind}.mha")
        try:
            scored = _score_staged(staged, Path(scratch), models, highest)
        except CadError as error:
            raise _with_file_of_job(error, Path(scratch), source, images) from error.__cause__
        write_map(target, scored.map, images["t2w"])
    write_json(out / LIKELIHOOD, scored.likelihood)
    return scored


def _score_staged(staged: Path, scratch: Path, models: list[str], highest: bool) -> Scored:
    """Import the study whose images are in the folder ``staged``, score it, and return the result.

    Cohort and run are written to the temporary folder ``scratch``.
    """
    cohort = scratch / "cohort"
    rules = find("configs/import", "grand-challenge", ".yaml")
    imported = import_cohort(str(staged), cohort, rules, HERE)
    if imported.failures:
        raise imported.failures[0]
    scored, problems = score(cohort, scratch / "run", models, highest)
    if not scored:
        raise _first_problem(problems)
    return scored[0]


def _with_file_of_job(
    error: CadError, scratch: Path, source: Path, images: dict[str, Path]
) -> CadError:
    """Return an error that names the platform's file instead of its copy in the scratch folder.

    The scratch folder is deleted, so that the user could not find the copy.
    """
    changed = copy(error)
    if error.file and Path(error.file).is_relative_to(scratch):
        changed.file = str(source / "images")
        for kind, path in images.items():
            if Path(error.file).name == f"{_STEM}_{kind}.mha":
                changed.file = str(path)
    return changed


def _first_problem(problems: list[CadError]) -> CadError:
    if problems:
        return problems[0]
    return CadError("no region of the study has a probability")


def _only(folder: Path, needed: bool) -> Path | None:
    """Return the single image of a folder; None if the folder has none and none is needed."""
    images = sorted(folder.glob("*.mha"))
    if len(images) > 1:
        raise CadError(f"{len(images)} images, one is expected", file=folder)
    if images:
        return images[0]
    if needed:
        raise CadError("no .mha image here", file=folder)
    return None


def _regions_file(source: Path) -> Path:
    """Return the file with the regions.

    An error is raised if two regions of a reader's label map touch: in the map of the output they
    would become one.
    """
    drawn = _only(source / "images" / READERS_MASK, needed=False)
    detected = _only(source / "images" / DETECTION_MAP, needed=False)
    if drawn is not None and detected is not None:
        raise CadError(
            f"regions are given twice: {READERS_MASK} and {DETECTION_MAP}",
            file=source / "images",
            hint="leave one of them out",
        )
    if detected is not None:
        return detected
    if drawn is None:
        raise CadError(
            "no regions: a reader's or a detector's are needed, this program finds none",
            file=source / "images",
            hint=f"put a label map into {READERS_MASK}, or a detector's map into {DETECTION_MAP}",
        )
    label_map = read_image(drawn).array
    component_map, count = ndimage.label(label_map > 0, structure=_CORNERS)
    for component in range(1, count + 1):
        # Voxels that touch are one component. Two labels in it are two regions that touch.
        labels = np.unique(label_map[component_map == component])
        if len(labels) > 1:
            raise CadError(
                f"the regions {labels[0]:g} and {labels[1]:g} touch: they would become one",
                file=drawn,
                hint="leave a voxel between them",
            )
    return drawn
