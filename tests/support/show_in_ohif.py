"""Show a run's SEG and SR in OHIF over Orthanc, as pictures and as places on them.

    tests/support/with_orthanc.sh python tests/support/show_in_ohif.py BUILT COHORT RUN OUT

BUILT is the folder of OHIF's built files, COHORT the import of the DICOM sample study, RUN a run on
it with ``dicom/``. OUT gets ``seg.png``, ``sr.png`` and ``shown.json``: where on ``seg.png`` voxels
inside and outside the regions lie, and the lines that stand beside the outlines on ``sr.png``.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import ohif
from playwright.sync_api import sync_playwright
from scipy.ndimage import binary_dilation, binary_erosion

from cad.base.share import shared
from cad.folders.cohort import read_cohort
from cad.mri.imaging.nifti import read_sidecar, read_volume
from cad.mri.imaging.study_files import image_path

SEG, SR = 9101, 9102  # series numbers of our objects
PATIENCE = 1_200_000  # ms: a busy machine without a graphics card draws slowly
GRAPHICS = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
TO_SCREEN = """points => {
  const { viewport } = window.cornerstone.getEnabledElements()[0];
  const box = viewport.canvas.getBoundingClientRect();
  return points.map(p => viewport.worldToCanvas(p)).map(([x, y]) => [x + box.left, y + box.top]);
}"""


def main(built: Path, cohort: Path, run: Path, out: Path) -> None:
    """Store the study and its results, open the viewer, and write what it shows."""
    source = shared("sample_data", "dicom", "Sample0001")
    _store(
        [
            *(p for p in source.rglob("*.dcm") if "02-t2" in p.parent.name),
            *(run / "dicom").glob("*.dcm"),
        ]
    )
    (study,) = read_cohort(cohort).studies()
    t2w = image_path(study.folder, study.study_id, "t2w")
    out.mkdir(parents=True, exist_ok=True)
    with ohif.served(built, os.environ["CAD_ORTHANC"]) as url, sync_playwright() as driver:
        chromium = os.environ.get("CAD_CHROMIUM", "/usr/bin/chromium")
        browser = driver.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", *GRAPHICS], timeout=PATIENCE
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(PATIENCE)
        page.add_init_script("localStorage.setItem('shownTours', '[\"basicViewerTour\"]')")
        page.goto(f"{url}/viewer?StudyInstanceUIDs={read_sidecar(t2w)['StudyInstanceUID']}")
        shown = _segments(page, out, t2w, image_path(study.folder, study.study_id, "rois"))
        page.locator(f'[data-series="{SR}"]').dblclick()
        page.wait_for_function("() => document.body.innerText.includes('Probability of cancer')")
        shown["text"] = page.inner_text("body")
        page.screenshot(path=out / "sr.png")
        browser.close()
    (out / "shown.json").write_text(json.dumps(shown))


def _segments(page: Any, out: Path, t2w: Path, rois: Path) -> dict[str, Any]:
    """Open the SEG; the places of voxels on the slice that the viewer has jumped to."""
    page.locator(f'[data-series="{SEG}"]').dblclick()
    page.wait_for_function("() => window.services.segmentationService.getSegmentations().length")
    page.wait_for_function(
        "() => window.cornerstone.getEnabledElements()[0]?.viewport.getCurrentImageId?.()"
    )
    page.wait_for_timeout(5000)  # nothing says that the overlay has been drawn
    page.screenshot(path=out / "seg.png")
    image = page.evaluate(
        "() => window.cornerstone.getEnabledElements()[0].viewport.getCurrentImageId()"
    )
    z = read_sidecar(t2w)["SOPInstanceUIDs"].index(image.split("/instances/")[1].split("/")[0])
    grid = read_volume(rois)
    drawn = grid.array[z] > 0
    places = {
        "inside": binary_erosion(drawn),
        "outside": binary_dilation(drawn, iterations=5) & ~binary_dilation(drawn, iterations=2),
    }
    return {
        name: page.evaluate(TO_SCREEN, _in_the_patient(grid, z, voxels))
        for name, voxels in places.items()
    }


def _in_the_patient(grid: Any, z: int, voxels: np.ndarray) -> list[list[float]]:
    index = np.array([(x, y, z) for y, x in np.argwhere(voxels)], float)
    found: list[list[float]] = grid.index_to_patient(index).tolist()
    return found


def _store(paths: list[Path]) -> None:
    for path in paths:
        request = urllib.request.Request(  # noqa: S310  # an archive of our own
            f"{os.environ['CAD_ORTHANC']}/instances", path.read_bytes(), method="POST"
        )
        urllib.request.urlopen(request, timeout=60).read()  # noqa: S310


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:5]))
