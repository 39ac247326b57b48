"""Score one study with ``cad contract mhub``, and hand its files to MHub.

MHub's Python is older than what ``cad`` needs: the program is called as a command.
"""

import json
import shutil
import tempfile
from pathlib import Path

from mhubio.core import IO, Instance, InstanceData, Meta, Module, ValueOutput


@ValueOutput.Name("cspca_likelihood")
@ValueOutput.Meta(Meta(key="value"))
@ValueOutput.Label("Likelihood of significant prostate cancer")
@ValueOutput.Type(float)
@ValueOutput.Description("Probability that the man has a clinically significant prostate cancer.")
class CancerLikelihood(ValueOutput):
    """Hold the man's probability, from 0 to 1."""


@IO.Config("program", str, "/opt/cad/bin/cad", the="the command of prostate-cad")
@IO.Config("rules", str, "prostatex", the="rules of the import: a name, or a file")
class CadRunner(Module):
    """Give the regions of a study, and the man, a probability of significant cancer."""

    program: str
    rules: str

    @IO.Instance()
    @IO.Input("study", "dicom:mod=mr", the="folder of a study: its series and its regions")
    @IO.Output(
        "likelihood_file",
        "cspca-case-level-likelihood.json",
        "json:mod=likelihood",
        bundle="model",
        the="the man's probability, one number",
    )
    @IO.Output(
        "detection_map",
        "cspca-detection-map.mha",
        "mha:mod=hm",
        bundle="model",
        the="every region's probability on the T2 grid",
    )
    @IO.Output("outlines", "SEG.dcm", "dicomseg:mod=seg", bundle="model", the="the regions")
    @IO.Output("report", "SR.dcm", "dicom:mod=sr", bundle="model", the="the structured report")
    @IO.Output("page", "report.html", "txt:mod=page", bundle="model", the="the page")
    @IO.OutputData("likelihood", CancerLikelihood, the="the man's probability")
    def task(
        self,
        instance: Instance,
        study: InstanceData,
        likelihood_file: InstanceData,
        detection_map: InstanceData,
        outlines: InstanceData,
        report: InstanceData,
        page: InstanceData,
        likelihood: CancerLikelihood,
    ) -> None:
        """Run the program on a study and place its files where MHub expects them."""
        places = {
            "cspca-detection-map.mha": detection_map,
            "SEG.dcm": outlines,
            "SR.dcm": report,
            "report.html": page,
            "cspca-case-level-likelihood.json": likelihood_file,
        }
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / "out"
            words = ["contract", "mhub", "--input", study.abspath, "--output", str(out)]
            self.subprocess([self.program, *words, "--rules", self.rules], text=True)
            results = sorted(out.glob("*/cspca-case-level-likelihood.json"))
            if len(results) != 1:
                raise ValueError(f"{study.abspath}: {len(results)} studies, one is expected")
            for name, place in places.items():
                shutil.copyfile(results[0].parent / name, place.abspath)
            likelihood.value = float(json.loads(results[0].read_text()))
