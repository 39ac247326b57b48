"""Define the command that checks an audit trail (the record of what was predicted and sent)."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cad.cli.shared import Json, show

audit_app = typer.Typer(no_args_is_help=True, help="Check what was predicted and sent, by whom.")


@audit_app.callback()
def _group() -> None:
    """Check what was predicted and sent, by whom."""


@audit_app.command("verify")
def audit_verify(
    file: Annotated[Path, typer.Argument(help="Audit trail that --audit wrote.")],
    last: Annotated[
        str, typer.Option("--last", help="A last hash printed earlier: find lines cut off since.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Find changed, removed, inserted or moved lines of an audit trail; print its last hash.

    An audit trail is a file in which each line holds the hash of the line before it. The trail is
    only read. The exit code is 1 when a line is wrong. Lines that were cut off at the end are found
    only with --last, a last hash that was printed earlier.
    """
    from cad.run.audit.trail import verify

    outcome = verify(file, last)
    lines = [*outcome.problems, f"{outcome.lines} lines, last hash {outcome.last}"]
    if outcome.torn and not outcome.problems:
        lines.append(
            f"then {outcome.torn} bytes of a line that a kill cut short: no part of the trail"
        )
    show(asdict(outcome), as_json, lambda _: "\n".join(lines))
    if outcome.problems:
        raise typer.Exit(1)
