"""Name makers of scanners from a fixed list, because the text in a header may name a person."""

from cad.base.terms.beside import table_beside

SIMULATOR = "cad simulate"
"""Maker of the images that the simulator writes."""
_MAKERS: dict[str, str] = table_beside(__file__)


def maker(stated: object) -> str:
    """Return the scanner's maker whose name begins a text; the makers are those of a fixed list.

    Nothing of the text itself is returned: free text may hold a name, a place or a number.

    Parameters
    ----------
    stated : object
        Manufacturer as a header or sidecar states it; may be None.

    Returns
    -------
    str
        Empty for a maker that is not on the list.

    Examples
    --------
    >>> maker("SIEMENS Healthineers"), maker("somebody's own")
    ('Siemens', '')
    """
    text = str(stated or "").strip().casefold()
    for beginning, name in _MAKERS.items():
        if text.startswith(beginning):
            return name
    return ""
