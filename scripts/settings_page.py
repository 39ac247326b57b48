"""Print docs/settings.md: every settings key, from its type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from cad.learners import LEARNERS
from cad.learners.solvers.choice import SOLVERS
from cad.node.settings import NodeSettings
from cad.settings import DecisionSettings, FilterSettings, PipelineSettings


def settings_table(
    kind: type[BaseModel], prefix: str = "", shown: dict[type[BaseModel], str] | None = None
) -> list[str]:
    """Return the rows of a Markdown table: every key with its path, values, default and meaning.

    A section that stands in several places is written out in the first, kept in ``shown``.
    """
    rows = []
    shown = {} if shown is None else shown
    for name, field in kind.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        kinds = (field.annotation, *get_args(field.annotation))  # of an optional section, too
        part = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
        if part in shown:
            rows.append(f"| `{key}.*` | | | as `{shown[part]}.*` |")
        elif part is not None:
            shown[part] = key
            rows += settings_table(part, f"{key}.", shown)
        else:
            default = "required"
            if not field.is_required():
                default = f"`{written(field.get_default(call_default_factory=True))}`"
            rows.append(
                f"| `{key}` | {values(field.annotation)} | {default} | {field.description} |"
            )
    return rows


def values(kind: Any) -> str:
    """Return what may be written for a type, in the words of a settings file."""
    plain = {float: "number", int: "whole number", bool: "true, false", str: "text", Path: "path"}
    origin, parts = get_origin(kind), get_args(kind)
    if kind in plain or origin is None:
        return plain.get(
            kind, "null" if kind is type(None) else getattr(kind, "__name__", "any").lower()
        )
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
    """Return a value as a settings file has it."""
    return json.dumps(value, ensure_ascii=False).replace('"', "") or '""'


def learners_table() -> list[str]:
    """Return a row for each learner: its parameters and their defaults, without those of labels."""
    rows = []
    for name, learner in sorted(LEARNERS.items()):
        params = learner().get_params(deep=False)
        if "eta0" in params:
            params.pop("eta", None)  # it comes from the labels
        rows.append(f"| `{name}` | {', '.join(f'`{k}={written(v)}`' for k, v in params.items())} |")
    return rows


def settings_page() -> str:
    """Return ``docs/settings.md``: every settings key, generated from the types."""
    head = "| key | values | default | meaning |\n|---|---|---|---|"
    return "\n".join(
        [
            "# Settings",
            "",
            "Generated from `cad/settings.py`: `python scripts/settings_page.py`.",
            "What is not written in a file takes the default. Unknown keys are refused.",
            "",
            "## A pipeline (`pipelines/*.yaml`)",
            "",
            head,
            *settings_table(PipelineSettings),
            "",
            "## A learner (`learner.name`, `learner.params`, `learner.grid`)",
            "",
            "Parameters with their defaults; [learners](learners.md) says what they mean. `solver` "
            f"is one of {', '.join(f'`{name}`' for name in SOLVERS)} (`cvxopt` is the reference, "
            "of the extra `reference`); of SVMROC and SSLROC `auto`, `interior-point` or `cvxopt`. "
            "A P-SVM's `eta` comes from the labels.",
            "",
            "| learner | parameters |\n|---|---|",
            *learners_table(),
            "",
            "## A filter (`features.filters`, [filters](filters.md))",
            "",
            head,
            *settings_table(FilterSettings),
            "",
            "## A site's costs (`configs/decision/*.yaml`)",
            "",
            "For `cad predict --decision FILE`; only their ratios count. A region is called benign "
            "below P₋ = R_n / (C_p − R_p + R_n), malignant above P₊ = (C_n − R_n) / (C_n − R_n + "
            "R_p), and referred between.",
            "",
            head,
            *settings_table(DecisionSettings),
            "",
            "## A node (`configs/node/*.yaml`)",
            "",
            "For `cad serve --config FILE`; [node.md](node.md). From `cad/node/settings.py`. "
            "Nothing is watched unless `watch` names a folder.",
            "",
            head,
            *settings_table(NodeSettings),
            "",
        ]
    )


if __name__ == "__main__":
    print(settings_page(), end="")
