"""Other places in MetaImage and NRRD headers, and the place that the text of a header means."""

from __future__ import annotations

import random
import re

import numpy as np

BREAKS = ("\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\u2028", "\u2029", "\r", "\r\n", "\0")
NUMBERS = (
    "0",
    "-1",
    "9",
    "1e300",
    "1e999",
    "1e-320",
    "nan",
    "inf",
    "none",
    "0x10",
    "1d2",
    "+2",
    "2.",
    ".5",
    "1,5",
    "words",
    "",
    "2 3",
    "1e",
    "--1",
    "१",
)
SPACES = (
    "left-posterior-superior",
    "LPS",
    "left posterior superior",
    "RAS",
    "right-anterior-superior",
    "Right-Anterior-Superior",
    "LAS",
    "leftanteriorsuperior",
    "scanner-xyz",
    "scanner-xyz-time",
    "3D-right-handed",
    "3D-left-handed",
    "3D-left-handed-time",
    "LPST",
    "right-anterior-superior-time",
    "left-posterior-inferior",
    "LPS x",
)
NRRD_LINES = (
    "space origin: (9,9,9)",
    "spaceorigin: (9,9,9)",
    "Space Origin: (9,9,9)",
    "space  origin: (9,9,9)",
    "space origin:(9,9,9)",
    "space origin : (9,9,9)",
    "space origin:=(9,9,9)",
    "space origin: (9,9,9):=x",
    "note:=space origin: (9,9,9)",
    "space directions: (9,0,0) (0,9,0) (0,0,9)",
    "spacedirections:=(9,0,0) (0,9,0) (0,0,9)",
    "space:=scanner-xyz",
    "space: scanner-xyz",
    "space dimension: 3",
    'space units: "cm" "cm" "cm"',
    'spaceunits: "m" "m" "m"',
    'SPACE UNITS: "um" "um" "um"',
    'space units: "mm" "mm" "mm"',
    'space units:="m" "m" "m"',
    "spacings: 9 9 9",
    "spacings: nan nan nan",
    "axis mins: 9 9 9",
    'units: "m" "m" "m"',
    "kinds: domain domain time",
    "centerings: node node node",
    "thicknesses: 9 9 9",
)
META_LINES = (
    "Offset = 9 9 9",
    "offset = 9 9 9",
    "Offset=9 9 9",
    "Offset : 9 9 9",
    "Off set = 9 9 9",
    "Position = 9 9 9",
    "Origin = 9 9 9",
    "ImagePosition = 9 9 9",
    "CenterOfRotation = 9 9 9",
    "ElementSpacing = 9 9 9",
    "elementspacing = 9 9 9",
    "ElementSize = 9 9 9",
    "TransformMatrix = 0 1 0 1 0 0 0 0 1",
    "Rotation = 0 1 0 1 0 0 0 0 1",
    "Orientation = -1 0 0 0 -1 0 0 0 1",
    "DistanceUnits = cm",
    "DistanceUnits = um",
    "DistanceUnits = mm",
    "distanceunits = cm",
    "AnatomicalOrientation = LPI",
    "AnatomicalOrientation = ARS",
    "Comment = x",
    "Comment =",
    "NDims = 2",
)


def odd_place(content: bytes, rng: random.Random) -> bytes:
    """Return a header with another place, or with one place in another spelling or another line."""
    nrrd = content.startswith(b"NRRD")
    # The last entry of a MetaImage is followed by its voxels.
    end = content.find(b"\n\n") if nrrd else content.find(b"ElementDataFile")
    if end < 0:
        end = len(content)
    lines = content[:end].decode("latin-1").split("\n")
    for _ in range(rng.randrange(1, 3)):
        line = rng.choice(NRRD_LINES if nrrd else META_LINES)
        place = rng.randrange(1, len(lines))
        kind = rng.randrange(8)
        if kind == 0:
            lines.insert(place, line)
        elif kind == 1:
            lines[place] += rng.choice(BREAKS) + line
        elif kind == 2:
            start = rng.choice(("# x", "note:=x", "content: x") if nrrd else ("Comment = x",))
            lines.insert(place, start + rng.choice(BREAKS) + line)
        elif kind == 3 and nrrd:
            space = f"space: {rng.choice(SPACES)}"
            lines = [space if row.startswith("space:") else row for row in lines]
        elif kind == 4:
            name = line.partition(":" if nrrd else " ")[0]
            lines = [row for row in lines if not row.startswith(name)]
            lines.insert(place, line)
        elif kind == 5:
            lines = [_other_spelling(row, rng) for row in lines]
        elif kind == 6 and not nrrd:
            return content + line.encode()
        else:
            lines = [_other_number(row, rng) for row in lines]
    return "\n".join(lines).encode("utf-8", "replace") + content[end:]


def sound_change(content: bytes, rng: random.Random) -> bytes:
    """Return a header with one line that is another and right: a place, or a comment."""
    numbers = [f"{rng.uniform(-99, 99):.3f}" for _ in range(3)]
    if content.startswith(b"NRRD"):
        line = f"space origin: ({','.join(numbers)})"
        comment = "# x"
    else:
        line = f"Offset = {' '.join(numbers)}"
        comment = "Comment = x"
    start = content.index(f"\n{line[:7]}".encode()) + 1
    if rng.random() < 0.5:
        return content[:start] + comment.encode() + b"\n" + content[start:]
    end = content.index(b"\n", start)
    return content[:start] + line.encode() + content[end:]


def _other_number(line: str, rng: random.Random) -> str:
    """Put another number into a line of the place, at times."""
    numbers = list(re.finditer(r"[-+]?\d[\d.e+-]*", line))
    if not re.match("(?i)space|offset|element|transform", line) or not numbers:
        return line
    if rng.random() < 0.6:
        return line
    number = rng.choice(numbers)
    return line[: number.start()] + rng.choice(NUMBERS) + line[number.end() :]


def _other_spelling(line: str, rng: random.Random) -> str:
    """Write the name of an entry differently, at times."""
    name, sign, value = line.partition(":" if ":" in line else "=")
    spellings = (name.upper(), name.lower(), name.replace(" ", ""), f" {name}", f"{name} ")
    return rng.choice(spellings) + sign + value if rng.random() < 0.3 else line


def meant_place(content: bytes) -> np.ndarray:
    """Return the matrix from voxel to LPS mm that the header of an accepted image means.

    Written apart from the reader: it knows the usual lines only, and takes every line that somebody
    could read as the place. An AssertionError says that the header means no one place.
    """
    affine = np.eye(4)
    if content.startswith(b"NRRD"):
        head = re.split(rb"\r?\n\r?\n", content)[0].decode("latin-1")
        lines = [row for row in re.split(r"\r?\n", head) if not re.match(r"#|[^:]*:=", row)]
        assert not _values(lines, r"space ?dimension"), "a number of axes of another space"
        assert {*re.findall("[a-z]+", _one(lines, r"space ?units", '"mm"'))} == {"mm"}, "units"
        space = re.sub("[- ]", "", _one(lines, "space").lower())
        signs = {
            "leftposteriorsuperior": (1, 1, 1),
            "lps": (1, 1, 1),
            "rightanteriorsuperior": (-1, -1, 1),
            "ras": (-1, -1, 1),
            "leftanteriorsuperior": (1, -1, 1),
            "las": (1, -1, 1),
        }[space]
        steps = _floats(_one(lines, r"space ?directions"), 9)
        affine[:3, :3] = steps.reshape(3, 3).T
        affine[:3, 3] = _floats(_one(lines, r"space ?origin"), 3)
        affine[:3] *= np.array(signs)[:, None]
        return affine
    head = re.split(rb"(?m)^\s*ElementDataFile", content)[0].decode("latin-1")
    lines = head.split("\n")
    assert _one(lines, r"distance\s*units", "mm") == "mm", "units"
    spacing = _floats(_one(lines, r"element\s*spacing"), 3)
    axes = _floats(_one(lines, "transformmatrix|rotation|orientation"), 9)
    affine[:3, :3] = axes.reshape(3, 3).T * spacing
    affine[:3, 3] = _floats(_one(lines, "off ?set|position|origin|imageposition"), 3)
    return affine


def _values(lines: list[str], name: str) -> list[str]:
    """Return the values of all lines with a name in any spelling."""
    values = []
    for line in lines:
        entry = re.fullmatch(rf"(?i)\s*(?:{name})\s*[:=](.*)", line.rstrip("\r"))
        if entry:
            values.append(entry[1].strip())
    return values


def _one(lines: list[str], name: str, usual: str = "") -> str:
    values = _values(lines, name) or [usual]
    assert values[0], f"no {name}"
    assert len({" ".join(value.split()) for value in values}) == 1, f"{name} = {values}"
    return values[0]


def _floats(text: str, count: int) -> np.ndarray:
    numbers = np.array([float(number) for number in re.split(r"[\s(),]+", text) if number])
    assert len(numbers) == count, text
    assert np.isfinite(numbers).all(), text
    return numbers
