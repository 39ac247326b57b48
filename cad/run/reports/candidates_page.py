"""Make the page on which a person chooses between series before an import.

The page is needed where several series of a study could be the image that a rule asks for.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from cad.run.reports.images import data_url
from cad.run.reports.pages import template

# Largest number of candidate series that the page shows for one role, such as T2. With the series
# of all men the page would be too long.
MOST = 24
_IMAGES = {
    "t2w": "T2",
    "adc": "ADC",
    "ktrans": "Ktrans map",
    "vfa": "flip-angle image",
    "dce": "dynamic series",
    "hbv": "high-b image",
    "diffusion": "diffusion image",
}


def candidates_page(
    undecided: Mapping[str, Sequence[tuple[str, Sequence[np.ndarray]]]],
) -> str:
    """Return the page for choosing between series as HTML: one file that loads no other file.

    Parameters
    ----------
    undecided : mapping of str to sequence of (str, sequence of ndarray of uint8)
        The candidate series by role (such as ``adc``). Each has a line of text
        and the grey levels of its slices, of shape (rows, columns). The first :data:`MOST` series
        of a role are shown.

    Examples
    --------
    >>> import numpy as np
    >>> page = candidates_page({"adc": [("series 2", [np.zeros((4, 4), np.uint8)])]})
    >>> page.count("data:image/webp"), "series 2" in page
    (1, True)
    """
    roles = []
    for role, series in undecided.items():
        shown = []
        for line, slices in series[:MOST]:
            shown.append({"line": line, "pictures": [data_url(grey) for grey in slices]})
        roles.append(
            {
                "name": role,
                "title": _IMAGES[role],
                "series": shown,
                "more": len(series) - len(shown),
            }
        )
    return str(template("candidates.html.j2").render(roles=roles))
