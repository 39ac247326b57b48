"""Write text from outside into Markdown so that it is shown as it is and never becomes markup."""

import re
from typing import Any

from cad.base.errors import printable


def in_markdown(text: Any) -> str:
    """Return Markdown that shows text from a user or a file, without any effect as markup.

    Parameters
    ----------
    text : object
        A name or a note; its text is used.

    Examples
    --------
    >>> in_markdown("<script>|a\\n# b")
    '&lt;script&gt;\\\\|a # b'
    """
    # One line, because a line break could begin a heading or a list.
    line = printable(" ".join(str(text).split()), limit=None)
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*\[\]|])", r"\\\1", line)
