"""Follow the contract of MHub, a platform that runs models in containers.

The input is a folder of DICOM files, and the output has one folder per study. A card (a JSON file)
describes the model to the platform.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from cad.base.errors import CadError
from cad.base.files import JsonObject, make_folder, write_atomic, write_json
from cad.base.reading import MAX_IMAGE, read_bytes
from cad.base.share import find
from cad.base.version import __version__
from cad.folders.cohort import read_cohort
from cad.folders.run_folder import RunFolder
from cad.hospital.contracts.grand_challenge import LIKELIHOOD
from cad.hospital.contracts.scored import require_empty, score, write_map
from cad.run.execution.options import HERE
from cad.run.model.bundle import load_bundle
from cad.run.workflows.delivery import deliver
from cad.run.workflows.imports import import_cohort

MAP = "cspca-detection-map.mha"
ID = "5f0b2c1e-7d0a-4c53-9a3e-2f6f7c9d1b84"
"""Identifier of the card, drawn at random once."""
NAME = "cad_psvm_prostate"


def run_mhub(
    source: Path, out: Path, rules: str, models: list[str], highest: bool = False
) -> tuple[int, list[CadError]]:
    """Score every study of a folder of DICOM, and write a folder of results for each.

    A study's folder is named by the study's id. It holds:

    - the likelihood of significant cancer
    - a map of the regions' probabilities on the T2 grid
    - the DICOM report (SR), and the outlines as a DICOM segmentation (SEG)
    - the patient's page

    Parameters
    ----------
    source : Path
        Folder of DICOM files.
    out : Path
        Folder of results.
    rules : str
        Rules of the import: a file, or a name in ``configs/import``.
    models : list of str
        Models in order of preference. A study is scored by the first whose images it has.
    highest : bool
        Whether a man to whom the model gives no probability gets the highest probability of his
        regions.

    Returns
    -------
    int
        Number of studies with a result.
    list of CadError
        Errors that tell why other studies have no result.
    """
    require_empty(out)
    with tempfile.TemporaryDirectory(prefix="cad-contract-") as scratch:
        cohort = Path(scratch) / "cohort"
        run = Path(scratch) / "run"
        imported = import_cohort(str(source), cohort, find("configs/import", rules, ".yaml"), HERE)
        problems = list(imported.failures)
        for study in imported.awaiting:
            problems.append(CadError("the study has no region", patient=study))
        if not imported.added:
            if not problems:
                problems.append(CadError("the folder holds no study that can be read", file=source))
            return 0, problems
        scored_studies, failures = score(cohort, run, models, highest)
        problems += failures
        # The DICOM objects are only written; nothing is sent.
        _, failures_of_delivery = deliver(run, cohort, send=None, aet="")
        problems += failures_of_delivery
        ref_by_study = {ref.study_id: ref for ref in read_cohort(cohort).studies()}
        for scored in scored_studies:
            ref = ref_by_study[scored.study]
            folder = out / scored.study
            make_folder(folder)
            t2_image = next(ref.folder.glob("anat/*_T2w.nii.gz"))
            write_map(folder / MAP, scored.map, t2_image)
            for path in sorted(RunFolder(run).objects.glob(f"{scored.study}_*.dcm")):
                name = path.name.removeprefix(f"{scored.study}_")
                write_atomic(folder / name, read_bytes(path, MAX_IMAGE))
            page = run / "report" / f"{ref.participant_id}.html"
            write_atomic(folder / "report.html", read_bytes(page, MAX_IMAGE))
            # The file with the likelihood is written last. A study's folder with this file is
            # therefore complete.
            write_json(folder / LIKELIHOOD, scored.likelihood)
        return len(scored_studies), problems


def model_card(model: str, address: str, date: str) -> JsonObject:
    """Return the card that MHub requires (``meta.schema.json``), from a model's metadata.

    Parameters
    ----------
    model : str
        Model folder, or the name of a released model.
    address : str
        Where the source code lies.
    date : str
        Date of the release, ``YYYY-MM-DD``.
    """
    bundle = load_bundle(find("models", model))
    training = bundle.metadata["training"]
    patients = int(training["patients"])
    dynamic = "dce" in bundle.metadata["modalities"]
    inputs = [
        _input(
            "Transverse T2-weighted MRI",
            "Transverse T2-weighted images of the prostate.",
            contrast=False,
        ),
        _input(
            "Apparent diffusion coefficient",
            "ADC map, or the diffusion images it is from.",
            contrast=False,
        ),
    ]
    if dynamic:
        inputs.append(
            _input(
                "Dynamic series",
                "T1-weighted images before, during and after contrast.",
                contrast=True,
            )
        )
    inputs.append(
        _input(
            "Regions",
            "SEG, RTSTRUCT or a label map: readers' or a detector's regions.",
            contrast=False,
        )
    )
    simulated = ""
    if training["simulated"]:
        simulated = " The training patients are simulated: its numbers are no numbers of people."
    return {
        "id": ID,
        "name": NAME,
        "title": "cad: probability of significant cancer in given regions of prostate MRI",
        "summary": {
            "description": "A probabilistic support vector machine gives every region that readers "
            "or a detector outlined a probability of clinically significant cancer, and every man "
            "a likelihood. It finds no regions itself." + simulated,
            "inputs": inputs,
            "outputs": [
                _output(
                    "Likelihood", "Likelihood", "Probability of significant cancer, of the man."
                ),
                _output("Map", "Likelihood map", "Every region's probability, on the T2 grid."),
            ],
            "model": {
                "architecture": "probabilistic support vector machine on region features",
                "training": "supervised",
                "cmpapproach": "ensemble",
            },
            "data": {
                "training": {"vol_samples": patients},
                "evaluation": {"vol_samples": patients},
                "public": False,
                "external": False,
            },
        },
        "details": {
            "name": bundle.name,
            "version": __version__,
            "devteam": "The prostate-cad developers",
            "type": "Prediction",
            "date": {"weights": date, "code": date, "pub": date},
            "cite": "See CITATION.cff of the source code.",
            "license": {"code": "BSD-3-Clause", "weights": "BSD-3-Clause"},
            "publications": [
                {
                    "title": "Kernel-Based Learning From Both Qualitative and Quantitative Labels: "
                    "Application to Prostate Cancer Diagnosis Based on Multiparametric MR Imaging",
                    "uri": "https://doi.org/10.1109/TIP.2013.2293759",
                }
            ],
            "github": address,
        },
        "info": {
            "use": _text_section(
                "Intended use",
                "Research only, not a medical device. A second number beside readers' regions of "
                "prostate MRI of men before biopsy.",
            ),
            "analyses": _text_section(
                "Evaluation",
                "Whole patients are left out; the model's own card has every measure with its "
                "interval (cad model show).",
            ),
            "evaluation": _text_section(
                "Evaluation data",
                f"The {patients} training patients, each left out in turn." + simulated,
            ),
            "training": _text_section("Training data", f"{patients} patients." + simulated),
            "limitations": _text_section(
                "Limitations",
                "It finds no lesions. A site recalibrates it on its own men before any number is "
                "believed." + simulated,
            ),
        },
    }


def _input(label: str, description: str, contrast: bool) -> JsonObject:
    """Return the card's entry for an input; ``contrast`` says if it needs a contrast agent."""
    return {
        "label": label,
        "description": description,
        "format": "DICOM",
        "modality": "MR",
        "bodypartexamined": "PROSTATE",
        "slicethickness": "about 3 mm",
        "non-contrast": not contrast,
        "contrast": contrast,
    }


def _output(label: str, kind: str, description: str) -> JsonObject:
    return {"type": "Prediction", "valueType": kind, "label": label, "description": description}


def _text_section(title: str, text: str) -> JsonObject:
    return {"title": title, "text": text, "references": [], "tables": []}
