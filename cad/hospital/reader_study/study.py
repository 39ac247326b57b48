"""Write a reader study: pages on which several readers score a cohort, blinded, without a server.

Each reader gets the cases in his own random order. He learns nothing about the patient, the other
readers' scores or histology. A study may test a tool: the model whose probabilities the readers
see. There are then two sessions. In the first, a reader sees the tool's probability for a random
half of the cases, and in the second for the other half. Every reader thus reads every case with and
without the tool (:mod:`cad.learning.evaluation.readers.mrmc`).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd

from cad.base.errors import CadError
from cad.base.files import JsonObject, write_atomic, write_json
from cad.base.reading import parse_json, read_frame, read_json, reading
from cad.base.transactions import FolderKind, claimed
from cad.folders.cohort import StudyRef, read_cohort
from cad.folders.run_folder.results import read_results
from cad.mri.features.perfusion.semiquantitative import find_bolus
from cad.mri.features.snapshot import ENHANCEMENT, display_grid, snapshot
from cad.mri.features.table import StudyFeatures
from cad.mri.imaging.geometry import MIN_VOXELS, resample_mask
from cad.mri.imaging.study import Study
from cad.mri.imaging.volume import Volume
from cad.run.reports.images import StudyImages, oriented, viewers_of
from cad.run.reports.pages import asset, template
from cad.run.stages.study import read_study_of

TEMPLATES = Path(__file__).parent / "templates"


def write_case(
    path: Path,
    code: str,
    images: StudyImages,
    regions: Sequence[JsonObject],
    drawn_on: JsonObject | None = None,
) -> None:
    """Write the slices and outlines of a case as a script, which the readers' pages load.

    A page that is opened from a disk can load scripts, but no data files.

    Parameters
    ----------
    path : Path
        File to write, ``cases/<code>.js``.
    code : str
        Name of the case for readers; it tells nothing about the patient.
    images : StudyImages
        The slices and the label map.
    regions : sequence of dict
        ``id`` and ``label`` of every region, and no score or result.
    drawn_on : dict, optional
        Result of :func:`drawn_on`, which an exported outline repeats. Without it, readers cannot
        correct outlines.
    """
    data = viewers_of([images])[0] | {"regions": list(regions)}
    if drawn_on is not None:
        data["drawn_on"] = drawn_on
    write_atomic(path, f"cadCase({json.dumps(code)}, {json.dumps(data)});\n".encode())


def write_reader_page(path: Path, plan: JsonObject) -> None:
    """Write the page of one reader's session, with the viewer and the script for scoring.

    Parameters
    ----------
    path : Path
        File to write.
    plan : dict
        Reader, session, scale, and the cases in their order; where its ``outlines`` is true, the
        page also gets the script for correcting outlines.
    """
    pen = asset("outline.js", TEMPLATES) if plan.get("outlines") else ""
    page: jinja2.Template = template("reading.html.j2", TEMPLATES)
    text = page.render(
        plan=plan,
        note=NOTE,
        style=asset("report.css") + asset("reading.css", TEMPLATES),
        script=asset("viewer.js") + pen + asset("reading.js", TEMPLATES),
    )
    write_atomic(path, text.encode())


SCALES = ("likert5", "pirads")
FORMAT = "cad reading 1"
KEY = "reading.json"
READING = FolderKind("reader study", lambda folder: (folder / KEY).is_file())
"""Kind of folder that holds a reader study: it has the file ``reading.json`` (the key).

This file says which patient each case is. Readers do not need it, but collecting their answers
does.
"""
ALONE = "alone"
WITH_TOOL = "with_tool"
WASH_OUT_DAYS = 28
NOTE = 500  # largest number of characters of a reader's note on a case
_LARGEST_BYTE = 255  # a byte of a case's label map holds no larger number
_HASH_DIGITS = 16
LARGEST_LABEL = 254  # largest region number in a mask; a page could not tell larger ones apart


@dataclass(frozen=True)
class ReadingSettings:
    """Hold the settings of a reader study.

    Parameters
    ----------
    readers : tuple of str
        Ids of readers in ``readers.tsv``; empty for all of them.
    scale : str
        ``likert5`` or ``pirads``; both scales have five steps.
    seed : int
        Random seed for the order of the cases and for the half that is read with the tool.
    wash_out : int
        Days between the two sessions of a reader.
    outlines : bool
        Whether readers may correct the regions' outlines where they read without the tool.
    """

    readers: tuple[str, ...] = ()
    scale: str = "likert5"
    seed: int = 0
    wash_out: int = WASH_OUT_DAYS
    outlines: bool = False


def write_reading(
    root: Path,
    out: Path,
    settings: ReadingSettings,
    tool: Path | None = None,
    order: Path | None = None,
) -> list[str]:
    """Write the pages of a reader study.

    Parameters
    ----------
    root : Path
        Cohort folder.
    out : Path
        Folder to write: a page for each reader and session, ``cases/`` and ``reading.json``.
    settings : ReadingSettings
        Settings of the reader study.
    tool : Path, optional
        Run folder with the probabilities of the tool that the study tests. There are then two
        sessions. Each reader sees the tool's probability on one half of the cases in the first
        session, and on the other half in the second.
    order : Path, optional
        File ``suggestions.csv`` with the regions to score next. Every reader then reads only the
        cases of this file, in the file's order.

    Returns
    -------
    list of str
        Lines for the user: what was written, and which studies could not be written.

    Raises
    ------
    CadError
        For an unknown reader or scale, a folder that holds another study, no case at all, or a case
        that the tool has not scored.
    """
    cohort = read_cohort(root)
    readers = settings.readers or tuple(cohort.readers["reader_id"])
    _check_request(readers, settings, set(cohort.readers["reader_id"]))
    with_regions = [ref for ref in cohort.studies() if len(ref.rois)]
    refs = _cases_in_order(with_regions, order)
    codes = _draw_codes(refs, settings.seed)
    cases: dict[str, JsonObject] = {}
    for ref in refs:
        cases[codes[ref.study_id]] = {
            "participant_id": ref.participant_id,
            "study_id": ref.study_id,
            "rois": ref.rois["roi_id"].tolist(),
        }
    shown_probabilities = {} if tool is None else _tool_by_case(tool, cases)
    codes_in_order = [codes[ref.study_id] for ref in refs]
    sessions = _sessions(
        readers, codes_in_order, settings, bool(shown_probabilities), ordered=order is not None
    )
    key: JsonObject = {
        "format": FORMAT,
        **_asked(settings),
        "readers": list(readers),
        "cases": dict(sorted(cases.items())),
        "sessions": sessions,
    }
    # Equal settings and cases give equal studies, whose exports fit together.
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    key["study"] = digest[:_HASH_DIGITS]
    with claimed(out, READING):
        _refuse_another(out / KEY, key["study"])
        reason_by_lost_case = _write_cases(out, refs, codes, outlines=settings.outlines)
        if len(reason_by_lost_case) == len(refs):
            raise CadError(
                "no case could be written", file=root, hint="; ".join(reason_by_lost_case.values())
            )
        readable = set(cases) - set(reason_by_lost_case)
        for session in sessions:
            name = f"{session['reader']}-session-{session['session']}.html"
            write_reader_page(out / name, _plan(key, session, readable, shown_probabilities))
        write_json(out / KEY, key)
    count_line = f"{len(readable)} cases, {len(readers)} readers, {len(sessions)} pages in {out}"
    return [count_line, *(f"left out: {text}" for text in reason_by_lost_case.values())]


def _asked(settings: ReadingSettings) -> JsonObject:
    """Return the settings that ``reading.json`` gets.

    Where readers do not correct outlines, the entry ``outlines`` is left out, so that the file is
    the same as in earlier versions of the program.
    """
    entries = asdict(settings)
    if not entries["outlines"]:
        del entries["outlines"]
    return entries


def _draw_codes(refs: Sequence[StudyRef], seed: int) -> dict[str, str]:
    """Return every study's code, drawn at random to hide its place in the cohort."""
    # The second number makes these draws other than those of the readers, who count from 1.
    shuffled = np.random.default_rng([seed, 0]).permutation(len(refs))
    codes = {}
    for number, index in enumerate(shuffled, start=1):
        codes[refs[index].study_id] = f"case-{number:03d}"
    return codes


def _check_request(
    readers: Sequence[str], settings: ReadingSettings, readers_of_cohort: set[str]
) -> None:
    """Refuse an unknown scale, and readers who are unknown, named twice or cannot name a file."""
    if settings.scale not in SCALES:
        raise CadError(f"scale {settings.scale!r} is none of {' '.join(SCALES)}")
    if not readers or len(set(readers)) < len(readers):
        raise CadError(f"readers must be named once each, found {', '.join(readers) or 'none'}")
    for reader in readers:
        if reader not in readers_of_cohort:
            raise CadError(
                f"reader {reader} is not in readers.tsv", hint="add a line reader_id, expert"
            )
        if not all(character.isalnum() or character in "_-" for character in reader):
            raise CadError(f"reader id {reader!r} names a file: letters, digits, - and _ only")


def _cases_in_order(refs: list[StudyRef], order: Path | None) -> list[StudyRef]:
    """Return the cases to read, in order.

    If ``order`` is a file of suggestions, these are only the suggested cases, the most valuable
    first.
    """
    if order is None:
        chosen = refs
    else:
        with reading(order, "no table of suggestions"):
            suggestions = read_frame(order, dtype=str)[["participant_id", "roi_id"]]
        # The row of each suggested region; a region that stands twice counts by its first row.
        rank_of_region: dict[tuple[str, str], int] = {}
        for rank, (patient, roi) in enumerate(suggestions.itertuples(index=False)):
            rank_of_region.setdefault((str(patient), str(roi)), rank)
        # A case is as valuable as its most valuable region.
        best_rank: dict[str, int] = {}
        for ref in refs:
            regions = [(ref.participant_id, str(roi)) for roi in ref.rois["roi_id"]]
            ranks = [rank_of_region[region] for region in regions if region in rank_of_region]
            if ranks:
                best_rank[ref.study_id] = min(ranks)
        suggested = [ref for ref in refs if ref.study_id in best_rank]
        chosen = sorted(suggested, key=lambda ref: best_rank[ref.study_id])
    if not chosen:
        raise CadError("no study with regions to read", hint="draw regions, or see cad check")
    return chosen


def _tool_by_case(run: Path, cases: Mapping[str, JsonObject]) -> dict[str, dict[str, float]]:
    """Return the tool's probability of every region: by the code of the case, then by ROI id.

    An error is raised for a case with a region that has no probability in the run.
    """
    probability_of_region = {}
    for region in read_results(run).regions:
        if region.probability is not None:
            probability_of_region[region.study, region.roi] = region.probability
    probabilities_by_case: dict[str, dict[str, float]] = {}
    for code, case in cases.items():
        probability_by_roi = {}
        for roi in case["rois"]:
            probability = probability_of_region.get((case["study_id"], roi))
            if probability is not None:
                probability_by_roi[roi] = round(probability, 2)  # a page shows whole per cent
        # Readers with and without the tool can only be compared on cases that the tool has scored.
        if set(probability_by_roi) != set(case["rois"]):
            raise CadError(
                "the tool has no probability of every region of this study",
                file=run,
                patient=case["participant_id"],
                hint="give a run of this cohort that scored it, or leave the study out",
            )
        probabilities_by_case[code] = probability_by_roi
    return probabilities_by_case


def _sessions(
    readers: Sequence[str],
    codes: list[str],
    settings: ReadingSettings,
    with_tool: bool,
    *,
    ordered: bool,
) -> list[JsonObject]:
    """Return every reader's sessions: codes of cases in order, each with or without the tool.

    With the tool each reader has two sessions. Half of the cases, drawn for each reader, show the
    tool's probability in the first session; the other half shows it in the second.
    """
    sessions = []
    for number, reader in enumerate(readers, start=1):
        # Each reader has draws of his own, which do not depend on the number of other readers.
        random = np.random.default_rng([settings.seed, number])
        with_tool_first = set()
        if with_tool:
            with_tool_first.update(random.permutation(codes)[: len(codes) // 2].tolist())
        for session in (1, 2) if with_tool else (1,):
            # A given order is kept; otherwise every session has another random order.
            order = codes if ordered else random.permutation(codes).tolist()
            cases = []
            for code in order:
                # In session 1 the drawn half shows the tool, in session 2 the other half.
                shows_tool = with_tool and (code in with_tool_first) == (session == 1)
                cases.append([code, WITH_TOOL if shows_tool else ALONE])
            sessions.append({"reader": reader, "session": session, "cases": cases})
    return sessions


def _plan(
    key: JsonObject, session: JsonObject, readable: set[str], shown: dict[str, dict[str, float]]
) -> JsonObject:
    """Return the data of one page: cases by code, with the tool's numbers if they are shown."""
    cases = []
    for code, condition in session["cases"]:
        if code in readable:
            cases.append(
                {
                    "code": code,
                    "condition": condition,
                    "rois": key["cases"][code]["rois"],
                    "tool": shown[code] if condition == WITH_TOOL else None,
                }
            )
    return {
        "format": FORMAT,
        "study": key["study"],
        "reader": session["reader"],
        "session": session["session"],
        "scale": key["scale"],
        "wash_out": key["wash_out"],
        "outlines": bool(key.get("outlines")),
        "least_voxels": MIN_VOXELS,
        "cases": cases,
    }


def _write_cases(
    out: Path, refs: Sequence[StudyRef], codes: Mapping[str, str], *, outlines: bool
) -> dict[str, str]:
    """Write every case's images; return, by code, which cases could not be written, and why.

    With ``outlines`` readers can correct the outlines of regions.
    """
    reasons = {}
    for ref in refs:
        code = codes[ref.study_id]
        try:
            study = read_study_of(ref)
        except CadError as error:
            reasons[code] = f"{ref.study_id}: {error.problem}"
            continue
        if outlines and max(roi.label for roi in study.rois) > LARGEST_LABEL:
            reasons[code] = f"{ref.study_id}: a label above {LARGEST_LABEL} cannot be drawn"
            continue
        arrays = snapshot(study, _images_only(study))
        meta = parse_json(str(arrays.pop("meta")))
        # The label map of a case holds bytes: a larger label is stored as the largest byte.
        regions = []
        for roi in study.rois:
            regions.append({"id": roi.roi_id, "label": min(roi.label, _LARGEST_BYTE)})
        drawing_grid = drawn_on(study) if outlines else None
        write_case(
            out / "cases" / f"{code}.js", code, oriented(arrays, meta), regions, drawing_grid
        )
    return reasons


def drawn_on(study: Study) -> JsonObject:
    """Return the identity of a study's image and the part of it that a case's page shows.

    An outline that is drawn on the page refers to this image and this part.

    Parameters
    ----------
    study : Study
        The study that the case shows.

    Returns
    -------
    dict
        ``image``, a hash of the whole image's voxels and geometry; ``first`` and ``shape``, first
        voxel and size of the part, in the order z, y, x of the stored image.
    """
    image = study.anatomical
    shown_grid = display_grid(study)
    first_xyz = np.round(image.patient_to_index(np.array(shown_grid.origin))).astype(int)
    first_zyx = first_xyz[::-1]
    return {
        "image": image_hash(image),
        "first": first_zyx.tolist(),
        "shape": list(shown_grid.shape),
    }


def image_hash(image: Volume) -> str:
    """Return a hash of an image's voxels and of its geometry, rounded to a thousandth of a mm.

    Parameters
    ----------
    image : Volume
        The image as the study's file stores it.

    Returns
    -------
    str
        16 hexadecimal digits.
    """
    place = np.round(image.affine, 3) + 0.0  # adding 0 turns -0.0 into 0.0, which has other bytes
    voxels = np.ascontiguousarray(image.array)
    return hashlib.sha256(place.tobytes() + voxels.tobytes()).hexdigest()[:_HASH_DIGITS]


def _images_only(study: Study) -> StudyFeatures:
    """Return the images that a reader sees, and how strongly each voxel enhances at its peak."""
    images = StudyFeatures(pd.DataFrame({"roi_id": pd.Series(dtype=str)}))
    if study.dce is None or study.roi_map is None:
        return images
    frames = study.dce.frames
    # The bolus is looked for in all regions together.
    regions = study.roi_map.with_array(study.roi_map.array > 0)
    is_lesion = resample_mask(regions, study.dce.grid).array.astype(bool)
    if not is_lesion.any():
        return images
    try:
        bolus = find_bolus(study.dce.times, frames[:, is_lesion].mean(axis=1))
    except CadError:  # no arrival of the contrast agent is found, so that no voxel enhances
        return images
    baseline = frames[: bolus.n_baseline].mean(axis=0, dtype=np.float32)
    # Peak / baseline - 1. A voxel without signal before the bolus has no such ratio and gets 0:
    # its peak is divided by infinity, and nothing is subtracted.
    has_signal = baseline > 0
    enhancement = frames.max(axis=0) / np.where(has_signal, baseline, np.inf) - has_signal
    images.maps[ENHANCEMENT] = study.dce.grid.with_array(enhancement.astype(np.float32))
    return images


def _refuse_another(path: Path, study: str) -> None:
    """Refuse a folder that holds another reader study, or one whose key is damaged."""
    if not path.exists():
        return
    try:
        is_same = read_json(path).get("study") == study
    except CadError:
        is_same = False
    if not is_same:
        problem = "the folder holds another reader study, whose exports need its key"
        raise CadError(problem, file=path, hint="name another folder")
