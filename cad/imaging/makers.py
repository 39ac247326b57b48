"""Makers of scanners by our own words: what a header says in its own may name somebody."""

# What a maker's entry begins with, in small letters, and what is said of it.
_MAKERS = {
    "siemens": "Siemens",
    "philips": "Philips",
    "ge medical": "GE",
    "ge healthcare": "GE",
    "canon": "Canon",
    "toshiba": "Toshiba",
    "uih": "United Imaging",
    "united imaging": "United Imaging",
    "hitachi": "Hitachi",
    "fujifilm": "Fujifilm",
}


def maker(stated: object) -> str:
    """Return the scanner's maker that a text begins with, out of a fixed list.

    Nothing of the text itself is returned: free text may hold a name, a place or a number.

    Parameters
    ----------
    stated : object
        Of a header or sidecar; may be missing.

    Returns
    -------
    str
        Empty for a maker that is not on the list.
    """
    text = str(stated or "").strip().casefold()
    return next((word for start, word in _MAKERS.items() if text.startswith(start)), "")
