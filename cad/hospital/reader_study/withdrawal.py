"""Remove a patient who withdrew his consent from the files of a reader study.

These files are images, plans (the data of readers' pages), the key ``reading.json`` (which patient
each case is), exports (readers' answers) and collected readings.
"""

import json
import re
import zlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from cad.base.errors import CadError
from cad.base.files import JsonObject, write_atomic, write_json
from cad.base.reading import (
    MAX_ARRAYS,
    MAX_JSON,
    parse_json,
    read_bytes,
    read_json,
    read_text,
    reading,
)
from cad.base.transactions import commit, is_ours, owned, stage
from cad.dicom.archive.interface import SamePatient
from cad.folders.cohort.traces import Names, members, traces
from cad.hospital.reader_study.study import FORMAT, KEY, write_reader_page
from cad.run.audit.withdrawal import rows_without

_CASE = re.compile(r"(?:^|/)cases/[^/]+\.js$")
_CODE = re.compile(rb"(?<![A-Za-z0-9])case-[0-9]+")
_PLAN = re.compile(r'<script type="application/json" id="plan">(.*?)</script>', re.DOTALL)


class ReadingFolder:
    """Remove a withdrawn patient from one folder of a reader study.

    Parameters
    ----------
    folder : Path
        A reader study's folder, or another folder with exports of readers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = str(folder)

    @staticmethod
    def below(folder: Path) -> list[Path]:
        """Return the folders of reader studies: a folder itself or folders below it.

        A folder counts as one if it has ``reading.json``, cases of pages (``cases/*.js``) or
        readers' exports. Exports are found under any name and inside packed files. Exports that lie
        inside a reader study are part of that study.
        """
        studies = {path.parent for path in _files(folder, KEY)}
        studies |= {path.parents[1] for path in _files(folder, "cases/*.js")}
        folders_of_exports = set()
        for path in _files(folder, "*"):
            in_study = not studies.isdisjoint(path.parents)
            if not in_study and _exports_in_file(path):
                folders_of_exports.add(path.parent)
        return sorted(studies | folders_of_exports)

    def held(self) -> AbstractContextManager[None]:
        """Return a context manager that keeps other processes from writing to the folder."""
        return owned(self.folder)

    def sweep(self, names: Names, same: SamePatient | None) -> int:
        """Remove a patient's cases from all files of the folder; return the number of removed
        cases.

        Without the study's ``reading.json``, nothing is removed.

        Parameters
        ----------
        names : Names
            Label, PatientIDs and UIDs of the patient; the label decides which cases are removed.
        same
            Not used here; other folders need it to recognise the patient.

        Returns
        -------
        int
            Number of cases of the patient that were removed; 0 without ``reading.json``.

        Raises
        ------
        CadError
            For a key, a plan or an export that cannot be read; nothing is changed then.
        """
        if not (self.folder / KEY).is_file():
            return 0
        key = read_json(self.folder / KEY)
        codes = set()
        with reading(self.folder / KEY, "no reader study"):
            for code, case in key["cases"].items():
                if str(case["participant_id"]) == names.participant:
                    codes.add(code)
        with stage(self.folder) as scratch:
            write_json(scratch / KEY, _without_cases(key, codes))
            new_files = {KEY: scratch / KEY}

            def scratch_path(path: Path) -> Path:
                """Return where the new content of a file is built; the commit then moves it."""
                name = path.relative_to(self.folder).as_posix()
                return new_files.setdefault(name, scratch / str(len(new_files)))

            for path in sorted(self.folder.glob("*.html")):
                plan = _plan_of_page(path)
                if plan is not None:
                    write_reader_page(scratch_path(path), _without_cases(plan, codes))
            for path in _files(self.folder, "*"):
                is_export = path.suffix == ".jsonl"
                if is_export or any(entry.plain for entry in _exports_in_file(path)):
                    write_atomic(scratch_path(path), _export(path, key["study"], codes))
            for path in _files(self.folder, "*.tsv"):
                text, _ = rows_without(path, names.participant)
                write_atomic(scratch_path(path), text.encode())
            # The images of a case that could not be written are not there.
            case_files = []
            for code in sorted(codes):
                if (self.folder / f"cases/{code}.js").exists():
                    case_files.append(f"cases/{code}.js")
            commit(self.folder, new_files, case_files)
        return len(codes)

    def studies(self, names: Names, same: SamePatient | None) -> list[str]:
        """Return the paths, in the folder, of files that hold or may hold data of a patient.

        ``reading.json`` says whose the cases and exports in the folder are. If it is missing, the
        folder ``cases/`` and all files that name cases are returned, with a remark that says so. A
        file is also returned if it names a case that is not in ``reading.json`` (any more). But the
        exports of another reader study are not returned for this reason.

        Parameters
        ----------
        names : Names
            Label, PatientIDs and UIDs of the patient.
        same
            Not used here; other folders need it to recognise the patient.
        """
        doubtful_files = []
        if (self.folder / KEY).is_file():
            key = read_json(self.folder / KEY)
            # A file of unknown study, and one that is no export, may name cases of this study.
            possible_studies = ("", None, key["study"])
            codes = set(key["cases"])
            reason = f"it names cases that {KEY} has no more: delete it"
            for path in _files(self.folder, "*"):
                unknown_codes = set[str]()
                for entry in _named_cases(path):
                    if entry.study in possible_studies:
                        unknown_codes |= entry.codes - codes
                if unknown_codes:
                    doubtful_files.append(path.relative_to(self.folder).as_posix())
        else:
            reason = f"whose they are, {KEY} says, which is not here"
            if (self.folder / "cases").is_dir():
                doubtful_files.append("cases/")
            for path in _files(self.folder, "*"):
                if _exports_in_file(path):
                    doubtful_files.append(path.relative_to(self.folder).as_posix())
        return traces(self.folder, names) + [f"{name} ({reason})" for name in doubtful_files]


def _files(folder: Path, pattern: str) -> list[Path]:
    """Return the files in and below a folder, except files that a process is still writing."""
    files = []
    for path in sorted(folder.rglob(pattern)):
        in_work = any(is_ours(name) for name in path.relative_to(folder).parts)
        if path.is_file() and not in_work:
            files.append(path)
    return files


def _plan_of_page(page: Path) -> JsonObject | None:
    """Return the data of a page of a reader study; None for a page of another kind."""
    with reading(page, "no page of a reader study"):
        match = _PLAN.search(read_text(page))
        return None if match is None else dict(parse_json(match[1]))


def _without_cases(content: JsonObject, codes: set[str]) -> JsonObject:
    """Return the content of a key, a plan or an export without the cases that ``codes`` name."""

    def code_of_entry(entry: object) -> object:
        if isinstance(entry, list):
            return entry[0]  # a session lists pairs of code and condition
        if isinstance(entry, dict):
            return entry.get("code") or entry.get("case")  # of a plan, or of an export
        return entry

    reduced = dict(content)
    for name in ("cases", "readings", "outlines"):
        section = reduced.get(name)
        if isinstance(section, dict):
            reduced[name] = {key: value for key, value in section.items() if key not in codes}
        elif isinstance(section, list):
            reduced[name] = [entry for entry in section if code_of_entry(entry) not in codes]
    if "sessions" in reduced:
        reduced["sessions"] = [_without_cases(session, codes) for session in reduced["sessions"]]
    return reduced


class _CodesOfFile(NamedTuple):
    """Hold which study a file belongs to, and the codes of the cases that it names.

    The study is an empty text if it is unknown, and None if the file is no export or case.
    ``plain`` is False for a file that was packed inside another one.
    """

    study: str | None
    codes: set[str]
    plain: bool


def _exports_in_file(path: Path) -> list[_CodesOfFile]:
    """Return the codes of cases that a file of a reader study names.

    The file may hold readings that a reader exported, or be a page on which readers score cases, or
    an archive of such files. Files of no study are left out.
    """
    return [entry for entry in _named_cases(path) if entry.study is not None]


def _named_cases(path: Path) -> list[_CodesOfFile]:
    """Return the cases that a file and all files packed in it name.

    For a file that cannot be read the list is empty; :func:`cad.folders.cohort.traces.traces` names
    such files.
    """
    if path.suffix == ".npz":  # a file of arrays, which names no case
        return []
    entries = []
    try:
        with reading(path, "not readable"):
            content = read_bytes(path, MAX_ARRAYS)
            # A file that is not packed has one member: itself, with the same content.
            for name, inner in members(path.name, content):
                entries.append(
                    _CodesOfFile(
                        study=_study_of_export(name, inner),
                        codes=_codes(name, inner),
                        plain=inner is content,
                    )
                )
    except (CadError, OSError):
        return []
    return entries


def _codes(name: str, content: bytes) -> set[str]:
    """Return the codes of cases in a file's name and content."""
    text = name.encode(errors="replace") + b" " + content
    return {code.decode() for code in _CODE.findall(text)}


def _study_of_export(name: str, content: bytes) -> str | None:
    """Return the study of an export; empty for a case that a page loads, None for another file."""
    if _CASE.search(name):
        return ""
    try:
        with reading(name, "not a readable export"):
            first_line = parse_json(content[:MAX_JSON].split(b"\n", 1)[0])
    except CadError:
        return None
    if not isinstance(first_line, dict) or first_line.get("format") != FORMAT:
        return None
    return str(first_line.get("study"))


def _export(path: Path, study: str, codes: set[str]) -> bytes:
    """Return the content of an export without some cases, with a new checksum.

    An export that has none of these cases, or is of another study, is returned as it is.
    """
    content = read_bytes(path, MAX_JSON)
    with reading(path, "no whole export", hint="collect it, or move it away"):
        export_before = parse_json(content.split(b"\n")[0])
        export_after = _without_cases(export_before, codes)
        if export_after == export_before or export_before["study"] != study:
            return content
        if any(content.split(b"\n")[2:]):
            raise CadError("more than one export", hint="collect each alone, or move it away")
        # The page writes an export in this form: one line without blanks, and its checksum.
        line = json.dumps(export_after, separators=(",", ":"), ensure_ascii=False).encode()
        return line + b'\n{"crc32":"%08x"}\n' % zlib.crc32(line)
