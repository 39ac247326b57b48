"""Print docs/settings.md: every settings key, made from the key's type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from cad.base.settings import DecisionSettings, FilterSettings, PipelineSettings
from cad.dicom.archive.settings import ArchiveLimits
from cad.hospital.node.settings import NodeSettings
from cad.learners import LEARNERS
from cad.learning.learners.solvers.choice import SOLVERS

_SHOWN_BY_DEFAULT = (float, int, bool, str)
"""Types whose default value shows the kind: 1.0, 16, false, a text."""


def settings_table(
    kind: type[BaseModel], prefix: str = "", shown: dict[type[BaseModel], str] | None = None
) -> list[str]:
    """Return a line for every key: its path, values, default and meaning.

    A section that occurs in several places is written out in the first place, and kept in
    ``shown``.
    """
    rows = []
    shown = {} if shown is None else shown
    for name, field in kind.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        # also for a section that is optional
        kinds = (field.annotation, *get_args(field.annotation))
        part = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
        if part in shown:
            rows.append(f"- `{key}.*`: as {shown[part]}")
        elif part is not None:
            shown[part] = f"`{key}.*`"
            rows += settings_table(part, f"{key}.", shown)
        else:
            text, default = values(field.annotation), "required"
            if not field.is_required():
                default = f"`{written(field.get_default(call_default_factory=True))}`"
            if field.annotation in _SHOWN_BY_DEFAULT and not field.is_required():
                text = default
            text = text if default in text else f"{text}, {default}"
            text = text.replace(default, f"**{default}**")
            rows.append(f"- `{key}` ({text}): {field.description}")
    return rows


def values(kind: Any) -> str:
    """Return the values that a type allows, in the words of a settings file."""
    plain = {float: "number", int: "whole number", str: "text", Path: "path"}
    plain |= {bool: "`true`, `false`", type(None): "`null`"}
    origin, parts = get_origin(kind), get_args(kind)
    if kind in plain or origin is None:
        return plain.get(kind, getattr(kind, "__name__", "any").lower())
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin is Annotated:
        return values(parts[0])
    if origin in (tuple, list):
        return f"list of {values(parts[0])}"
    if origin is dict:
        return f"mapping of {values(parts[0])} to {values(parts[1])}"
    return " or ".join(dict.fromkeys(values(part) for part in parts))


def written(value: object) -> str:
    """Return a value in the notation of a settings file."""
    return json.dumps(value, ensure_ascii=False).replace('"', "") or '""'


def learners_table() -> list[str]:
    """Return a line for each learner: its parameters and defaults, except parameters of labels."""
    rows = []
    for name, learner in sorted(LEARNERS.items()):
        params = learner().get_params(deep=False)
        if "eta0" in params:
            params.pop("eta", None)  # eta comes from the labels
        rows.append(f"- `{name}`: {', '.join(f'`{k}={written(v)}`' for k, v in params.items())}")
    return rows


def settings_page() -> str:
    """Return ``docs/settings.md``: every settings key, generated from the types."""
    shown: dict[type[BaseModel], str] = {}
    return "\n".join(
        [
            "# Settings",
            "",
            "*For whoever writes a pipeline, a decision file or a node's file: which keys are "
            "there, and what does each do?*",
            "",
            "`python scripts/settings_page.py` makes this page from `cad/base/settings.py`. A line "
            "has a key, in brackets its possible values, and its meaning. The default is in bold. "
            "The brackets hold the default alone where it shows which kind of value the key takes, "
            "such as a number or a text. Unknown keys are refused.",
            "",
            "## A pipeline (`pipelines/*.yaml`)",
            "",
            *settings_table(PipelineSettings, shown=shown),
            "",
            "## A learner (`learner.name`, `learner.params`, `learner.grid`)",
            "",
            "The list has the learners with their parameters and defaults; the page "
            "[learners](learners.md) says what the parameters mean. `solver` is one of "
            f"{', '.join(f'`{name}`' for name in SOLVERS)}; for SVMROC and SSLROC it is `auto`, "
            "`interior-point` or `cvxopt`. `cvxopt` is the reference solver, which the extra "
            "`reference` installs. The spread `eta` of a P-SVM's labels is no parameter: it comes "
            "from the readers' scores.",
            "",
            *learners_table(),
            "",
            "## A filter (`features.filters`, [filters](filters.md))",
            "",
            *settings_table(FilterSettings),
            "",
            "## A site's costs (`configs/decision/*.yaml`)",
            "",
            f"The keys of such a file are those of {shown[DecisionSettings]} of a pipeline, "
            "without `decision.` in front. `cad predict --decision FILE` reads the file. Of the "
            "costs only the ratios count ([methods](methods.md#3-reject-option-and-costs)).",
            "",
            "## An archive (`configs/archive/*.yaml`)",
            "",
            "These keys are for the option `--limits FILE` of commands that speak with an archive "
            "([dicom](dicom.md)). They come from `cad/dicom/archive/settings.py`.",
            "",
            *settings_table(ArchiveLimits),
            "",
            "## A node (`configs/node/*.yaml`)",
            "",
            "These keys are for `cad serve --config FILE` ([node](node.md)). They come from "
            "`cad/hospital/node/settings.py`. No folder is watched unless `watch.folder` "
            "names one.",
            "",
            *settings_table(NodeSettings, shown={ArchiveLimits: "an archive's keys"}),
            "",
        ]
    )


if __name__ == "__main__":
    print(settings_page(), end="")
