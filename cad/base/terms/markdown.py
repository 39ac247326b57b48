"""Write foreign text into Markdown so that it is shown and never becomes markup."""

import re
from typing import Any


def in_markdown(text: Any) -> str:
    """Return text from a user or a file as Markdown that shows it, and does nothing else.

    Parameters
    ----------
    text : object
        A name or a note; its text is used.

    Examples
    --------
    >>> in_markdown("<script>|a\\n# b")
    '&lt;script&gt;\\\\|a # b'
    """
    line = "".join(c if c.isprintable() else "?" for c in " ".join(str(text).split()))
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*\[\]|])", r"\\\1", line)
