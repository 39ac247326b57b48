"""Change the champion of a node, the model whose results people see.

The other models of a node are shadows: they are on trial, and their results are only compared. The
change is recorded in the audit trail, and the same command can undo it.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import yaml

from cad.base.doors import door
from cad.base.errors import CadError
from cad.base.files import JsonObject, write_atomic
from cad.base.reading import read_text
from cad.base.settings import read_settings
from cad.base.share import find
from cad.hospital.node.queue import Queue
from cad.hospital.node.service import QUEUE
from cad.hospital.node.settings import NodeSettings
from cad.hospital.node.trail import FILE
from cad.hospital.node.withdrawal import NodeHome
from cad.run.audit.entries import caller
from cad.run.audit.trail import DamagedTrail, append, verify
from cad.run.model.bundle import load_bundle


def promote(config: Path, challenger: str, in_place_of: str | None = None) -> JsonObject:
    """Make a shadow model of a node a champion, and the champion a shadow.

    Only the entry ``models`` of the node's settings file changes. Before that, the audit trail gets
    a line with both models' hashes. The node must not run; its next start uses the new champion.

    Parameters
    ----------
    config : Path
        The node's settings file.
    challenger : str
        A shadow model of the node.
    in_place_of : str, optional
        The champion that becomes a shadow; by default the first champion in the settings.

    Returns
    -------
    dict
        ``champion`` and ``shadow``, the new lists of models; ``back``, the arguments of the command
        that undoes the change.

    Raises
    ------
    CadError
        When the settings file is a link, when the model is no shadow or cannot be used, and when
        the node runs or has never run. Also when its audit trail is damaged, or when more of the
        settings file would change than the entry ``models``.
    """
    if config.is_symlink():
        raise CadError(
            "a link: it would be replaced by a file, and what it leads to would stay as it is",
            file=config,
            hint=f"give the file itself: --config {config.resolve()}",
        )
    settings = read_settings(NodeSettings, config)
    champions = list(settings.models.champion)
    shadows = list(settings.models.shadow)
    old_champion = in_place_of or champions[0]
    if challenger not in shadows:
        raise CadError(
            f"{challenger} is no shadow of this node: {', '.join(shadows) or 'it has none'}",
            file=config,
            hint="let it run as a shadow first: models: {champion: […], shadow: […]}",
        )
    if old_champion not in champions:
        raise CadError(
            f"{old_champion} is no champion of this node: {', '.join(champions)}", file=config
        )
    # Loading a model also checks that it can be used.
    hashes = {name: load_bundle(find("models", name)).hash for name in (challenger, old_champion)}
    new_champions = []
    for name in champions:
        new_champions.append(challenger if name == old_champion else name)
    new_shadows = []
    for name in shadows:
        new_shadows.append(old_champion if name == challenger else name)
    text = _text_with_models(config, new_champions, new_shadows)
    node = NodeHome(settings.home)
    with node.held():
        trail = settings.home / FILE
        queue = Queue(settings.home / QUEUE)
        try:
            problems = verify(trail, queue.last_line()).problems
            if problems:
                raise DamagedTrail(
                    f"the audit trail is not what was written: {problems[0]}", file=trail
                )
            # The line is written before the file: a change without a line would not be noticed.
            line = {
                "event": "champion",
                "who": caller(),
                "from": {"name": old_champion, "sha256": hashes[old_champion]},
                "to": {"name": challenger, "sha256": hashes[challenger]},
                "settings_sha256": hashlib.sha256(text.encode()).hexdigest(),
            }
            queue.note_line(append(trail, line))
            write_atomic(config, text.encode())
        finally:
            queue.close()
    # The same command, with both models exchanged, undoes the change. Without the option, it would
    # replace the first champion.
    back = f"{old_champion} --config {config}"
    if in_place_of or champions[0] != old_champion or len(champions) > 1:
        back += f" --in-place-of {challenger}"
    return {"champion": new_champions, "shadow": new_shadows, "back": back}


@door("own", "the node's settings")
def _text_with_models(config: Path, champions: list[str], shadows: list[str]) -> str:
    """Return the text of the settings file with other models; raise an error if anything else of
    the settings would change.
    """
    text = read_text(config)
    # The entry `models` ends before the next line that begins with a word at its left margin.
    entry = re.compile(r"^models:.*\n(?:[ \t-].*\n|\n(?=[ \t-]))*", re.MULTILINE)
    if len(entry.findall(text)) != 1:
        raise CadError(
            "the entry `models` was not found as lines of its own",
            file=config,
            hint="write it as `models:` with its lists in the lines below",
        )
    models = {"champion": champions, "shadow": shadows}
    lines = ["models:\n"]
    for role, names in models.items():
        # A width that no list reaches keeps each list on one line.
        yaml_list = yaml.safe_dump(names, default_flow_style=True, width=10_000)
        lines.append(f"  {role}: {yaml_list}")
    # As a function, the new text is put in as it is: its backslashes are no escapes.
    new_text = entry.sub(lambda _: "".join(lines), text)
    before = yaml.safe_load(text)
    after = yaml.safe_load(new_text)
    if {**before, "models": models} != after:
        raise CadError("more than the entry `models` would change", file=config)
    return new_text
