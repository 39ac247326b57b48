"""Run experiments: tables and figures of the papers behind the learners, and data of real people.

The command ``cad experiment NAME -o OUT`` runs one experiment. ``EXPERIMENTS`` maps its name to
``module:function``. The function takes :class:`Options` and returns a
:class:`cad.evidence.experiments.results.Result`. The papers are cited as [N13], [N14], [A14] and
[W14]; docs/methods.md lists them.
"""

import difflib
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path

from cad.base.errors import CadError
from cad.base.files import typed, write_json
from cad.base.reading import read_json, reading
from cad.base.transactions import FolderKind, claimed

EXPERIMENTS = {
    "niaf2014-outlier": "cad.evidence.experiments.niaf2014:outlier",
    "niaf2014-table1": "cad.evidence.experiments.niaf2014:table1",
    "niaf2014-table2": "cad.evidence.experiments.niaf2014:table2",
    "niaf2014-noise": "cad.evidence.experiments.niaf2014:noise",
    "niaf2014-proportion": "cad.evidence.experiments.niaf2014:proportion",
    "niaf2014-discrete": "cad.evidence.experiments.niaf2014:discrete",
    "niaf2013-toy": "cad.evidence.experiments.niaf2014:toy",
    "niaf2014-clinical": "cad.evidence.experiments.niaf2014_clinical:clinical",
    "mesejo2016-readers": "cad.evidence.experiments.mesejo2016:compare_consensus_rules",
    "picai-readers": "cad.evidence.experiments.picai:compare_belief_and_histology",
    "fae-prostate": "cad.evidence.experiments.fae:men",
    "viper-readers": "cad.evidence.experiments.viper:compare_modalities",
    "wang2014-uci": "cad.evidence.experiments.wang2014:uci",
    "wang2014-roi": "cad.evidence.experiments.wang2014:roi",
    "amirou2014-synthetic": "cad.evidence.experiments.amirou2014:synthetic",
    "amirou2014-ecg": "cad.evidence.experiments.amirou2014:ecg",
    "amirou2014-covertype": "cad.evidence.experiments.amirou2014:covertype",
}
REAL = ("picai-readers", "fae-prostate", "viper-readers")
"""Experiments on data of real people; all other experiments reproduce results of papers."""
CONTROLLED = (
    "niaf2014-outlier",
    "niaf2014-table1",
    "niaf2014-table2",
    "niaf2014-noise",
    "niaf2014-proportion",
    "niaf2014-discrete",
    "niaf2013-toy",
    "niaf2014-clinical",
    "wang2014-uci",
    "wang2014-roi",
    "amirou2014-synthetic",
    "amirou2014-ecg",
    "amirou2014-covertype",
)
"""Experiments that can be run with other random draws and with shuffled labels."""

EXPERIMENT = FolderKind("result of an experiment", lambda folder: False)
DRAW_FILE = "draw.json"


@dataclass(frozen=True)
class Draw:
    """Say which random draw gave the results in a folder: its first seed, and whether shuffled.

    Parameters
    ----------
    first_seed : int
        Seed of the first draw.
    shuffled : bool
        Whether the labels were permuted among the rows, so that nothing could be learned.
    """

    first_seed: int = 0
    shuffled: bool = False


PUBLISHED_DRAW = Draw()
"""The draw whose results docs/reproduction.md shows: seeds from 0 on, labels as they are."""


@dataclass(frozen=True)
class Options:
    """Hold the options of the command line for an experiment.

    Parameters
    ----------
    out : Path
        Folder that results go to; long experiments also keep partial results there and resume them.
    data : Path or None
        Folder of the paper's data, or of a cohort, for the experiments that need data. Without it
        ``wang2014-uci`` fetches its tables from OpenML.
    repeats : int or None
        Number of seeds or repetitions; None for the experiment's own number.
    datasets : tuple of str
        Names of data sets to use; empty for all.
    jobs : int
        Number of processes.
    first_seed : int
        Seed of the first draw; the results in docs/reproduction.md begin at 0.
    shuffled : bool
        Whether the labels are first permuted among the rows, so that nothing can be learned. This
        is a negative control: a claim of a paper that still comes out is an effect of chance.
    """

    out: Path
    data: Path | None = None
    repeats: int | None = None
    datasets: tuple[str, ...] = ()
    jobs: int = 1
    first_seed: int = 0
    shuffled: bool = False

    @property
    def draw(self) -> Draw:
        """Return the draw that these options ask for.

        Returns
        -------
        Draw
            The first seed, and whether labels are shuffled.
        """
        return Draw(self.first_seed, self.shuffled)

    def seeds(self, published: int) -> range:
        """Return the seeds with which the experiment is run.

        Parameters
        ----------
        published : int
            Number of seeds that the experiment takes if the option ``repeats`` is not given.
        """
        count = self.repeats or published
        return range(self.first_seed, self.first_seed + count)

    def folder(self, content: str) -> Path:
        """Return the folder of the data that was given with ``--data``.

        Parameters
        ----------
        content : str
            The content of the folder in words, for the error message.

        Raises
        ------
        CadError
            When no folder was given.
        """
        if self.data is None:
            raise CadError("this experiment needs --data", hint=f"give the folder of {content}")
        return self.data


def run_experiment(name: str, options: Options) -> Path:
    """Run one experiment and write its tables and figures.

    Parameters
    ----------
    name : str
        A key of :data:`EXPERIMENTS`.
    options : Options
        The options; ``out`` is the folder to write, made when absent.

    Returns
    -------
    Path
        The page, ``<out>/<name>.md``.

    Raises
    ------
    CadError
        For an unknown name; the error names the nearest known name. For another first seed or
        shuffled labels, if the experiment has no such control. For a folder that another process
        uses, that holds results of another draw, or that holds anything but an experiment.
    """
    if name not in EXPERIMENTS:
        close_names = difflib.get_close_matches(name, EXPERIMENTS, n=1)
        hint = f"known: {', '.join(EXPERIMENTS)}"
        if close_names:
            hint = f"did you mean {close_names[0]!r}?"
        raise CadError(f"unknown experiment {name!r}", hint=hint)
    if (options.first_seed or options.shuffled) and name not in CONTROLLED:
        raise CadError(
            f"{name} has one table of real people: it is not drawn anew and its labels stay",
            hint=f"--first-seed and --shuffled are for {', '.join(CONTROLLED)}",
        )
    module, function = EXPERIMENTS[name].split(":")
    with claimed(options.out, EXPERIMENT):
        _require_draw(options)
        result = getattr(import_module(module), function)(options)
        if options.shuffled:
            result = replace(result, title=f"Control with shuffled labels. {result.title}")
        path: Path = result.write(options.out, name)
        return path


def draw_of(folder: Path) -> Draw:
    """Return the first seed of the results in a folder, and whether their labels were shuffled.

    Parameters
    ----------
    folder : Path
        Folder of results. Its file ``DRAW_FILE`` notes seed and shuffling. A folder without this
        note holds results of :data:`PUBLISHED_DRAW`.

    Raises
    ------
    CadError
        When the note cannot be read.
    """
    path = folder / DRAW_FILE
    if not path.is_file():
        return PUBLISHED_DRAW
    with reading(path, "no note of a draw"):
        return typed(Draw, read_json(path))


def _require_draw(options: Options) -> None:
    """Raise an error if the folder of results has results of another random draw.

    A draw is the first seed, and whether labels are shuffled. In a new folder the draw that the
    options ask for is noted. Without this check, results of a control (another seed, or shuffled
    labels) could be taken for results of :data:`PUBLISHED_DRAW`.
    """
    if not any(options.out.glob("*.md")) and not (options.out / DRAW_FILE).is_file():
        write_json(options.out / DRAW_FILE, asdict(options.draw))
        return
    draw_in_folder = draw_of(options.out)
    if draw_in_folder != options.draw:
        raise CadError(
            f"the folder holds results of another draw: {_in_words(draw_in_folder)}, not "
            f"{_in_words(options.draw)}",
            file=options.out,
            hint="name another folder with -o",
        )


def _in_words(draw: Draw) -> str:
    labels = "shuffled labels" if draw.shuffled else "labels as they are"
    return f"first seed {draw.first_seed}, {labels}"
