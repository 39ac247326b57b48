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

`uv run python scripts/features_page.py > docs/features.md` makes this page from the code
(`cad/mri/columns.py`). Names such as `features.families` are keys of the
[settings](settings.md).

A region is measured on the grid of each image. The name of a column has three pieces, joined by
`_`: the image, the part and the statistic. A *part* is a property of the image, such as its
intensity or its grey levels, or a map computed from it. Examples are `t2w_intensity_median`,
`adc_haralick_contrast` and `dce_tofts_ktrans_p90`. Columns of the size and position of a region
name no image (`size_volume`). Each part belongs to a family. `features.families` names the families
that are measured.

The perfusion models are fitted in every voxel of the dynamic series (DCE). Statistics of their
parameters, such as Ktrans, leave out the voxels in which the fit failed. These statistics are
missing if the fit succeeded in less than half of a region. Three statistics tell how well the fit
went: R2, the residual and the share of voxels in which the fit failed. These three are taken over
all voxels of the region. If all voxels of a region have one value, the statistics of intensity,
levels and co-occurrence are defined all the same.

Some statistics grow or shrink with the number of voxels, and so mainly tell the size of the region.
In the tables their tags (codes of the standard IBSI) are marked with `*`. These statistics are
measured only if `features.counting` is on. The families `size` and `position` are measured only if
`features.families` names them. By default `features.exclude` leaves out two maps whose unit depends
on the gain of the scanner (`semi_baseline_signal` and `semi_maximum_enhancement`).

The unit `standardised` of T2 depends on the setting `images.t2_standardisation` of the pipeline.
It is a standard deviation (z-score), the intensity of a reference tissue, or a step of Nyul's
scale. The unit `a.u.` means arbitrary units. The tags in the tables are those that the Image
Biomarker Standardisation Initiative (IBSI) gives to features.
"""

PAPERS = """## Which of this is the paper's

The paper [N14] (Niaf et al. 2014, listed in [methods](methods.md)) names its features in one
line: statistical, structural (gradients and Haralick's attributes) and functional ones, "derived
from the mpMR images". The list of the features is in the paper's reference [20], which was not at
hand. So the kinds of features are those of the paper, and the features themselves are partly
guessed:

- Statistical features are the families `intensity` and `histogram`. Which statistics the paper
  [N14] took is a guess: this program takes all those of IBSI.
- Gradients are the family `gradient`. The operators of Sobel and Kirsch are a guess. They were
  chosen because they are common in the field.
- Haralick's attributes are the families `haralick` and `maximal_correlation`. His fourteen
  attributes are known. The distance and directions of the pairs of voxels, and the number of grey
  levels, are guessed.
- Functional features are the families `semiquantitative` and `kinetic`, and ADC. The perfusion
  models are guessed.
- The images are T2, ADC and those of `dce_images`. Which frames of the dynamic series the paper
  took is not known. This program takes the frames of the first minute after the bolus.

The gradients and the co-occurrence of the dynamic series are off by default
([why](#with-and-without-the-early-image)).
"""

EARLY_IMAGE = """### With and without the early image

Two pipelines were compared on two cohorts of simulated men: one pipeline with the setting
`features.dce_images: [early]`, and one without it. In the cohort of 60 men the setting adds 85
columns of features to 528. Both pipelines were validated on the same folds and seeds (2026-11-29).
In the table a difference is the measure with the early image minus the measure without it. Negative
differences of Brier and KL, and positive differences of the AUC, are in favour of the early image.
The intervals (95 %) are over men.

| cohort | measure | without | with | difference |
|---|---|---:|---:|---|
| 60 simulated men, 10 folds | AUC, histology | .932 | .934 | +.002 (−.003 to +.008) |
| | Brier, histology | .0679 | .0673 | −.0007 (−.0020 to +.0006) |
| | two-sided KL, readers | 41.2 | 43.5 | +2.3 (+1.0 to +3.5) |
| 12 men of `sample_data/`, leave-one-out | AUC, histology | .915 | .916 | +.001 (−.011 to +.013) |
| | Brier, histology | .078 | .075 | −.003 (−.006 to −.001) |
| | two-sided KL, readers | 9.0 | 8.9 | −.1 (−.8 to +.6) |

**The setting `features.dce_images: [early]` is off by default.** On the cohort of 60 men the
early image brought no gain against histology beyond chance, and with it the readers were predicted
worse. On the twelve men of the sample the Brier score was a little better with the early image. But
twelve men are few, and the 60 men did not confirm this gain. The AUC is of centred log-odds
([folds](folds.md)). One of the 60 men was refused, because his ADC map was wrongly taken for
mirrored. So the numbers of this cohort are of 59 men with 418 regions.

These men are simulated. In the simulator, the random field that makes Ktrans uneven shares half of
its variance with the fields that make T2 and ADC uneven ([phantom](phantom.md)). So simulated
dynamic images carry little texture of their own, and the table does not say whether the texture of
real dynamic images helps. No public data with dynamic series, readers' scores and histology were at
hand. The one real dynamic series, of ProstateX-0218, has four discs as regions, and invented
scores. If you have such data, you can compare the two pipelines on them. These commands compared
the pipelines on the 60 simulated men:

```
sed 's/^name: demo$/name: plain/; s/scheme: .*/scheme: patient-folds\\n  folds: 10/' \\
  pipelines/demo.yaml > plain.yaml
sed 's/^name: plain$/name: early\\nfeatures: {dce_images: [early]}/' plain.yaml > early.yaml
cad simulate men --patients 60 --seed 3100
cad compare plain.yaml early.yaml --cohort men -o compared
```

For the sample cohort, `scheme` stays as it is in `demo.yaml`, and `--cohort` is `sample_data`.
"""


def features_page() -> str:
    """Return ``docs/features.md``."""
    columns = list(columns_of(EVERYTHING).values())
    sections = [
        HEAD,
        "## Images\n",
        table("| image | values | unit |", map(image_row, IMAGES)),
        "Each image of this table has the parts `intensity`, `histogram` and `haralick`. It also\n"
        "has the parts `sobel` and `kirsch` of the next table, which belong to the family\n"
        "`gradient`. The dynamic series (`dce`) has [maps](#maps-of-the-dynamic-series) in place\n"
        "of these parts. `the image's` in a unit stands for the unit of the image.\n",
        table("| part | definition | unit | source |", map(gradient_row, GRADIENTS)),
        "## Statistics\n",
        "The statistics of the next table are taken of intensities, gradients, responses of\n"
        "filters, and maps.\n"
        f"The intensity of T2 has no {' and '.join(f'`{r}`' for r in RATIOS)}, because its\n"
        "values have no natural zero.\n",
        "The statistics of the next table are taken of measured values (such as intensities) and\n"
        'of grey levels (family and part `histogram`). The column "IBSI" has the tags that IBSI\n'
        'gives to statistics of measured values, the column "of levels" the tags of statistics of\n'
        "grey levels. If a tag is missing, IBSI gives none, or the statistic is not taken of\n"
        "these values. Statistics of grey levels are pure numbers. As a unit, `the part's` stands\n"
        "for the unit of the part, and `its square` for the square of that unit.\n",
        table("| statistic | definition | unit | IBSI | of levels |", statistic_rows(columns)),
        "## Co-occurrence\n",
        "A co-occurrence matrix counts how often a voxel with grey level i has a neighbour with\n"
        "grey level j. Its statistics belong to the family `haralick`. In the names of columns\n"
        "their part is `haralick`, too. They are pure numbers. The matrix is symmetric. N is the\n"
        "number of levels, and mu is the mean level. HX is the entropy of i, and HXY the joint\n"
        "entropy of i and j. HXY1 and HXY2 are entropies as if i and j were independent. Because\n"
        "the matrix is symmetric, HXY1 and HXY2 are both 2 HX. The list has the statistics, with\n"
        "the tags of IBSI in brackets:",
        "\n".join([*pair_lines(columns), ""]),
        "Haralick's fourteenth feature is a family of its own, which is measured only if\n"
        "`features.families` names it. Its part is `maximal_correlation`, and its statistic\n"
        "`coefficient`. It is the largest correlation between the grey levels i and j of two\n"
        "neighbouring voxels if the levels may be renumbered in any way. pyradiomics calls it MCC\n"
        "(`features.radiomics: [mcc]`).\n",
        "## Maps of the dynamic series\n",
        "The last column of the next table says which of the [statistics](#statistics) are taken\n"
        'of a map. The bolus is the contrast agent as it was injected. "The study\'s" arrival or\n'
        'delay is estimated from a mean curve of the study. "The input" is the concentration of\n'
        "contrast agent in the artery.\n",
        table("| part | definition | unit | source | statistics |", map_rows(columns)),
        "## Images of the dynamic series\n",
        "The setting `features.dce_images` names images of the dynamic series that are measured\n"
        "like T2: their gradients, co-occurrence and levels, with the settings\n"
        "`features.texture_dce`. By default `features.dce_images` names none. It may name `early`\n"
        "(in the table below) and every [map](#maps-of-the-dynamic-series). Voxels of a map in\n"
        "which the fit failed are left out. Examples of columns are `dce_early_mean`,\n"
        "`dce_early_sobel_p90` and `dce_tofts_ktrans_haralick_contrast`.\n",
        table("| part | definition | unit |", map(series_row, DCE_IMAGES)),
        EARLY_IMAGE,
        PAPERS,
        "## Size and position\n",
        "The columns of the next table state the size of a region, as it was drawn, and its\n"
        "position in the gland. Some sizes are measured on a mesh, a surface of triangles around\n"
        "the region. The position is that of the region's centre. It is measured only if there is\n"
        "a gland mask.\n",
        table("| column | definition | unit | IBSI |", region_rows(columns)),
        "## Filters\n",
        "The response of a filter is the image after the filter ([filters](filters.md)).\n"
        "`features.filters` names the filters. All statistics of intensity are taken of each\n"
        "response, too. In the name of a column the filter stands between the image and the\n"
        "statistic. It is `log3mm` in `t2w_log3mm_mean`, `mean5mm_3d` in `adc_mean5mm_3d_p90` and\n"
        "`wavelet_db3_lh_1_turned` in `t2w_wavelet_db3_lh_1_turned_variance`.\n",
        "## pyradiomics\n",
        "These are the classes of features that `features.radiomics` may name. The package\n"
        "pyradiomics measures them, and its documentation defines them. The units are those for\n"
        "an ADC map.\n",
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
