"""Say what may be stated of a region: the tool's decision, unless something known contradicts it.

This is the one place of the rule. The headline of a page, its index and the terminal ask here, so
that none of them states a decision beside a warning that speaks against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cad.run_folder.results import RegionResult, Results

AGREE, FAR = 0.25, 0.5
"""Distance between the tool and the readers' mean below which they agree, from which they are far
apart: one step of a five-point scale, and two."""
SUSPICIOUS = 0.75
"""A reader's score as probability, from which that reader alone speaks against ``benign``."""


@dataclass(frozen=True)
class Verdict:
    """Hold what is stated of a region, and what speaks against more.

    Parameters
    ----------
    tool : str
        The tool's own decision: ``malignant``, ``refer``, ``benign``, or empty.
    stated : str
        The same, or ``refer`` where something contradicts it.
    against : tuple of str
        What contradicts the tool's decision, each in words; empty where nothing does.
    readers : float or None
        The readers' mean as probability.
    gap : float or None
        Distance between the tool and that mean.
    suspicion : float or None
        How far anyone suspects cancer: the tool's probability or the readers' mean, whichever is
        higher; where the readers contradict the tool, what the most suspicious of them says.
    """

    tool: str
    stated: str
    against: tuple[str, ...]
    readers: float | None
    gap: float | None
    suspicion: float | None = None

    @property
    def apart(self) -> str:
        """Return ``agree``, ``apart``, ``far apart``, or empty without one of the two."""
        if self.gap is None:
            return ""
        return "agree" if self.gap < AGREE else "far apart" if self.gap >= FAR else "apart"


def verdict(region: RegionResult) -> Verdict:
    """Judge one region.

    A decision for or against cancer is not stated where the readers say the opposite or are far
    from it, where one reader is suspicious of what the tool calls benign, where the region is
    unlike the training cohort, where the conformal set leaves it no room, or where histology found
    otherwise. ``refer`` is no decision: nothing contradicts it.
    """
    values = [value for _, value in region.reader_values]
    readers = sum(values) / len(values) if values else None
    known = None if readers is None or region.probability is None else (readers, region.probability)
    gap = None if known is None else abs(known[0] - known[1])
    tool = region.decision
    disputed = _readers_against(tool, values, readers, gap)
    said = [region.probability, max(values) if disputed else readers]
    suspicion = max((value for value in said if value is not None), default=None)
    if tool not in ("malignant", "benign"):
        return Verdict(tool, tool, (), readers, gap, suspicion)
    found = [
        *disputed,
        *(["the region is unlike the training cohort"] if region.unlike else []),
        *_set_against(tool, region.plausible),
        *([f"histology found it {region.histology}"] if region.histology not in ("", tool) else []),
    ]
    return Verdict(tool, "refer" if found else tool, tuple(found), readers, gap, suspicion)


def stated_decisions(results: Results) -> dict[tuple[str, str], str]:
    """Return what is stated of every region of a run, by study and region."""
    return {(region.study, region.roi): verdict(region).stated for region in results.regions}


def _readers_against(
    tool: str, values: Sequence[float], readers: float | None, gap: float | None
) -> list[str]:
    if readers is None or tool not in ("malignant", "benign"):
        return []
    who = "the readers do" if len(values) > 1 else "the reader does"
    if tool == "malignant" and readers < 0.5:
        return [f"the tool suspects cancer, {who} not"]
    if tool == "benign" and readers > 0.5:
        return [f"the tool does not suspect cancer, {who}"]
    if tool == "benign" and max(values) >= SUSPICIOUS:
        return ["the tool does not suspect cancer, one reader does"]
    if gap is not None and gap >= FAR:
        return ["the tool and the readers are far apart"]
    return []


def _set_against(tool: str, plausible: list[str] | None) -> list[str]:
    if plausible is None or tool in plausible:
        return []
    return ["at 90 % confidence it fits " + ("the other class only" if plausible else "no class")]


@dataclass(frozen=True)
class PatientVerdict:
    """Hold what is stated of a patient.

    Parameters
    ----------
    stated : str
        ``malignant`` where that is stated of a region; ``benign`` where it is stated of every
        region and nothing failed; empty without any probability; else ``refer``.
    lead : RegionResult or None
        The region to look at first.
    regions : list of (RegionResult, Verdict)
        All regions, the first to look at first.
    """

    stated: str
    lead: RegionResult | None
    regions: list[tuple[RegionResult, Verdict]]

    @property
    def suspicion(self) -> float:
        """Return how far anyone suspects cancer of any region; patients are listed by it."""
        return max((found.suspicion or 0.0 for _, found in self.regions), default=0.0)

    @property
    def disputed(self) -> list[tuple[RegionResult, Verdict]]:
        """Return the regions whose decision something contradicts."""
        return [(region, found) for region, found in self.regions if found.against]


def patient_verdict(regions: Sequence[RegionResult], failed: bool = False) -> PatientVerdict:
    """Judge a patient by all regions.

    Parameters
    ----------
    regions : sequence of RegionResult
        The patient's.
    failed : bool
        Whether a study or a region of the patient gave no result: then benign is not stated.
    """
    judged = [(region, verdict(region)) for region in regions]
    judged.sort(key=lambda pair: _urgency(pair[1]), reverse=True)
    words = {found.stated for _, found in judged}
    if not any(region.probability is not None for region in regions):
        stated = ""
    elif "malignant" in words:
        stated = "malignant"
    elif words == {"benign"} and not failed:
        stated = "benign"
    else:
        stated = "refer"
    return PatientVerdict(stated, judged[0][0] if judged else None, judged)


def _urgency(found: Verdict) -> tuple[int, float]:
    """Put what is stated as malignant first, then what tool or readers suspect most."""
    rank = {"malignant": 3, "refer": 2, "benign": 1}.get(found.stated, 0)
    return rank, found.suspicion or 0.0
