"""List the content of a folder: read the header of every DICOM file once, and sort it by study."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cad.base.errors import CadError, refused
from cad.base.reading import MAX_IMAGE, read_bytes, reading
from cad.mri.imaging.frame_headers import (
    TAGS,
    Twins,
    frames_of,
    persons,
    required,
    single_text,
    twin,
)
from cad.mri.imaging.frames import (
    Frame,
    NotDicom,
    dataset_of,
    read_dataset,
    read_excerpt,
    read_header,
)
from cad.mri.imaging.pixels import decoded

# The endings of other formats. Such files are often beside images, and are not opened.
_NOT_DICOM = re.compile(r"\.(nii|gz|csv|tsv|json|md|txt|ya?ml|png|jpe?g|pdf|xml|html?|zip|nrrd)$")
_NAMED_DICOM = (".dcm", ".dicom")
_DIRECTORY = "1.2.840.10008.1.3.10"  # class of a DICOMDIR, the table of contents of a disc
# Segmentations and structure sets. An object is listed if its Modality or its class is one of them.
_DRAWN = ("SEG", "RTSTRUCT")
_DRAWN_CLASSES = (
    "Segmentation Storage",
    "Label Map Segmentation Storage",
    "RT Structure Set Storage",
)


@dataclass
class Listing:
    """Hold everything that was found under a folder; only headers are read.

    Parameters
    ----------
    studies : dict of str to list of Frame
        Image planes by StudyInstanceUID.
    objects : dict of str to list of Path
        SEG and RTSTRUCT files by StudyInstanceUID.
    owners : dict of str to set of str
        Every PatientID found in a study, in its images and its objects.
    persons : dict of str to set of tuple
        By study, hashes of everything but the PatientID that its headers state of the patient
        (:func:`cad.mri.imaging.frame_headers.persons`).
    unreadable : list of CadError
        An error for each damaged DICOM file.
    unusable : dict of str to dict of str to CadError
        By study and series, an error for images that are not damaged, but of a kind that cannot be
        read with certainty.
    instances : dict of str to Path
        The file of every SOPInstanceUID.
    """

    studies: dict[str, list[Frame]] = field(default_factory=partial(defaultdict, list))
    objects: dict[str, list[Path]] = field(default_factory=partial(defaultdict, list))
    owners: dict[str, set[str]] = field(default_factory=partial(defaultdict, set))
    persons: dict[str, set[tuple[str, bytes]]] = field(default_factory=partial(defaultdict, set))
    unreadable: list[CadError] = field(default_factory=list)
    unusable: dict[str, dict[str, CadError]] = field(default_factory=partial(defaultdict, dict))
    instances: dict[str, Path] = field(default_factory=dict)

    def join(self, other: Listing, check: Callable[[Path, Path, str], None]) -> None:
        """Add the content of another listing to this one, in place.

        For a SOPInstanceUID that both hold, this listing's file is kept. Then ``check`` is called
        with the other listing's file, this listing's file, and the UID, as :func:`check_copy` takes
        them. An error that ``check`` raises is added to ``unreadable``.
        """
        second_files = set()
        for uid in self.instances.keys() & other.instances.keys():
            path = other.instances[uid]
            second_files.add(path)
            try:
                check(path, self.instances[uid], uid)
            except (CadError, OSError) as error:
                self.unreadable.append(as_problem(error).naming(file=path))
        for study, frames in other.studies.items():
            self.studies[study] += [frame for frame in frames if frame.path not in second_files]
        for study, paths in other.objects.items():
            self.objects[study] += [path for path in paths if path not in second_files]
        for study, owners in other.owners.items():
            self.owners[study] |= owners
        for study, persons_of_study in other.persons.items():
            self.persons[study] |= persons_of_study
        # Of a series or an instance that both have, this listing's entry is kept.
        for study, errors_by_series in other.unusable.items():
            self.unusable[study] = {**errors_by_series, **self.unusable[study]}
        self.unreadable += other.unreadable
        self.instances = {**other.instances, **self.instances}


def list_files(paths: Iterable[Path]) -> Listing:
    """Read every header once; files that are not DICOM are skipped, unless named ``.dcm``.

    Parameters
    ----------
    paths : iterable of Path
        Files, with or without the DICOM preamble. Files whose ending is that of another format
        are not opened.

    Returns
    -------
    Listing
        Image planes, annotation objects, and files that could not be read or used. An instance that
        occurs twice is listed once. Two different instances of one SOPInstanceUID are unreadable.
    """
    listing = Listing()
    twins = Twins()
    for path in paths:
        if _NOT_DICOM.search(path.name.lower()):
            continue
        try:
            with reading(path, "damaged DICOM header"):
                _add_file(listing, path, twins)
        except NotDicom as error:
            # Files that are not DICOM may lie beside images. But a file whose name ends in .dcm
            # must be DICOM.
            if path.suffix.lower() in _NAMED_DICOM:
                reason = "its name says DICOM, its content is none"
                hint = "export it again, or remove or rename it"
                listing.unreadable.append(CadError(reason, file=error.file or path, hint=hint))
        except (CadError, OSError) as error:
            listing.unreadable.append(as_problem(error).naming(file=path))
    return listing


def as_problem(error: CadError | OSError) -> CadError:
    """Return a CadError as it is, and an error of the operating system as a CadError.

    Parameters
    ----------
    error : CadError or OSError
        The error as it was caught.
    """
    return refused(error) if isinstance(error, OSError) else error


def _add_file(listing: Listing, path: Path, twins: Twins) -> None:
    """Add the planes of a DICOM image, or the path of a drawing, to a listing.

    Objects of other kinds, and copies of a listed file, are passed over. ``twins`` are the frames
    of earlier images, with which a header like one of theirs is read faster.
    """
    extract = read_excerpt(path, TAGS)
    frame = None if extract is None else twin(extract, path, twins)
    if frame is not None and frame.sop_uid:
        # The owner and the person are those of the earlier image, and are listed already.
        if _is_first_instance(listing, path, frame.sop_uid):
            listing.studies[frame.study_uid].append(frame)
            listing.instances[frame.sop_uid] = path
        return

    # The kind of object
    dataset = dataset_of(extract) if extract else read_header(path, TAGS)
    if dataset.file_meta.get("MediaStorageSOPClassUID") == _DIRECTORY:
        return  # it lists files and has no image
    study = str(dataset.get("StudyInstanceUID", "") or "")
    # A file that states no class is taken for an image.
    class_name = getattr(dataset.get("SOPClassUID"), "name", "Image Storage")
    is_image = "Image Storage" in class_name or "Parametric Map" in class_name
    has_drawn_kind = str(dataset.get("Modality", "")) in _DRAWN or class_name in _DRAWN_CLASSES
    is_drawing = has_drawn_kind and bool(study)
    if not is_drawing and not is_image:
        return
    if not is_drawing:
        for keyword in ("StudyInstanceUID", "Rows", "Columns"):
            required(dataset, keyword)

    uid = str(dataset.get("SOPInstanceUID", ""))
    if not _is_first_instance(listing, path, uid):
        return
    listing.persons[study] |= persons(dataset)
    if is_drawing:
        listing.owners[study].add(single_text(dataset.get("PatientID"), "PatientID"))
        listing.objects[study].append(path)
    else:
        try:
            listing.owners[study].add(single_text(dataset.get("PatientID"), "PatientID"))
            listing.studies[study] += frames_of(dataset, path, extract, twins)
        except CadError as error:
            # The series is left out, and the other series of the study can still be used.
            series_uid = str(dataset.get("SeriesInstanceUID", ""))
            listing.unusable[study][series_uid] = CadError(
                f"series {dataset.get('SeriesNumber', '')}: {error.problem}",
                hint=error.hint,
                file=path,
            )
    if uid:
        listing.instances[uid] = path


def _is_first_instance(listing: Listing, path: Path, uid: str) -> bool:
    """Tell whether a file is the first in a listing with its SOPInstanceUID, ``uid``.

    If it is not, an error is raised unless the file is a copy of the first one.
    """
    first = listing.instances.get(uid)
    if first is None:
        return True
    check_copy(path, first, uid)
    return False


def check_copy(path: Path, first: Path, uid: str) -> None:
    """Refuse a second file of one SOPInstanceUID unless it is a copy of the first.

    A copy has the same bytes or the same elements, or the same headers and pixels in another
    compression.

    Parameters
    ----------
    path, first : Path
        The second file, and the first.
    uid : str
        Their SOPInstanceUID.

    Raises
    ------
    CadError
        When the files differ, or one of them cannot be read.
    """
    dataset = read_dataset(first, force=True)
    copy = read_dataset(path, force=True)
    is_copy = read_bytes(path, MAX_IMAGE) == read_bytes(first, MAX_IMAGE) or dataset == copy
    syntax = dataset.file_meta.get("TransferSyntaxUID")
    syntax_of_copy = copy.file_meta.get("TransferSyntaxUID")
    if not is_copy and syntax != syntax_of_copy:
        # Both files may be one image with different compression. A frame names its file, so both
        # are read as if they were of one.
        frames = frames_of(dataset, path)
        frames_of_copy = frames_of(copy, path)
        if frames == frames_of_copy:
            is_copy = bool((decoded(dataset, first) == decoded(copy, path)).all())
    if not is_copy:
        raise CadError(
            f"two different files claim to be the instance {uid}: this one and {first.name}",
            hint="keep the one that the archive holds",
        )
