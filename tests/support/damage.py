"""Damage to files of each kind, and where a command meets the damaged file."""

from __future__ import annotations

import copy
import json
import random
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from fuzzing import fault, nested, odd_bytes, odd_json, odd_npz, odd_table, odd_tree
from fuzzing_images import odd_nifti

Damage = Callable[[Path, random.Random], None]


def _by(mutate: Callable[..., bytes], *more: object) -> Damage:
    def damage(path: Path, rng: random.Random) -> None:
        path.write_bytes(mutate(path.read_bytes(), rng, *more))

    return damage


BYTES, JSON, NPZ, NIFTI = _by(odd_bytes), _by(odd_json), _by(odd_npz), _by(odd_nifti)
CSV, TSV = _by(odd_table, ","), _by(odd_table, "\t")


def YAML(path: Path, rng: random.Random) -> None:
    """Other values under other keys, as YAML or, at times, as bytes."""
    if rng.random() < 0.2:
        BYTES(path, rng)
        return
    tree = odd_tree(yaml.safe_load(path.read_text()), rng)
    text = nested(json.dumps(tree)) if rng.random() < 0.5 else yaml.safe_dump(tree)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))


def ZIP(path: Path, rng: random.Random) -> None:
    """Bytes of the directory at the end more often than others; other names and flags.

    At times a member is listed twice, with the same bytes or with bytes inside another.
    """
    if rng.random() < 0.2 and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path, "a") as packed:
            member = copy.copy(rng.choice(packed.filelist))
            member.header_offset += rng.choice((0, 0, 1, 30))
            packed.filelist.append(member)
            packed._didModify = True
        return
    content = bytearray(path.read_bytes())
    for _ in range(rng.randrange(1, 5)):
        start = len(content) * 3 // 4 if rng.random() < 0.7 else 0
        content[rng.randrange(start, len(content))] = rng.choice((0, 1, 255, rng.randrange(256)))
    path.write_bytes(odd_bytes(bytes(content), rng) if rng.random() < 0.2 else content)


def LINES(path: Path, rng: random.Random) -> None:
    """One line of a file of JSON lines."""
    lines = path.read_bytes().splitlines()
    at = rng.randrange(len(lines))
    lines[at] = odd_json(lines[at], rng)
    path.write_bytes(b"\n".join(lines))


def PARQUET(path: Path, rng: random.Random) -> None:
    """Other columns, types and values of a table, or bytes."""
    if rng.random() < 0.3:
        BYTES(path, rng)
        return
    table = pd.read_parquet(path)
    name = rng.choice(list(table.columns))
    kind = rng.randrange(6)
    if kind == 0:
        table = table.drop(columns=name)
    elif kind == 1:
        table[name] = rng.choice(("text", "", None))
    elif kind == 2:
        table[name] = rng.choice((np.nan, np.inf, 1e308, -1, 7, True))
    elif kind == 3:
        table = table.iloc[: rng.choice((0, 1, 2))]
    elif kind == 4:
        table = table.rename(columns={name: rng.choice(list(table.columns)[:9])})
        table = table.loc[:, ~table.columns.duplicated(keep=False)]
    else:
        table[name] = [[1, 2]] * len(table)
    table.to_parquet(path, index=False)


@dataclass
class Boundary:
    """Files, how each is damaged, and what reads them."""

    files: list[tuple[Path, Damage]]
    read: Callable[[], object]
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None
    settle: Callable[[], None] = lambda: None

    def case(self, rng: random.Random) -> str:
        """One file damaged, read, and put back."""
        path, damage = rng.choice(self.files)
        content = path.read_bytes()
        try:
            damage(path, rng)
            self.before()
            return fault(self.read)
        finally:
            self.after()
            path.write_bytes(content)
            self.settle()


# --- sources ------------------------------------------------------------------------------------


def thin(folder: Path) -> None:
    """Keep four slices of each series, and neither localiser nor flip angles."""
    for path in sorted(folder.rglob("*.dcm")):
        if path.stem[-3:] in ("005", "006") or path.parent.name in ("loc", "v3", "v4", "d2"):
            path.unlink()
