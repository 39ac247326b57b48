"""Run a workflow of an MHub model folder with MHub's own modules, without its container.

``python run_mhub.py MODEL_FOLDER DATA PROGRAM RULES``; DATA has ``input_data`` and gets
``output_data``. ``mhubio.run`` does the same below ``/app``.
"""

import importlib
import sys
from pathlib import Path

import yaml
from mhubio.core import Config

CORE = {
    "FileStructureImporter": "mhubio.modules.importer.FileStructureImporter",
    "ReportExporter": "mhubio.modules.exporter.ReportExporter",
    "DataOrganizer": "mhubio.modules.organizer.DataOrganizer",
}


def main() -> None:
    """Run every module of the default workflow, in order."""
    model, data, program, rules = sys.argv[1:]
    sys.argv = sys.argv[:1]  # the modules read it, too
    sys.path.insert(0, str(Path(model) / "utils"))
    content = yaml.safe_load((Path(model) / "config" / "default.yml").read_text())
    content["general"]["data_base_dir"] = data
    content["modules"]["CadRunner"] = {"program": program, "rules": rules}
    file = Path(data) / "workflow.yml"
    file.write_text(yaml.safe_dump(content))
    config = Config(config_file=str(file))
    for name in content["execute"]:
        module = importlib.import_module(CORE.get(name, name))
        getattr(module, name)(config=config).execute()


if __name__ == "__main__":
    main()
