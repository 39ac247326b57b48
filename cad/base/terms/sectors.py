"""Name the sectors of the prostate, and tell which sector contains a given position.

Levels and sectors are those of the PI-RADS v2.1 sector map, which has 38 sectors for the prostate.
The map is a drawing without measures. The borders between sectors were therefore set by this
project.
"""

from cad.base.terms.beside import table_beside

SIDES = ("right", "left")
_TABLES = table_beside(__file__)
SECTORS: dict[str, list[str]] = _TABLES["levels"]
"""Sectors of the prostate by level, on each side."""


def _sector_names() -> frozenset[str]:
    """Return the full names of all sectors, such as "right mid PZpl"."""
    names = set()
    for level, sectors in SECTORS.items():
        for sector in sectors:
            for side in SIDES:
                names.add(f"{side} {level} {sector}")
    return frozenset(names)


SECTOR_NAMES = _sector_names()

WORDS: dict[str, str] = _TABLES["words"]
"""Sectors and zones in the words of a report."""

# Positions in the bounding box of the gland on a slice. u runs from 0 in the middle to 1 at the
# side, v from 0 at the front to 1 at the back. The transition zone is the inner ellipse, and the
# central zone lies behind it.
_TZ_CENTRE = 0.42  # v of the centre of the ellipse, whose u is 0
_TZ_HALF = (0.66, 0.38)  # half axes of the ellipse along u and v
_AFS = (0.30, 0.20)  # largest u and largest v of the anterior stroma
_CZ = (0.42, 0.60, 0.86)  # largest u, least v and largest v of the central zone
_MIDDLE = 0.42  # value of u between the posteromedial and the posterolateral peripheral zone
_FRONT = 0.50  # value of v between the anterior and the posterior sectors


def sector_at(u: float, v: float, level: str, zone: str = "") -> str:
    """Return the PI-RADS sector of a position in the bounding box of the gland on an axial slice.

    Parameters
    ----------
    u : float
        Position from the patient's right (-1) over the middle (0) to the left (1) edge of the box.
    v : float
        Position from the front (0) to the back (1) of the box.
    level : str
        ``base``, ``mid`` or ``apex``.
    zone : str
        Peripheral, transition or central zone, or anterior fibromuscular stroma (``PZ``, ``TZ``,
        ``CZ``, ``AFS``), as a person stated it. The sector then belongs to this zone. Any other
        text, and ``CZ`` at another level than the base, is replaced by the zone at the position.

    Returns
    -------
    str
        ``PZa``, ``PZpl``, ``PZpm``, ``TZa``, ``TZp``, ``CZ`` (base only) or ``AFS``. The letters
        after a zone mean anterior (a), posterior (p), lateral (l) and medial (m).
    """
    u = abs(u)  # both sides are alike
    is_stated = zone in ("PZ", "TZ", "AFS") or (zone == "CZ" and level == "base")
    if not is_stated:
        zone = _zone_at(u, v, level)
    if zone in ("CZ", "AFS"):
        return zone
    if zone == "TZ":
        return "TZa" if v < _TZ_CENTRE else "TZp"
    if v < _FRONT:
        return "PZa"
    return "PZpm" if u < _MIDDLE else "PZpl"


def _zone_at(u: float, v: float, level: str) -> str:
    """Return the zone of a position, with u from 0 in the middle to 1 at the side."""
    if u < _AFS[0] and v < _AFS[1]:
        return "AFS"
    in_central_box = level == "base" and u < _CZ[0] and _CZ[1] < v < _CZ[2]
    in_transition_ellipse = (u / _TZ_HALF[0]) ** 2 + ((v - _TZ_CENTRE) / _TZ_HALF[1]) ** 2 < 1
    if in_transition_ellipse:
        # Where the two overlap, only the back of the ellipse belongs to the central zone.
        is_behind = v > _TZ_CENTRE + 0.5 * _TZ_HALF[1]
        return "CZ" if in_central_box and is_behind else "TZ"
    return "CZ" if in_central_box else "PZ"
