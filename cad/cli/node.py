"""Define the command ``cad serve``, which runs a node until a signal stops it."""

from pathlib import Path
from typing import Annotated

import typer

from cad.cli.shared import RetryFailed


def serve(
    config: Annotated[
        str, typer.Option("--config", help="Node: a file, or a name in configs/node.")
    ],
    watch: Annotated[
        Path | None, typer.Option("--watch", help="Also take what a site exports to this folder.")
    ] = None,
    retry_failed: RetryFailed = False,
    new_trail: Annotated[
        bool,
        typer.Option("--new-trail", help="Begin another audit trail where the last one is gone."),
    ] = False,
) -> None:
    """Run a DICOM node: receive studies, compute them, return SR and SEG to the archive.

    SR is a DICOM report, and SEG a DICOM segmentation of the regions. The file of --config names
    the node's folder, port, models and archive. The node runs until it is ended by a signal
    (SIGTERM or SIGINT).
    """
    from cad.base.settings import read_settings
    from cad.base.share import find
    from cad.hospital.node.service import serve as run
    from cad.hospital.node.settings import NodeSettings, WatchSettings

    settings = read_settings(NodeSettings, find("configs/node", config, ".yaml"))
    if watch is not None:
        settings = settings.model_copy(update={"watch": WatchSettings(folder=watch)})
    raise typer.Exit(run(settings, retry_failed=retry_failed, new_trail=new_trail))
