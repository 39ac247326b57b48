"""Read and write a study's folder: NIfTI files with BIDS names.

A study is read as a whole, or refused with a reason. Its folder may hold these files:

======================================  ==============================================
``anat/<study>_T2w.nii.gz``             T2-weighted image
``dwi/<study>_ADC.nii.gz``              ADC map, 1e-6 mm2/s
``dwi/<study>_acq-b<b>_dwi.nii.gz``     diffusion-weighted images, b in s/mm2
``dwi/<study>_acq-highb_dwi.nii.gz``    the high-b image, b of 1400 s/mm2 or more
``perf/<study>_dce.nii.gz``             dynamic series, times in the sidecar
``perf/<study>_flip-<i>_VFA.nii.gz``    variable flip angles, FlipAngle in the sidecar
``fmap/<study>_TB1map.nii.gz``          transmit field, fraction or percent
``masks/<study>_rois.nii.gz``           label map; ``_gland`` and ``_vessel`` are masks
======================================  ==============================================

``<study>`` is ``sub-XXX`` or ``sub-XXX_ses-YY``.

The transmit field (B1+) is the share of the stated flip angle that the tissue gets. A map of it is
a fraction or in percent; the values and the unit in the sidecar must not contradict each other. A
map for which this is not clear is refused, because with a wrong factor every T1 would be wrong by
the square of the factor.
"""

import difflib
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from cad.base.errors import CadError, MachineError, located
from cad.base.files import JsonObject
from cad.base.reading import read_json, reading
from cad.base.regular import file_kind
from cad.base.terms.modality import MODALITIES, Modality
from cad.mri.imaging import nifti
from cad.mri.imaging.belonging import measurable
from cad.mri.imaging.drawn import why_unmeasured, without_void
from cad.mri.imaging.geometry import overlaps, point
from cad.mri.imaging.makers import maker
from cad.mri.imaging.nifti import read_sidecar, read_volume, sidecar_path
from cad.mri.imaging.study import Protocol, Roi, Study
from cad.mri.imaging.units import in_unit
from cad.mri.imaging.volume import Dynamic, Volume, triple

# Least and largest value of a map of the transmit field: the actual over the stated flip angle. No
# body coil at 1.5 or 3 T has a field outside of these limits. A voxel with a value outside was
# therefore not measured.
LEAST = 0.3
MOST = 2.0
_OF_PERCENT = 0.01
# The factor that turns values of a stated unit into a fraction.
_FACTORS = {"percent": _OF_PERCENT, "%": _OF_PERCENT, "1": 1.0, "ratio": 1.0, "fraction": 1.0}
# Texts in a sidecar that do not say whether a transmit field is a fraction or in percent. BIDS
# calls the unit "arbitrary" in both cases.
_UNSTATED = ("", "arbitrary", "a.u.", "au")


def b1_path(folder: Path, study_id: str) -> Path:
    """Return the path of a study's map of the transmit field; the file may be absent."""
    return folder / "fmap" / f"{study_id}_TB1map.nii.gz"


def read_b1(path: Path) -> Volume | None:
    """Read a map of the transmit field (B1+); None where there is no file.

    Values are the actual over the stated flip angle: 1 where the angle is as stated. Voxels whose
    value is impossible are NaN.

    Raises
    ------
    CadError
        Naming the file: for a unit that is no ratio, values that fit neither a fraction nor a
        percentage, or values that contradict the stated unit.
    """
    if not path.is_file():
        return None
    volume = read_volume(path)
    values = volume.array.astype(np.float32)
    measured = values[np.isfinite(values) & (values > 0)]
    # A map without a measured voxel has the level 0, and is refused below.
    level = float(np.median(measured)) if measured.size else 0.0
    # Scanners write the transmit field as a fraction or in percent, often without stating which.
    # The median shows which it is, because no field is a hundredth or a hundred times the nominal
    # field.
    if LEAST <= level <= MOST:
        factor = 1.0
        unit = "fraction"
    elif LEAST <= level * _OF_PERCENT <= MOST:
        factor = _OF_PERCENT
        unit = "percent"
    else:
        raise CadError(
            f"a map of the transmit field with a median of {level:.3g}: neither a fraction of the "
            f"stated flip angle ({LEAST:g} to {MOST:g}) nor percent of it "
            f"({100 * LEAST:g} to {100 * MOST:g})",
            file=path,
            hint="divide actual by stated flip angles, or remove the file",
        )
    stated = str(read_sidecar(path).get("Units", "") or "").strip().lower()
    if stated not in _UNSTATED and _FACTORS.get(stated) != factor:
        raise CadError(
            f"Units {stated!r} of a transmit-field map with a median of {level:.3g}; expected "
            f"{unit}",
            file=sidecar_path(path),
            hint="correct Units (fraction or percent) or the map",
        )
    ratio = values * np.float32(factor)
    possible = (ratio >= LEAST) & (ratio <= MOST)
    array = np.where(possible, ratio, np.nan).astype(np.float32)
    return replace(volume, array=array, unit="")


# The b-value in the name of a file, with p for the decimal point.
_DIFFUSION = re.compile(r"_acq-b(\d+(?:p\d+)?)_dwi\.nii\.gz$")
# Folder and last part of the file's name, for each image and mask.
_PLACES = {
    **{m.name: (m.folder, m.suffix) for m in MODALITIES},
    "rois": ("masks", "rois"),
    "gland": ("masks", "gland"),
    "vessel": ("masks", "vessel"),
}
# Two unit vectors lie along one axis if their product is larger than this, or less than minus this.
_SAME_AXIS = 0.99
_AXES = {"i": 0, "j": 1, "k": 2}  # BIDS' names of the axes of a file's array
_FOLDERS = {folder for folder, _ in _PLACES.values()}


def image_path(folder: Path, study_id: str, kind: str) -> Path:
    """Return the path of a study's image or mask; the file may be absent.

    ``kind`` is a modality's name (``t2w``, ``adc``, ``dce``, ``hbv``, ``ktrans``) or a mask:
    ``rois``, ``gland`` or ``vessel``.
    """
    kind_folder, suffix = _PLACES[kind]
    return folder / kind_folder / f"{study_id}_{suffix}.nii.gz"


def reader_outline_path(folder: Path, study_id: str, reader: str) -> Path:
    """Return the path of the label map with the outlines of one reader; the file may be absent.

    ``reader`` is the reader's id. Labels in the map are those of ``rois.tsv``.
    """
    return folder / "masks" / f"{study_id}_desc-{reader}_rois.nii.gz"


def read_reader_outlines(folder: Path, study_id: str) -> dict[str, Volume]:
    """Read the regions as each reader outlined them: one label map per reader who has a file.

    Parameters
    ----------
    folder : Path
        Folder of the study, which holds ``masks``.
    study_id : str
        ``sub-XXX[_ses-YY]``.

    Returns
    -------
    dict of str to Volume
        Label maps by reader id, sorted; a voxel holds the label of its region, else 0.

    Raises
    ------
    CadError
        For a damaged file, or one that holds fractions or negative numbers.
    """
    before_reader = f"{study_id}_desc-"
    after_reader = "_rois.nii.gz"
    outlines = {}
    for path in sorted((folder / "masks").glob(f"{before_reader}*{after_reader}")):
        reader = path.name.removeprefix(before_reader).removesuffix(after_reader)
        outlines[reader] = nifti.read_label_map(path)
    return outlines


def vfa_path(folder: Path, study_id: str, index: int) -> Path:
    """Return the path of a study's variable-flip-angle image number ``index`` (from 1).

    The file may be absent.
    """
    return folder / "perf" / f"{study_id}_flip-{index}_VFA.nii.gz"


def diffusion_path(folder: Path, study_id: str, b_value: float) -> Path:
    """Return the path of a study's diffusion-weighted image of one b-value (s/mm2).

    In the file's name ``p`` stands for the decimal point. The file may be absent.
    """
    b_in_name = f"{b_value:g}".replace(".", "p")
    return folder / "dwi" / f"{study_id}_acq-b{b_in_name}_dwi.nii.gz"


def read_study(folder: Path, study_id: str, participant_id: str, rois: list[Roi]) -> Study:
    """Read the images and masks of a study into memory, and refuse a study that is damaged.

    A study is not refused because of a faulty region. :func:`check_study` lists regions that are
    empty, too small or outside of the images.

    Parameters
    ----------
    folder : Path
        Folder of the study, which holds ``anat``, ``dwi``, ``perf``, ``fmap`` and ``masks``.
    study_id, participant_id : str
        ``sub-XXX[_ses-YY]`` and ``sub-XXX``.
    rois : list of Roi
        The study's regions, from ``rois.tsv``.

    Returns
    -------
    Study
        A modality without a file is None; ``Study.missing`` names it.

    Raises
    ------
    CadError
        Naming file and patient: no image at all, a damaged file, NaN or constant images,
        impossible geometry, different frames of reference, dynamic frames without valid times, an
        incomplete set of flip angles, or regions without a label map.
    """
    with located(patient=participant_id), reading(folder, "not a study that can be read"):
        return _read_study(folder, study_id, participant_id, rois)


def read_drawings(folder: Path, study_id: str, participant_id: str, rois: list[Roi]) -> Study:
    """Read only the T2 image of a study, and the drawings on it: label map and gland mask.

    Parameters
    ----------
    folder : Path
        Folder of the study.
    study_id, participant_id : str
        ``sub-XXX[_ses-YY]`` and ``sub-XXX``.
    rois : list of Roi
        The study's regions, from ``rois.tsv``.

    Returns
    -------
    Study
        Study whose images and masks without a file are None.

    Raises
    ------
    CadError
        Naming file and patient: a damaged file, a constant image, or an empty mask.
    """
    with located(patient=participant_id), reading(folder, "not a study that can be read"):
        study = Study(study_id, participant_id, rois=list(rois))
        t2w_path = image_path(folder, study_id, "t2w")
        rois_path = image_path(folder, study_id, "rois")
        study.t2w = _required_image(t2w_path) if t2w_path.is_file() else None
        study.roi_map = nifti.read_label_map(rois_path) if rois_path.is_file() else None
        study.gland = _read_mask(image_path(folder, study_id, "gland"))
        return study


def check_study(study: Study) -> list[CadError]:
    """Return an error, with the reason, for each region of a study that cannot be measured.

    There are two reasons. The region can be measured in none of the study's images. Or it cannot be
    a lesion: too much of it lies outside the gland or the body, or it is as large as the gland.
    No error is raised.
    """
    _, problems = measurable(study, _measured_grids(study))
    return problems


def unreached_regions(study: Study) -> list[str]:
    """Return a note for each region and image that cannot measure it, while another image can.

    Parameters
    ----------
    study : Study
        The study, after displaced images were moved back to where T2 shows their content.
    """
    names = {modality.short: modality.name for modality in MODALITIES}
    # A region that no image can measure is not among these; check_study() reports it.
    regions, _ = measurable(study, _measured_grids(study))
    notes = []
    for roi_id, drawn_on in regions.items():
        for image_title, drawn in drawn_on.items():
            if drawn.too_little:
                reason = why_unmeasured(study, names[image_title], drawn)
                notes.append(
                    f"region {roi_id} cannot be measured in {image_title}: {reason}; a model that "
                    f"needs {image_title} leaves it out"
                )
    return notes


def _measured_grids(study: Study) -> dict[str, Volume]:
    """Return the images of a study that can be measured, by the name that messages use."""
    grids = {}
    for modality in MODALITIES:
        grid = study.grid(modality.name)
        if grid is None:
            continue
        if modality.least is not None:
            grid = without_void(grid, modality.least)
        grids[modality.short] = grid
    return grids


def lost_sidecars(folder: Path) -> list[CadError]:
    """Return an error for every image of an imported study whose sidecar is gone.

    An import writes a sidecar (a JSON file) with the study's UID beside every image of a scanner. A
    cohort that was not imported may lack sidecars, which is no error.

    Parameters
    ----------
    folder : Path
        Folder of the study.
    """
    images: list[Path] = []
    for kind_folder in sorted(_FOLDERS - {"masks"}):  # a mask comes from no scanner
        paths = sorted((folder / kind_folder).glob("*.nii.gz"))
        images += [path for path in paths if path.is_file()]

    # The study was imported if a sidecar that is left names the study's UID.
    is_imported = False
    problems = []
    for image in images:
        sidecar = sidecar_path(image)
        if not sidecar.exists():
            problem = CadError(
                f"an image without its sidecar {sidecar.name}",
                file=image,
                hint="bring the sidecar back, or remove the patient and import again",
            )
            problems.append(problem)
        elif not is_imported:
            # A damaged sidecar raises no error here, because it is reported when its image is read.
            with suppress(CadError, OSError):
                is_imported = "StudyInstanceUID" in read_json(sidecar)
    return problems if is_imported else []


def lost_images(folder: Path) -> list[CadError]:
    """Return an error for every sidecar without its image; :func:`read_study` ignores such a file.

    Parameters
    ----------
    folder : Path
        Folder of the study.
    """
    problems = []
    for sidecar in sorted(folder.glob("*/*.json")):
        image = sidecar.with_name(sidecar.stem + ".nii.gz")
        if sidecar.parent.name in _FOLDERS and not image.is_file():
            problem = CadError(
                f"a sidecar without its image {image.name}",
                file=sidecar,
                hint="bring the image back, or delete the sidecar",
            )
            problems.append(problem)
    return problems


def misnamed_images(folder: Path, study_id: str) -> list[CadError]:
    """Return an error for every image of a study that no step reads, because of its name.

    The error's hint is the name that was probably meant.

    Parameters
    ----------
    folder : Path
        Folder of the study.
    study_id : str
        ``sub-XXX[_ses-YY]``.
    """
    expected_paths = [image_path(folder, study_id, kind) for kind in _PLACES]
    paths_that_are_read = {
        *expected_paths,
        *(folder / "perf").glob(f"{study_id}_flip-*_VFA.nii.gz"),
        *(folder / "dwi").glob(f"{study_id}_acq-b*_dwi.nii.gz"),
    }
    problems = []
    for path in _files_in(folder, _FOLDERS, "*"):
        irregular_kind = file_kind(path)  # such as a named pipe; empty for a regular file
        if irregular_kind and not path.is_dir():
            problem = f"{irregular_kind} where files are expected: nothing reads it"
            problems.append(CadError(problem, file=path))

    expected_by_name = {path.name: path for path in expected_paths}
    # Only folders of images are searched, because the folder of masks may hold any other drawings.
    for path in _files_in(folder, {modality.folder for modality in MODALITIES}, "*.nii*"):
        if path in paths_that_are_read or file_kind(path):
            continue
        probable_place = f"anat/{study_id}_T2w.nii.gz"  # if no expected name is like this one
        closest = difflib.get_close_matches(path.name, expected_by_name, n=1, cutoff=0.5)
        if closest:
            probable_place = str(expected_by_name[closest[0]].relative_to(folder))
        problem = "an image that nothing reads"
        problems.append(CadError(problem, file=path, hint=f"is it {probable_place}?"))
    return problems


def _files_in(folder: Path, kind_folders: set[str], pattern: str) -> list[Path]:
    """Return the paths that match a pattern in some folders of a study, sorted."""
    paths: list[Path] = []
    for kind_folder in kind_folders:
        paths += (folder / kind_folder).glob(pattern)
    return sorted(paths)


def write_study(folder: Path, study: Study) -> None:
    """Write the images, masks and sidecars of a study as NIfTI and JSON files.

    A file of the same name is replaced. Only image files are written; the cohort's tables
    (``rois.tsv``, ...) are written by :func:`cad.folders.cohort.write_tables`.

    Parameters
    ----------
    folder : Path
        Folder of the study; ``anat``, ``dwi``, ``perf``, ``fmap`` and ``masks`` come below it.
    study : Study
        The study; a modality or mask that is None gets no file.
    """
    name = study.study_id
    for modality in MODALITIES:
        path = image_path(folder, name, modality.name)
        image = study.image(modality.name)
        if isinstance(image, Dynamic):
            nifti.write_dynamic(path, image)
        elif image is not None:
            nifti.write_volume(path, image)
            if modality.unit:
                nifti.write_sidecar(path, {"Units": modality.unit})
    for kind, mask in (("rois", study.roi_map), ("gland", study.gland), ("vessel", study.vessel)):
        if mask is not None:
            nifti.write_volume(image_path(folder, name, kind), mask)
    for index, (flip_angle, volume) in enumerate(study.vfa, start=1):
        path = vfa_path(folder, name, index)
        nifti.write_volume(path, volume)
        entries: JsonObject = {"FlipAngle": float(flip_angle)}
        if study.vfa_repetition_time is not None:
            entries["RepetitionTime"] = float(study.vfa_repetition_time)
        nifti.write_sidecar(path, entries)
    if study.b1 is not None:
        # A voxel without a value is stored as 0, which is read as NaN again. No actual flip angle
        # is 0.
        path = b1_path(folder, name)
        nifti.write_volume(path, study.b1.with_array(np.nan_to_num(study.b1.array)))
        nifti.write_sidecar(path, {"Units": "fraction"})
    for b_value, volume in study.diffusion:
        path = diffusion_path(folder, name, b_value)
        nifti.write_volume(path, volume)
        nifti.write_sidecar(path, {"BValue": float(b_value)})
        nifti.write_gradients(path, b_value)


def _read_study(folder: Path, study_id: str, participant_id: str, rois: list[Roi]) -> Study:
    """Return the study in a folder; raise one error with all that is wrong with its files.

    What files say together is only checked once each of them could be read.
    """
    if not folder.is_dir():
        raise CadError("the study has no image folder", file=folder)
    study = Study(study_id, participant_id, rois=list(rois))
    problems: list[CadError] = []

    # The images
    for modality in MODALITIES:
        path = image_path(folder, study_id, modality.name)
        if path.is_file():
            with _errors_collected(problems):
                image: Volume | Dynamic
                if modality.dynamic:
                    image = _read_finite_dynamic(path)
                else:
                    image = _read_modality(path, modality)
                setattr(study, modality.name, image)
                grid = image.grid if isinstance(image, Dynamic) else image
                study.protocols[modality.name] = _read_protocol(path, grid)
    with _errors_collected(problems):
        _read_vfa(study, folder)
    with _errors_collected(problems):
        study.b1 = read_b1(b1_path(folder, study_id))
    for path in sorted((folder / "dwi").glob(f"{study_id}_acq-b*_dwi.nii.gz")):
        match = _DIFFUSION.search(path.name)
        if match:
            b_value = float(match.group(1).replace("p", "."))
            with _errors_collected(problems):
                study.diffusion.append((b_value, _required_image(path)))
    study.diffusion.sort(key=lambda b_value_and_image: b_value_and_image[0])

    # The drawings
    rois_path = image_path(folder, study_id, "rois")
    with _errors_collected(problems):
        study.roi_map = nifti.read_label_map(rois_path) if rois_path.is_file() else None
    with _errors_collected(problems):
        study.gland = _read_mask(image_path(folder, study_id, "gland"))
    with _errors_collected(problems):
        study.vessel = _read_mask(image_path(folder, study_id, "vessel"))

    if problems:
        raise _joined_error(problems)
    _check_complete(study, folder)
    _check_one_examination(study, folder)
    _check_frames(study, folder)
    return study


@contextmanager
def _errors_collected(problems: list[CadError]) -> Iterator[None]:
    """Add an error of one file to ``problems``, so that the other files of the study are read, too.

    An error of the machine, such as a lack of memory, is raised at once, because it is no problem
    of the study.
    """
    try:
        yield
    except MachineError:
        raise
    except CadError as error:
        problems.append(error)


def _joined_error(problems: list[CadError]) -> CadError:
    """Return one error with the reasons of all problems of a study.

    If a further file of the study is damaged later, the text of the error changes. A failure that
    somebody has acknowledged is recognised by its text, and does not hide the later one.
    """
    first, *others = problems
    if not others:
        return first
    reasons = [first.problem]
    for problem in others:
        reasons.append(f"{Path(problem.file).name}: {problem.problem}")
    return CadError("; ".join(reasons), hint=first.hint, file=first.file)


def _read_modality(path: Path, modality: Modality) -> Volume:
    """Return a modality's image in its unit, by the unit that the sidecar states."""
    volume = _required_image(path)
    unit = str(nifti.read_sidecar(path).get("Units", "") or "")
    with located(file=sidecar_path(path)):
        image, _ = in_unit(replace(volume, unit=unit), modality)
        return image


def _read_protocol(path: Path, grid: Volume) -> Protocol:
    """Return how an image was acquired, as far as its sidecar says; ``grid`` is the image's."""
    entries = nifti.read_sidecar(path)
    series = entries.get("SeriesNumber")
    return Protocol(
        repetition_time=nifti.stated_number(entries, "RepetitionTime", path),
        echo_time=nifti.stated_number(entries, "EchoTime", path),
        flip_angle=nifti.stated_number(entries, "FlipAngle", path),
        field_strength=nifti.stated_number(entries, "MagneticFieldStrength", path),
        study_uid=str(entries.get("StudyInstanceUID") or "") or None,
        series_number=series if isinstance(series, int) else None,
        instance_numbers=_instance_numbers(entries, path, grid),
        scanner=maker(entries.get("Manufacturer")),
        date=str(entries.get("StudyDate") or ""),
        phase_encoding=_phase_encoding_direction(entries, path),
        b_value=_b_value_of_sidecar(entries),
    )


def _b_value_of_sidecar(entries: JsonObject) -> float | None:
    """Return the b-value of a sidecar; None where it states none, or several as for an ADC map.

    The b-value stands only in a title on the patient's page, and no measurement uses it. A study is
    therefore not refused because of a faulty b-value.
    """
    stated = entries.get("BValue")
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return None
    # A number that no scanner reaches could be anything, such as a date of birth.
    return float(stated) if 0 <= stated < 1e5 else None


def _instance_numbers(entries: JsonObject, path: Path, grid: Volume) -> tuple[int, ...]:
    """Return the instance numbers of the slices, in the order in which the slices are read.

    A sidecar has these numbers in the order in which the file stores the slices. The slices may be
    read in the reverse order. If they are read along another axis than that along which the file
    stores them, the result is empty.
    """
    stated = entries.get("InstanceNumbers")
    if not isinstance(stated, list) or not stated:
        return ()
    stored_slice_axis = nifti.stored_axes(path)[:, 2]
    slice_axis = np.asarray(grid.direction)[:, 2]
    # 1 if both unit vectors point the same way, -1 if they are opposite.
    cosine = float(stored_slice_axis @ slice_axis)
    if abs(cosine) <= _SAME_AXIS:
        return ()
    numbers = [number for number in stated if isinstance(number, int)]
    if cosine < 0:
        numbers.reverse()
    return tuple(numbers)


def _phase_encoding_direction(entries: JsonObject, path: Path) -> tuple[float, float, float] | None:
    """Return the phase-encoding direction in LPS; a sidecar states it as an axis of its image."""
    # The second entry is in sidecars of dcm2niix that knew no sign.
    stated = entries.get("PhaseEncodingDirection") or entries.get("PhaseEncodingAxis")
    if stated is None:
        return None
    axis = _AXES.get(str(stated).rstrip("-"))
    if axis is None:
        raise CadError(
            f"PhaseEncodingDirection {stated!r}; expected i, j or k, or with a minus sign i-, j-, "
            "k-",
            file=sidecar_path(path),
            hint="correct the sidecar, or remove the entry",
        )
    sign = -1.0 if str(stated).endswith("-") else 1.0
    return triple(sign * nifti.stored_axes(path)[:, axis])


def _required_image(path: Path) -> Volume:
    volume = nifti.read_volume(path)
    _check_finite(volume.array, path)
    return volume


def _check_finite(array: np.ndarray, path: Path, where: str = "the image") -> None:
    """Refuse values that are NaN or infinite, or all the same; ``where`` is for the message."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        count = int(np.size(array) - np.isfinite(array).sum())
        raise CadError(
            f"{where} has {count} voxels that are NaN or infinite",
            file=path,
            hint="export it again; a map's invalid voxels should be 0",
        )
    if array.min() == array.max():
        problem = f"{where} is constant: every voxel is {array.flat[0]:g}"
        raise CadError(problem, file=path, hint="the export is probably damaged")


def _read_finite_dynamic(path: Path) -> Dynamic:
    dynamic = nifti.read_dynamic(path)
    for number, frame in enumerate(dynamic.frames, start=1):
        _check_finite(frame, path, f"frame {number}")
    return dynamic


def _read_vfa(study: Study, folder: Path) -> None:
    """Read a study's variable-flip-angle images into it, sorted by angle.

    T1 is fitted voxel by voxel and with one repetition time, so the images must share both.
    """
    repetition_times = set()
    for path in sorted((folder / "perf").glob(f"{study.study_id}_flip-*_VFA.nii.gz")):
        sidecar = nifti.read_sidecar(path)
        angle = nifti.positive(sidecar, "FlipAngle", path)
        if angle is None:
            raise CadError(
                "a variable-flip-angle image without FlipAngle (degrees) in its sidecar", file=path
            )
        volume = _required_image(path)
        if study.vfa and not volume.same_grid(study.vfa[0][1]):
            raise CadError(
                f"the flip-angle images lie on different grids: {volume.shape} and "
                f"{study.vfa[0][1].shape}",
                file=path,
            )
        study.vfa.append((angle, volume))
        repetition_times.add(nifti.positive(sidecar, "RepetitionTime", path))
    study.vfa.sort(key=lambda angle_and_image: angle_and_image[0])
    if len(repetition_times) > 1:
        stated = sorted(map(str, repetition_times))  # as text, because one of them may be None
        raise CadError(
            f"flip-angle images differ in RepetitionTime: {stated} s", file=folder / "perf"
        )
    study.vfa_repetition_time = repetition_times.pop() if repetition_times else None


def _read_mask(path: Path) -> Volume | None:
    """Return the mask in a file, boolean; None where there is no file."""
    if not path.is_file():
        return None
    volume = nifti.read_label_map(path)
    if not volume.array.any():
        raise CadError("the mask is empty", file=path, hint="delete the file or draw the mask")
    return volume.with_array(volume.array != 0)


def _check_complete(study: Study, folder: Path) -> None:
    """Refuse a study without an image, or with regions but no label map.

    A label without a region is no error: the study gets a note.
    """
    if not study.present and not study.diffusion:
        raise CadError(
            f"the study has no image: none of {', '.join(m.short for m in MODALITIES)}",
            file=folder,
            hint=f"expected {folder.name}/anat/{study.study_id}_T2w.nii.gz and so on",
        )
    if study.rois and study.roi_map is None:
        raise CadError(
            f"rois.tsv names {len(study.rois)} ROIs but the study has no label map",
            file=image_path(folder, study.study_id, "rois"),
        )
    if study.roi_map is not None:
        labels = {int(label) for label in np.unique(study.roi_map.array)} - {0}
        unlisted = sorted(labels - {roi.label for roi in study.rois})
        if unlisted:
            listing = ", ".join(map(str, unlisted))
            study.notes.append(f"labels without a row in rois.tsv: {listing}")


def _check_one_examination(study: Study, folder: Path) -> None:
    """Raise an error if images come from different DICOM studies, or their origin is unclear."""
    uids = {name: protocol.study_uid for name, protocol in study.protocols.items()}
    sources = {uid for uid in uids.values() if uid}
    if len(sources) > 1:
        stated = ", ".join(f"{name} of {uid}" for name, uid in uids.items() if uid)
        problem = f"images of different examinations in one study: {stated}"
        raise CadError(problem, file=folder, hint="import the study again from its DICOM source")
    # A cohort that was not imported has no UIDs at all, which is no error.
    without_uid = [name for name, uid in uids.items() if not uid]
    if sources and without_uid:
        raise CadError(
            f"{', '.join(without_uid)}: the sidecar names no StudyInstanceUID, the other images' "
            "do; it may be another patient's",
            file=image_path(folder, study.study_id, without_uid[0]),
            hint="import the study again from its DICOM source",
        )


def _check_frames(study: Study, folder: Path) -> None:
    """Raise an error if images and masks have different frames of reference or do not overlap."""
    images = {modality.name: study.grid(modality.name) for modality in MODALITIES}
    masks = {"rois": study.roi_map, "gland": study.gland, "vessel": study.vessel}
    paths = {}
    uids = {}
    for kind in (*images, *masks):
        paths[kind] = image_path(folder, study.study_id, kind)
        uids[kind] = nifti.read_sidecar(paths[kind]).get("FrameOfReferenceUID")
    image_uids = {}
    for kind, image in images.items():
        if image and uids[kind]:
            image_uids[kind] = uids[kind]
    if len(set(image_uids.values())) > 1:
        listed = ", ".join(f"{kind} in {uid}" for kind, uid in image_uids.items())
        raise CadError(
            f"images in different frames of reference: {listed}",
            file=folder,
            hint="their places cannot be compared: register them, or leave one out",
        )
    for mask_kind, mask in masks.items():
        for image_kind, image in images.items():
            if mask is None or image is None:
                continue
            mask_uid = uids[mask_kind]
            image_uid = uids[image_kind]
            if mask_uid and image_uid and mask_uid != image_uid:
                raise CadError(
                    f"mask and {image_kind} are in different frames of reference: {mask_uid} and "
                    f"{image_uid}",
                    file=paths[mask_kind],
                    hint="register the image to the mask's frame, or leave it out",
                )
            # Sidecars need not name the frame. A mask beside the image shows that it is another.
            if not overlaps(mask, image):
                raise CadError(
                    f"mask and {image_kind} do not overlap anywhere: they are in different frames "
                    f"of reference (origins {point(mask.origin)} and "
                    f"{point(image.origin)} mm, LPS)",
                    file=paths[mask_kind],
                    hint="draw the mask on this study's images",
                )
