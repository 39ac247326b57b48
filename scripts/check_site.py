"""Check a built site: no dead link, no dead anchor, nothing loaded from elsewhere.

python scripts/check_site.py build/site
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Elements that a browser loads by itself, unlike links that a reader follows.
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Page(HTMLParser):
    """Collect the links and loaded files of a page, and the anchors that it offers."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Sort the attributes of one element."""
        for name, value in attrs:
            if value is None:
                continue
            if name in ("id", "name"):
                self.anchors.add(value)
            elif (tag, name) in LOADED:
                self.loaded.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


def problems(root: Path) -> tuple[list[str], int]:
    """Return the faults of the pages below a folder, and how many links were followed."""
    pages = {path.resolve(): Page(path.read_text("utf-8")) for path in root.rglob("*.html")}
    found, followed = [], 0
    for path, page in pages.items():
        name = path.relative_to(root.resolve())
        found += [f"{name}: loads {x}" for x in page.loaded if urlsplit(x).netloc]
        for target in (*page.links, *page.loaded):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            followed += 1
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not file.exists():
                found.append(f"{name}: {target} leads nowhere")
            elif file in pages and unquote(parts.fragment) not in pages[file].anchors:
                found.append(f"{name}: {target} has no such anchor")
    return found, followed


def main(root: Path) -> int:
    """Print the problems and return the exit code."""
    found, followed = problems(root)
    print("\n".join(found))
    print(f"{followed} links followed, {len(found)} problems")
    return 1 if found or not followed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
