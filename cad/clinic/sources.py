"""What an import finds: studies with their slices, annotation objects and own folders."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cad.clinic.zips import unpack
from cad.cohort import SIMULATOR
from cad.errors import CadError
from cad.imaging.dicom_headers import Listing, Slice, list_files


@dataclass(frozen=True)
class SourceStudy:
    """One study as found.

    Parameters
    ----------
    uid : str
        StudyInstanceUID.
    slices : list of Slice
        All image headers.
    objects : list of Path
        SEG and RTSTRUCT files.
    folders : list of Path
        Folders that hold nothing but this study, innermost first; mask and score files count
        when they lie in one of them.
    top : Path
        Folder that was searched.
    damaged : frozenset of Path
        Folders that hold a file which could not be read: a series there may be incomplete.
    """

    uid: str
    slices: list[Slice]
    objects: list[Path]
    folders: list[Path]
    top: Path
    damaged: frozenset[Path]

    @property
    def patient_id(self) -> str:
        """PatientID of the source."""
        return self.slices[0].patient_id

    @property
    def simulated(self) -> bool:
        """Whether its images say that the simulator made them."""
        return any(s.manufacturer == SIMULATOR for s in self.slices)

    def beside(self, name: str | None) -> Path | None:
        """A file of this name in one of the study's own folders."""
        if name is None:
            return None
        return next((f / name for f in self.folders if (f / name).is_file()), None)


def find_studies(source: Path, scratch: Path, failures: list[CadError]) -> list[SourceStudy]:
    """Every study under a folder or in an archive, by patient and date.

    Parameters
    ----------
    source : Path
        Folder (zip archives inside it are opened too) or zip archive.
    scratch : Path
        Where archives are unpacked.
    failures : list of CadError
        Receives what could not be opened or read.
    """
    found: list[SourceStudy] = []
    for root in _roots(source, scratch, failures):
        listing = list_files(_files(root))
        failures += listing.unreadable
        found += _studies(root, listing)
    return sorted(found, key=lambda s: (s.patient_id, s.slices[0].study_date, s.uid))


def _roots(source: Path, scratch: Path, failures: list[CadError]) -> Iterator[Path]:
    if source.is_dir():
        yield source
        archives = sorted(p for p in _files(source) if p.suffix.lower() == ".zip")
    else:
        archives = [source]
    for archive in archives:
        into = Path(tempfile.mkdtemp(dir=scratch, prefix="zip-"))
        try:
            unpack(archive, into)
            yield into
        except CadError as error:
            failures.append(error)


def _files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        yield from (Path(folder) / name for name in sorted(names))


def _studies(root: Path, listing: Listing) -> Iterator[SourceStudy]:
    damaged = frozenset(Path(error.file).parent for error in listing.unreadable)
    owners: dict[Path, set[str]] = {}
    for uid in {*listing.studies, *listing.objects}:
        paths = [s.path for s in listing.studies.get(uid, [])] + listing.objects.get(uid, [])
        for folder in {parent for path in paths for parent in path.parents}:
            owners.setdefault(folder, set()).add(uid)
    for uid, slices in listing.studies.items():
        folders = []
        folder = Path(os.path.commonpath([s.path.parent for s in slices]))
        while folder.is_relative_to(root) and owners[folder] == {uid}:
            folders.append(folder)
            folder = folder.parent
        yield SourceStudy(uid, slices, listing.objects.get(uid, []), folders, root, damaged)
