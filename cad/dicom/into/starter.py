"""A rules file to start from: guessed from what the series of a source say of themselves."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

import yaml

from cad.dicom.into.sources import SourceStudy
from cad.errors import CadError
from cad.imaging.diffusion import HIGH_B
from cad.imaging.frames import Frame
from cad.imaging.stacks import stacks_of

_T2 = re.compile(r"t2", re.IGNORECASE)
_AXIAL = re.compile(r"tra|ax", re.IGNORECASE)
_OTHER_PLANE = re.compile(r"sag|cor|loc", re.IGNORECASE)
_ADC = re.compile(r"adc|apparent", re.IGNORECASE)
_DYNAMIC = re.compile(r"dyn|dce|twist|perf|lava|thrive|disco", re.IGNORECASE)
# Numbers in a description tell phases of one series apart, not kinds of series.
NUMBER = re.compile(r"\d+(?:\.\d+)?")
_MANY = 5
_SECONDS = re.compile(r"TT=([0-9.]+)s")


def starter_rules(studies: Iterable[SourceStudy]) -> str:
    """Return a proposal for an import rules file, guessed from the series of a source.

    Every guess is to be looked at. Descriptions that differ in numbers only are taken together.

    Parameters
    ----------
    studies : iterable of SourceStudy
        As found.

    Returns
    -------
    str
        YAML of :class:`cad.dicom.into.rules.ImportRules`.
    """
    kinds: dict[str, list[list[Frame]]] = defaultdict(list)
    for study in studies:
        series: dict[str, list[Frame]] = defaultdict(list)
        for frame in study.slices:
            series[frame.series_uid].append(frame)
        for frames in series.values():
            kinds[NUMBER.sub("#", frames[0].description)].append(frames)
    rules: dict[str, object] = {"name": "my cohort", "site": "my hospital", "labels": "pseudonym"}
    taken: set[str] = set()
    for name, test in _TESTS.items():
        found = [
            kind
            for kind, part in kinds.items()
            if kind not in taken and test(part[0][0].description, part)
        ]
        if not found:
            continue
        if name != "diffusion":  # one series may hold every b-value
            taken.update(found if name in ("vfa", "dce") else found[:1])
        matches: list[dict[str, object]] = [{"description": _pattern(kind)} for kind in found]
        if name == "hbv":
            matches = [{**matches[0], "b_value": _highest_b(kinds[found[0]])}]
        elif name == "diffusion":
            matches = [{**match, "exclude": "adc"} for match in matches]
        rules[name] = matches if name != "dce" else _dynamic(matches, kinds[found[0]])
    return yaml.safe_dump(rules, sort_keys=False, allow_unicode=True)


def _dynamic(matches: list[dict[str, object]], series: list[list[Frame]]) -> dict[str, object]:
    timed = all(_SECONDS.search(frames[0].description) for frames in series)
    return {"match": matches, "clock": "description" if timed else "auto"}


def _pattern(kind: str) -> str:
    return "^" + re.sub(r"([^\w\s#-])", r"\\\1", kind).replace("#", r"[\d.]+") + "$"


def _stacks(frames: list[Frame]) -> int:
    try:
        return len(stacks_of(frames))
    except CadError:
        return 0


def _is_t2(kind: str, series: list[list[Frame]]) -> bool:
    return (
        bool(_T2.search(kind) and _AXIAL.search(kind))
        and not _OTHER_PLANE.search(kind)
        and _stacks(series[0]) == 1
    )


def _is_adc(kind: str, series: list[list[Frame]]) -> bool:
    return "ADC" in series[0][0].image_type or bool(_ADC.search(kind))


def _b_values(series: list[list[Frame]]) -> set[float]:
    return {f.b_value for frames in series for f in frames if f.b_value is not None}


def _highest_b(series: list[list[Frame]]) -> float:
    return max(_b_values(series))


def _is_diffusion(kind: str, series: list[list[Frame]]) -> bool:
    return bool(_b_values(series) - {0.0}) and not _is_adc(kind, series)


def _is_high_b(kind: str, series: list[list[Frame]]) -> bool:
    return _is_diffusion(kind, series) and _highest_b(series) >= HIGH_B


def _is_flip_angle(kind: str, series: list[list[Frame]]) -> bool:
    angles = {frames[0].flip_angle for frames in series}
    # T1 is measured with spoiled gradient echoes, whose repetition time is far below 0.1 s; that of
    # T2 and diffusion images is seconds.
    short = all((frames[0].repetition_time or 1.0) < 0.1 for frames in series)
    return short and 1 < len(series) < _MANY * 3 and len(angles) == len(series)


def _is_dynamic(kind: str, series: list[list[Frame]]) -> bool:
    if _is_diffusion(kind, series) or _is_adc(kind, series):
        return False
    many = len(series) >= _MANY and bool(NUMBER.search(series[0][0].description))
    return many or _stacks(series[0]) >= _MANY or bool(_DYNAMIC.search(kind) and len(series) > 1)


# The first test that a series passes takes it: five flip angles would pass as the phases of a
# dynamic series.
_TESTS: dict[str, Callable[[str, list[list[Frame]]], bool]] = {
    "t2w": _is_t2,
    "adc": _is_adc,
    "vfa": _is_flip_angle,
    "dce": _is_dynamic,
    "hbv": _is_high_b,
    "diffusion": _is_diffusion,
}
