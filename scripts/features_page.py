"""Print docs/features.md: every column of the feature table, by the object that it measures."""

from __future__ import annotations

from cad.base.settings import FeatureSettings
from cad.base.terms.features import (
    DCE_IMAGES,
    GRADIENTS,
    HARALICK,
    HISTOGRAM,
    IMAGES,
    MAPS,
    RATIOS,
    STATISTICS,
)
from cad.base.terms.modality import short_name
from cad.mri.columns import Column, columns_of

EVERYTHING = FeatureSettings.model_validate(
    {
        "modalities": ["t2w", "adc", "hbv", "ktrans", "dce"],
        "families": [
            "intensity",
            "histogram",
            "gradient",
            "haralick",
            "maximal_correlation",
            "semiquantitative",
            "kinetic",
            "size",
            "position",
        ],
        "counting": True,
        "exclude": [],
        "radiomics": ["shape", "glrlm", "glszm", "gldm", "ngtdm", "total_energy", "mcc"],
        "perfusion": {"models": ["tofts", "extended_tofts", "brix", "patlak"], "delay": "voxel"},
    }
)
"""Settings that make every column except those of filters, which are named after their settings."""

HEAD = """# Features

*For whoever works with the feature table: what is each column a measurement of?*

Generated from `cad/mri/columns.py`: `uv run python scripts/features_page.py > docs/features.md`.

A region is measured in the grid of each image. A column's name is image, part, statistic, such
as `t2w_intensity_median`, `adc_haralick_contrast`, `dce_tofts_ktrans_p90`, `size_volume`. Parts
belong to families (`features.families`).

Statistics of kinetic parameters leave out voxels that did not fit, and are missing where less than
half of a region fits. R2, residual and the share that did not fit are of all voxels. A constant
region has a defined value for every feature.

Numbers whose tag is marked with * grow or shrink with the number of voxels, and so tell size under
another name. They are measured only with `features.counting`. Families `size` and `position` are
off unless named. So are maps in units of the scanner's gain (`features.exclude`).

The unit `standardised` is the standard deviation of the gland (z-score), the intensity of a
reference tissue, or Nyul's scale, as the pipeline says. Tags are those of the Image Biomarker
Standardisation Initiative (IBSI).
"""

PAPERS = """## Which of this is the paper's

[N14] names its features in one line: statistical, structural (gradients and Haralick's attributes)
and functional ones, "derived from the mpMR images". Its reference [20], which lists them, was not
at hand. So the families are the paper's, and what stands in them is partly a guess:

- statistical: `intensity`, `histogram`. Guessed: all of IBSI's.
- gradients: `gradient`. Guessed: Sobel and Kirsch, customary operators of the field.
- Haralick's attributes: `haralick`, `maximal_correlation`. His fourteen are his; distance,
  directions and levels are guessed.
- functional: `semiquantitative`, `kinetic`, ADC. Guessed: the models.
- images: T2, ADC, `dce_images`. Guessed: which frames of the series, those of the first minute.

Whether gradients and co-occurrence of the dynamic series help was not shown: they are off.
"""


def features_page() -> str:
    """Return ``docs/features.md``."""
    columns = list(columns_of(EVERYTHING).values())
    sections = [
        HEAD,
        "## Images\n",
        table("| image | values | unit |", map(image_row, IMAGES)),
        "Each has the parts `intensity`, `histogram`, `haralick`, and of the family `gradient` "
        "those below. The image `dce` has maps.\n",
        table("| part | definition | unit | source |", map(gradient_row, GRADIENTS)),
        "## Statistics\n",
        "Of intensities, gradients, responses of filters and maps. The intensity of T2, whose "
        f"values have no natural zero, has no {' and '.join(f'`{r}`' for r in RATIOS)}.\n",
        "Of grey levels (family and part `histogram`) they are pure numbers with other tags.\n",
        table("| statistic | definition | unit | IBSI | of levels |", statistic_rows(columns)),
        "## Co-occurrence\n",
        "Family and part `haralick`, pure numbers. Matrices are symmetric, i and j are levels, N is"
        " the number of levels, mu the mean level.\n",
        "\n".join([*pair_lines(columns), ""]),
        "Haralick's fourteenth is a family of its own, off unless named: part "
        "`maximal_correlation`, statistic `coefficient`. It is the largest correlation of i and j "
        "under any renaming of the levels. pyradiomics calls it MCC "
        "(`features.radiomics: [mcc]`).\n",
        "## Maps of the dynamic series\n",
        table("| part | definition | unit | source | statistics |", map_rows(columns)),
        "## Images of the dynamic series\n",
        "`features.dce_images` names images of the series that are measured as T2 is: gradients, "
        "co-occurrence and levels, with the settings `features.texture_dce`. Off unless named. It "
        "takes `early` and every map above; voxels that did not fit count nowhere. Columns are "
        "`dce_early_mean`, `dce_early_sobel_p90`, `dce_tofts_ktrans_haralick_contrast`.\n",
        table("| part | definition | unit |", map(series_row, DCE_IMAGES)),
        PAPERS,
        "## Size and position\n",
        table("| column | definition | unit | IBSI |", region_rows(columns)),
        "## Filters\n",
        "Responses to filters (`features.filters`, [filters](filters.md)) are parts with all "
        "statistics: `t2w_log3mm_mean`, `adc_mean5mm_3d_p90`, "
        "`t2w_wavelet_db3_lh_1_turned_variance`.\n",
        "## pyradiomics\n",
        "Classes that `features.radiomics` names; pyradiomics' documentation defines them.\n",
        table("| part | statistics | unit |", radiomics_rows(columns)),
    ]
    return "\n".join(sections)


def table(head: str, rows: list[str] | map[str]) -> str:
    """Return a Markdown table."""
    return "\n".join([head, "|---" * (head.count("|") - 1) + "|", *rows, ""])


def image_row(image: str) -> str:
    """Return an image's row."""
    part = IMAGES[image]
    return f"| `{image}` | {part.definition} ({short_name(image)}) | {part.unit} |"


def series_row(name: str) -> str:
    """Return the row of an image of the dynamic series."""
    made = DCE_IMAGES[name]
    return f"| `{name}` | {made.definition} | {made.unit} |"


def gradient_row(name: str) -> str:
    """Return a gradient's row."""
    part = GRADIENTS[name]
    return f"| `{name}` | {part.definition} | the image's{part.unit} | {part.source} |"


def statistic_rows(columns: list[Column]) -> list[str]:
    """Return a row for each statistic of values and of levels, from those of ADC."""
    adc, levels = of_adc(columns, "intensity"), of_adc(columns, "histogram")
    power = {"1": "1", IMAGES["adc"].unit: "the part's"}
    rows = []
    for name in dict.fromkeys([*STATISTICS, *HISTOGRAM]):
        unit = power.get(adc[name].unit, "its square") if name in adc else "1"
        tags = " | ".join(_tag(made[name]) if name in made else "" for made in (adc, levels))
        rows.append(f"| `{name}` | {(HISTOGRAM | STATISTICS)[name].definition} | {unit} | {tags} |")
    return rows


def pair_lines(columns: list[Column]) -> list[str]:
    """Return a line for each number from pairs of levels, taken from those of ADC."""
    made = of_adc(columns, "haralick")
    return [f"- `{k}` ({_tag(made[k])}): {word.definition}" for k, word in HARALICK.items()]


def of_adc(columns: list[Column], part: str) -> dict[str, Column]:
    """Return the columns of a part of ADC by their statistic."""
    return {c.statistic: c for c in columns if (c.image, c.channel) == ("adc", part)}


def map_rows(columns: list[Column]) -> list[str]:
    """Return a row for each perfusion map; maps that several models share have one row."""
    parts: dict[str, list[str]] = {}
    for column in columns:
        if column.image == "dce":
            parts.setdefault(column.channel, []).append(column.statistic)
    rows: dict[tuple[str, ...], list[str]] = {}
    source: dict[tuple[str, ...], list[str]] = {}
    for (part, kept), of in zip(parts.items(), MAPS.values(), strict=True):
        missing = [f"`{s}`" for s in STATISTICS if s not in kept]
        which = f"`{kept[0]}`" if len(kept) == 1 else f"all but {', '.join(missing)}"
        row = (of.definition.split(": ")[-1], of.unit, which if missing else "all")
        rows.setdefault(row, []).append(f"`{part}`")
        source.setdefault(row, []).append(of.source)
    return [
        f"| {', '.join(parts)} | {row[0]} | {row[1]} | {', '.join(dict.fromkeys(source[row]))} "
        f"| {row[2]} |"
        for row, parts in rows.items()
    ]


def region_rows(columns: list[Column]) -> list[str]:
    """Return a row for each number of the region as drawn."""
    return [
        f"| `{c.name}` | {c.definition} | {c.unit} | {c.ibsi} |" for c in columns if not c.image
    ]


def radiomics_rows(columns: list[Column]) -> list[str]:
    """Return a row for each class of pyradiomics."""
    parts: dict[str, list[Column]] = {}
    for column in columns:
        if column.family == "radiomics" and column.image == "adc":
            parts.setdefault(column.channel, []).append(column)
    return [
        f"| `{part}` | {', '.join(f'`{c.statistic}`' for c in made)} | "
        f"{', '.join(dict.fromkeys(c.unit for c in made))} |"
        for part, made in parts.items()
    ]


def _tag(column: Column) -> str:
    return column.ibsi + "*" * column.counts_voxels


if __name__ == "__main__":
    print(features_page(), end="")
