"""Print docs/settings.md: every settings key, from its type."""

from __future__ import annotations

from typing import get_args

from pydantic import BaseModel

from cad.learners import LEARNERS
from cad.learners.solvers.choice import SOLVERS
from cad.node.settings import NodeSettings
from cad.settings import DecisionSettings, FilterSettings, PipelineSettings


def settings_table(kind: type[BaseModel], prefix: str = "") -> list[str]:
    """Return the rows of a Markdown table: every key with its path, type, default and meaning."""
    rows = []
    for name, field in kind.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        kinds = (field.annotation, *get_args(field.annotation))  # of an optional section, too
        part = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
        if part is not None:
            rows += settings_table(part, f"{key}.")
            continue
        values = str(field.annotation).replace("typing.", "").replace("|", "or")
        if isinstance(field.annotation, type):
            values = field.annotation.__name__
        default = (
            "required"
            if field.is_required()
            else f"`{field.get_default(call_default_factory=True)!r}`"
        )
        rows.append(f"| `{key}` | {values} | {default} | {field.description} |")
    return rows


def learners_table() -> list[str]:
    """Return a row for each learner: its parameters and their defaults, without those of labels."""
    rows = []
    for name, learner in sorted(LEARNERS.items()):
        params = learner().get_params(deep=False)
        if "eta0" in params:
            params.pop("eta", None)  # it comes from the labels
        rows.append(f"| `{name}` | {', '.join(f'`{k}={v!r}`' for k, v in params.items())} |")
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
