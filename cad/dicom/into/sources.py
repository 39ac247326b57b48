"""Find the studies of a source, with their slices, annotation objects and folders.

Zip archives are unpacked safely: no file is written outside their folder, and their size is
limited.
"""

import os
import shutil
import stat
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from cad.base.doors import door
from cad.base.errors import CadError, printable
from cad.base.reading import check_members, reading
from cad.base.regular import file_kind
from cad.dicom.own import MANUFACTURER
from cad.mri.imaging.elements import tag_name
from cad.mri.imaging.frame_headers import PERSONS
from cad.mri.imaging.frames import Frame
from cad.mri.imaging.listing import Listing, as_problem, check_copy, list_files
from cad.mri.imaging.makers import SIMULATOR, maker
from cad.mri.imaging.vendor import NO_ZERO_B

MAX_BYTES = 32 * 2**30
MAX_MEMBERS = 200_000
# Compression makes MR slices two to ten times smaller. An archive whose content is a hundred times
# larger than its packed size therefore holds something else than images.
MAX_RATIO = 100
# A small archive may unpack to this many bytes (1 MiB), whatever its packed size.
_SMALL = 2**20
_COPY_BYTES = 2**20  # a member is copied in pieces of this size, so that memory never fills
_LONGEST_NAME = 80  # characters of a member's name that a message shows
_LONGEST_PATH = 200  # the same of a path
_LONGEST_DESCRIPTION = 40  # the same of the description of a series
_LINK_OUT = "a link that leads out of the source; copy what it names into the source"


@door("in", "zip", bound="MAX_MEMBERS, MAX_RATIO; import's child", limit=MAX_BYTES)
def unpack(archive: Path, into: Path) -> None:
    """Unpack a zip archive into an empty folder.

    Parameters
    ----------
    archive : Path
        The archive.
    into : Path
        Folder to fill.

    Raises
    ------
    CadError
        When the archive is damaged or encrypted; when a member would be written outside the folder,
        is a link, or shares bytes or a place with another; or when the content is larger than 32
        GiB, more than 200,000 files or a hundred times its packed size (a zip bomb). Nothing is
        written then.
    """
    try:
        with reading(archive, "not a readable zip archive"), zipfile.ZipFile(archive) as bundle:
            members = []
            for member in bundle.infolist():
                # Folders are left out: they are made when a file needs them.
                if not member.filename.endswith(("/", "\\")):
                    members.append(member)
            _check_archive(members, archive)
            check_members(bundle)
            _check_unpacked_paths(members, archive)
            for member in members:
                target = into.joinpath(*_place_of_member(member).parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                # This is safe without a limit: reading stops at the member's declared size, and
                # _check_archive has added these sizes up.
                with bundle.open(member) as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy, _COPY_BYTES)
    except BaseException:  # also an interrupt: no half of an archive may stay
        shutil.rmtree(into, ignore_errors=True)
        raise


def _check_archive(members: list[zipfile.ZipInfo], archive: Path) -> None:
    """Refuse an archive that is too large or encrypted, or whose members are not to be trusted."""
    if len(members) > MAX_MEMBERS:
        raise CadError(f"{len(members)} files, more than {MAX_MEMBERS}", file=archive)
    size = sum(member.file_size for member in members)
    packed = sum(member.compress_size for member in members)
    if size > MAX_BYTES or size > max(MAX_RATIO * packed, _SMALL):
        raise CadError(
            f"a zip bomb? {packed} bytes would become {size} "
            f"(allowed: {MAX_RATIO} times as many, at most {MAX_BYTES})",
            file=archive,
            hint="unpack it yourself if you trust it, and import the folder",
        )
    for member in members:
        path = _place_of_member(member)
        shown_name = repr(member.filename[:_LONGEST_NAME])
        # A colon may follow the letter of a Windows drive, as in C:\file.
        if path.is_absolute() or ".." in path.parts or ":" in member.filename:
            problem = f"member {shown_name} would be written outside its folder"
            raise CadError(problem, file=archive, hint="the archive is not to be trusted")
        # The upper 16 bits are the mode of a Unix file.
        if stat.S_ISLNK(member.external_attr >> 16):
            raise CadError(f"member {shown_name} is a link", file=archive)
        if member.flag_bits & 1:  # bit 0 says that the member is encrypted
            raise CadError("the archive is encrypted", file=archive, hint="decrypt it first")


def _check_unpacked_paths(members: list[zipfile.ZipInfo], archive: Path) -> None:
    """Raise an error if two members would be unpacked as one file, such as ``a/b`` and ``a//b``."""
    places: set[PurePosixPath] = set()
    for member in members:
        path = _place_of_member(member)
        if path in places:
            raise CadError(
                f"two members would be unpacked as {str(path)[:_LONGEST_NAME]!r}: one would "
                "replace the other",
                file=archive,
                hint="pack the files again, each under a name of its own",
            )
        places.add(path)


def _place_of_member(member: zipfile.ZipInfo) -> PurePosixPath:
    """Return where a member of an archive is unpacked, relative to the folder that is filled.

    Archives from Windows may have backslashes between folders.
    """
    return PurePosixPath(member.filename.replace("\\", "/"))


Call = Callable[..., Any]
"""Function that calls another function with arguments, in this process or in a separate one."""
_FILES_A_CALL = 500
_LISTED = 12  # most series that a message lists


def in_this_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with some arguments in this process, and return the function's result.

    ``in_this_process`` is the default of the argument ``call`` of an import. Instead, a caller may
    give a function that does the same in a separate process with limits of time and memory.
    """
    return function(*arguments)


@dataclass(frozen=True)
class SourceStudy:
    """Hold one study of the source: headers of its images, annotation objects and folders.

    Parameters
    ----------
    uid : str
        StudyInstanceUID.
    slices : list of Frame
        Headers of all images.
    objects : list of Path
        SEG and RTSTRUCT files.
    folders : list of Path
        Folders that hold nothing but this study, innermost first. Mask and score files belong to
        the study when they lie in one of these folders.
    top : Path
        Folder that was searched; for a zip archive the folder into which it was unpacked.
    damaged : frozenset of Path
        Folders that hold a file which could not be read: a series there may be incomplete.
    patients : frozenset of str
        Every PatientID that its images and objects carry; a sound study has one.
    persons : frozenset of tuple
        What its headers state of the patient beside the PatientID, as digests
        (:func:`cad.mri.imaging.frame_headers.persons`).
    unusable : tuple of CadError
        An error for each series that cannot be read with certainty, with the reason.
    given : Path or None
        The folder that the user named, or the folder of the zip archive that the user named; a
        table may lie there, beside the archive.
    archive : Path or None
        The zip archive that holds the study; messages name it in place of ``top``.
    """

    uid: str
    slices: list[Frame]
    objects: list[Path]
    folders: list[Path]
    top: Path
    damaged: frozenset[Path]
    patients: frozenset[str] = frozenset()
    unusable: tuple[CadError, ...] = ()
    persons: frozenset[tuple[str, bytes]] = frozenset()
    given: Path | None = None
    archive: Path | None = None

    def naming_source(self, error: CadError) -> CadError:
        """Return an error that names the study's archive, not the folder of its unpacked files."""
        return error if self.archive is None else error.with_path(self.top, self.archive)

    @property
    def tables(self) -> tuple[Path, ...]:
        """Return the folders at whose top a table of all patients may lie, nearest first."""
        if self.given is None or self.given == self.top:
            return (self.top,)
        return (self.top, self.given)

    @property
    def patient_id(self) -> str:
        """Return the PatientID of the source."""
        return self.slices[0].patient_id

    @property
    def person_notes(self) -> list[str]:
        """Return a note for each element that says in two ways who the patient is.

        The notes do not show the values.
        """
        counts = Counter(keyword for keyword, _ in self.persons)
        notes = []
        for keyword, count in sorted(counts.items()):
            if count > 1:
                tag = tag_name(PERSONS[keyword])
                notes.append(
                    f"files of the study state {count} values of {tag} under one PatientID; check "
                    "that all are of one patient"
                )
        return notes

    def check_patient(self) -> None:
        """Refuse a study in which an image or an object is another patient's.

        Raises
        ------
        CadError
            The message names a file, and how many images each PatientID has.
        """
        if len(self.patients) <= 1:
            return
        counts = Counter(frame.patient_id for frame in self.slices)
        listed = []
        for name in sorted(self.patients):
            listed.append(f"{printable(name) or 'no PatientID'} ({counts[name]} images)")
        # The message names one file that is probably wrong: an image of another PatientID than most
        # images have. If all images agree, the other PatientID is an object's.
        usual, _ = counts.most_common(1)[0]
        paths_of_others = [frame.path for frame in self.slices if frame.patient_id != usual]
        file = [*paths_of_others, *self.objects, self.top][0]
        raise CadError(
            f"images or objects of {len(self.patients)} patients in one study: {', '.join(listed)}",
            file=file,
            hint="remove the other patient's files, or correct the source; nothing was imported",
        )

    def listed(self) -> str:
        """Return the series of the study for a message: numbers and descriptions."""
        series = {}
        for frame in self.slices:
            series[frame.series_number] = printable(frame.description, _LONGEST_DESCRIPTION)
        entries = [f"{number} {text!r}" for number, text in sorted(series.items())[:_LISTED]]
        if len(series) > _LISTED:
            entries.append(f"and {len(series) - _LISTED} more")
        entries += [f"not usable: {error.problem}" for error in self.unusable]
        return f"the study has {len(series)} series: {'; '.join(entries)}"

    @property
    def simulated(self) -> bool:
        """Tell whether the study's images are marked as made by the simulator."""
        return any(frame.manufacturer == SIMULATOR for frame in self.slices)

    def beside(self, name: str | None) -> Path | None:
        """Return the path of the file with this name in one of the study's own folders, or None."""
        if name is None:
            return None
        for folder in self.folders:
            path = folder / name
            # A link could show a file of somebody else, outside of the source.
            if path.is_file() and not leads_out(path, self.top):
                return path
        return None


def by_series(frames: Iterable[Frame]) -> list[list[Frame]]:
    """Group frames by series, in the order in which the series first appear.

    Parameters
    ----------
    frames : iterable of Frame
        Headers of images.

    Returns
    -------
    list of list of Frame
        One list of frames for each series, in the order in which the series first appear. The
        frames of a series keep their order.
    """
    series: dict[str, list[Frame]] = defaultdict(list)
    for frame in frames:
        series[frame.series_uid].append(frame)
    return list(series.values())


def find_studies(
    source: Path,
    scratch: Path,
    failures: list[CadError],
    notes: list[str],
    call: Call = in_this_process,
) -> list[SourceStudy]:
    """Find every study under a folder or in a zip archive.

    Parameters
    ----------
    source : Path
        Folder (zip archives inside it are opened too) or zip archive.
    scratch : Path
        Empty folder in which zip archives are unpacked.
    failures : list of CadError
        An error is appended for each file that could not be opened or read.
    notes : list of str
        A message is appended for each entry that is no file (pipes, sockets, devices), and for each
        SEG or RTSTRUCT of a study without images.
    call : callable
        Calls the functions that open files: ``call(function, *arguments)`` returns the result of
        ``function(*arguments)``. By default they run in this process.

    Returns
    -------
    list of SourceStudy
        Sorted by PatientID, then study date.
    """
    studies: list[SourceStudy] = []
    for root, paths, archive in _roots(source, scratch, failures, notes, call):
        listing = _read_headers(paths, call)
        errors = _once_a_folder(listing.unreadable)
        # If other series of a study can be read, the study itself reports its unusable series.
        for uid, series in listing.unusable.items():
            if not listing.studies.get(uid):
                errors += series.values()
        # The folder of unpacked files means nothing to the user, and is removed later.
        if archive is not None:
            errors = [error.with_path(root, archive) for error in errors]
        failures += errors
        notes += _notes_without_images(listing)
        source_folder = source if source.is_dir() else source.parent
        for study in _studies(root, listing):
            studies.append(replace(study, given=source_folder, archive=archive))
    # Sessions are numbered in the sorted order, so that a man's earlier study gets the smaller
    # number.
    return sorted(
        studies,
        key=lambda study: (study.patient_id, study.slices[0].study_date, study.uid),
    )


def _once_a_folder(errors: Iterable[CadError]) -> list[CadError]:
    """Return one error for all files of a folder that have the same problem.

    It names the first file and their number. A series usually lies in one folder, and the headers
    of its files are damaged in the same way.
    """
    errors_of_problem: dict[tuple[Path, str, str], list[CadError]] = defaultdict(list)
    for error in errors:
        errors_of_problem[Path(error.file).parent, error.problem, error.hint].append(error)
    gathered = []
    for (folder, problem, _), group in errors_of_problem.items():
        error = group[0].naming()
        if len(group) > 1:
            error.problem = f"{problem}; so are {len(group)} files of the folder {folder}"
        gathered.append(error)
    return gathered


def _notes_without_images(listing: Listing) -> list[str]:
    """Return a note for each SEG or RTSTRUCT of whose study no image can be read."""
    notes = []
    for uid, paths in listing.objects.items():
        if listing.studies.get(uid):  # it has images
            continue
        for path in paths:
            notes.append(
                f"{path.name} is left out: the source has no image of the study that its "
                "StudyInstanceUID (0020,000D) names"
            )
    return notes


def _roots(
    source: Path, scratch: Path, failures: list[CadError], notes: list[str], call: Call
) -> Iterator[tuple[Path, list[Path], Path | None]]:
    """Yield the folder of the source and of each unpacked archive, its files, and the archive."""
    archives = [source]  # unless the source is a folder, which may hold archives
    if source.is_dir():
        paths = plain_files(source, notes)
        yield source, paths, None
        archives = sorted(path for path in paths if path.suffix.lower() == ".zip")
    for archive in archives:
        folder = Path(tempfile.mkdtemp(dir=scratch, prefix="zip-"))
        try:
            call(unpack, archive, folder)
        except (CadError, OSError) as error:
            failures.append(as_problem(error).naming(file=archive))
            continue
        yield folder, plain_files(folder, notes), archive


def plain_files(root: Path, notes: list[str]) -> list[Path]:
    """Return all files under a folder.

    Parameters
    ----------
    root : Path
        Folder to search, with all folders below it.
    notes : list of str
        A message is appended for each entry that is left out: a pipe, a socket, a device, and a
        link to a file or folder outside of ``root``.
    """
    paths = []

    def leave_out(path: Path, kind: str) -> None:
        shown_path = printable(str(path.relative_to(root)), _LONGEST_PATH)
        notes.append(f"left out: {shown_path} is {kind}")

    for folder, folder_names, names in os.walk(root):
        for name in sorted(folder_names):
            # Links to folders are not followed. The target of a link inside the source is found
            # anyway.
            path = Path(folder) / name
            if path.is_symlink() and leads_out(path, root):
                leave_out(path, _LINK_OUT)
        for name in sorted(names):
            path = Path(folder) / name
            kind = file_kind(path)
            if kind:
                leave_out(path, kind)
            elif path.is_symlink() and leads_out(path, root):
                leave_out(path, _LINK_OUT)
            else:
                paths.append(path)
    return paths


def leads_out(path: Path, folder: Path) -> bool:
    """Tell whether a path below a folder leads out of the folder, by a link anywhere in the path.

    Parameters
    ----------
    path, folder : Path
        The path, and the folder below which it stands. It does no harm if the folder itself is a
        link, or lies below one.

    Returns
    -------
    bool
        True if the path, with all its links followed, does not lie in the folder.
    """
    return not path.resolve().is_relative_to(folder.resolve())


def _read_headers(paths: list[Path], call: Call) -> Listing:
    """Read every header; a file that crashes the process which opens it counts as unreadable."""
    listing = Listing()
    check = partial(call, check_copy)
    # Each call gets some hundred files: after a crash only these few must be tried one by one.
    for start in range(0, len(paths), _FILES_A_CALL):
        chunk = paths[start : start + _FILES_A_CALL]
        try:
            listing.join(call(list_files, chunk), check)
        except CadError:
            # One of the files crashed the call: alone, each of the others can still be read.
            for path in chunk:
                try:
                    listing.join(call(list_files, [path]), check)
                except CadError as error:
                    listing.unreadable.append(error.naming(file=path))
    _drop_unusable(listing)
    return listing


def _drop_unusable(listing: Listing) -> None:
    """Remove every series with an image that cannot be used.

    The other images of such a series could be mistaken for the whole of it. The series is removed
    from every study, because the StudyInstanceUID of the unusable image may be wrong.
    """
    unusable_series: set[str] = set()
    for errors_by_series in listing.unusable.values():
        unusable_series.update(errors_by_series)
    unusable_series.discard("")  # an unknown series: it must not remove all series without a UID
    for study_uid, frames in listing.studies.items():
        dropped = unusable_series | listing.unusable.get(study_uid, {}).keys()
        listing.studies[study_uid] = [frame for frame in frames if frame.series_uid not in dropped]


def _studies(root: Path, listing: Listing) -> Iterator[SourceStudy]:
    """Yield the studies of a listing that have images to measure; ``root`` is the listed folder."""
    damaged_folders = frozenset(Path(error.file).parent for error in listing.unreadable)
    studies_below: dict[Path, set[str]] = {}  # by folder, UIDs of the studies with files below it
    for uid in {*listing.studies, *listing.objects}:
        paths = [frame.path for frame in listing.studies.get(uid, [])]
        paths += listing.objects.get(uid, [])
        folders_above: set[Path] = set()
        for path in paths:
            folders_above.update(path.parents)
        for folder in folders_above:
            studies_below.setdefault(folder, set()).add(uid)
    for uid, frames in listing.studies.items():
        # A map that this program sent to the archive earlier is a result, and no image to measure.
        slices = _with_zero_b([frame for frame in frames if frame.manufacturer != MANUFACTURER])
        if not slices:  # no usable image, or only results of this program
            continue
        folders = []
        folder = Path(os.path.commonpath([frame.path.parent for frame in slices]))
        # A folder that also holds other studies is left out, because its masks and tables may
        # belong to another study.
        while folder.is_relative_to(root) and studies_below[folder] == {uid}:
            folders.append(folder)
            folder = folder.parent
        yield SourceStudy(
            uid,
            slices=slices,
            objects=listing.objects.get(uid, []),
            folders=folders,
            top=root,
            damaged=damaged_folders,
            patients=frozenset(listing.owners[uid]),
            unusable=tuple(listing.unusable.get(uid, {}).values()),
            persons=frozenset(listing.persons[uid]),
        )


def _with_zero_b(frames: list[Frame]) -> list[Frame]:
    """Return frames with b = 0 filled in, for scanners that state every b-value but 0."""
    # A series with another b-value is diffusion-weighted; its images without b-value have b = 0.
    weighted_series = {frame.series_uid for frame in frames if frame.b_value}
    completed = []
    for frame in frames:
        lacks_b = frame.b_value is None and frame.series_uid in weighted_series
        if lacks_b and maker(frame.manufacturer) in NO_ZERO_B:
            completed.append(replace(frame, b_value=0.0))
        else:
            completed.append(frame)
    return completed
