"""Makers of scanners by our own words: what a header says in its own may name somebody."""

from __future__ import annotations

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
    """Return the known maker that a header's or sidecar's text begins with; else nothing.

    Nothing of the text itself is returned: free text may hold a name, a place or a number.
    """
    text = str(stated or "").strip().casefold()
    return next((word for start, word in _MAKERS.items() if text.startswith(start)), "")
