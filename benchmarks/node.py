"""Send many studies through a node that is killed at random: ``python -m benchmarks.node --kills
20``.

Orthanc is the archive. Four associations send simulated studies (T2, ADC, the regions as a SEG, 27
instances each) while the node computes and returns results. At random moments the node is killed
(SIGKILL) and started again, or its disk is full for a while (``--full``). At every kill and at the
end, each acknowledged instance must be on the disk. At the end each study must have come back once,
and no object may have been sent twice. Queue, log, metrics page and audit trail may name nobody.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pydicom

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from live_node import (  # noqa: E402 - its folder joins the path above
    CALLER,
    Node,
    count_arrivals,
    each_of,
    introduce,
    renamed,
    results,
    sample_study,
    send,
)
from secret_scan import hits  # noqa: E402 - its folder joins the path above

from cad.run.audit.trail import verify  # noqa: E402

ASSOCIATIONS = 4
FULL_SECONDS, DISK = 6.0, "size=2g"
DECLARED = ("incoming", "studies")  # the only folders that may contain identities


class Run:
    """Hold one run: sent and acknowledged instances, and the faults that were found."""

    def __init__(self, folder: Path, studies: int, jobs: int, commitment: bool) -> None:
        self.folder, self.studies, self.commitment, self.done = folder, studies, commitment, 0
        self.base = sample_study(folder)
        archive, aet = os.environ["CAD_ARCHIVE"], os.environ["CAD_ARCHIVE_AET"]
        self.node = Node(
            folder / "node",
            archive,
            aet,
            studies={"jobs": jobs, "quiet_seconds": 2},
            receiver={"callers": [CALLER, aet]},
            archive={"commitment": commitment, "commitment_seconds": 20},
        )
        introduce(self.node)
        self.acknowledged: set[str] = set()
        self.seconds: list[float] = []
        self.sent, self.lost, self.filled = 0, 0, 0
        self._lock = threading.Lock()

    def send_study(self, number: int) -> None:
        """Send a study until all of it is acknowledged, whatever happens to the node."""
        left = renamed(self.base, number)
        while left:
            kept = set(send(self.node.port, left, seconds=self.seconds))
            with self._lock:
                self.acknowledged |= kept
            left = [one for one in left if str(one.SOPInstanceUID) not in kept]
            if left:
                time.sleep(0.5)
        with self._lock:
            self.sent += 1

    def progress(self) -> int:
        """Return the number of studies that were sent, and the number that came back."""
        self.done = max(self.done, len({line["study"] for line in self.node.lines("done")}))
        return self.sent + self.done

    def kill(self) -> None:
        """Kill the node, check the instances that it had acknowledged, and start it again."""
        with self._lock:
            promised = set(self.acknowledged)
        self.node.kill()
        self.lost += len(promised - on_disk(self.node.home))
        self.node.start()

    def fill(self) -> None:
        """Fill the node's disk to the last byte, and free it again after a while."""
        filler = self.node.home / "filler"
        try:
            with filler.open("wb", buffering=0) as stream:
                while stream.write(bytes(2**20)):
                    pass
        except OSError:
            self.filled += 1
        time.sleep(FULL_SECONDS)
        filler.unlink()


def on_disk(home: Path) -> set[str]:
    """Return the instances that are whole on the disk."""
    return {str(pydicom.dcmread(path).SOPInstanceUID) for path in home.glob("incoming/[!.]*/*.dcm")}


def measure(folder: Path, given: argparse.Namespace) -> dict[str, object]:
    """Run the benchmark and return every number; the numbers under ``wrong`` must be 0."""
    studies, kills = given.studies, given.kills
    run = Run(folder, studies, given.jobs, given.commitment)
    if given.full:
        run.node.home.mkdir(mode=0o700)
        mount = ["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(run.node.home)]
        subprocess.run(mount, check=True)
    chance = random.Random(given.seed)  # noqa: S311 - no secret
    run.node.start()
    start = time.monotonic()
    work = [lambda number=number: run.send_study(number) for number in range(studies)]
    sending = threading.Thread(target=each_of, args=(ASSOCIATIONS, work))
    sending.start()
    moments = sorted(chance.uniform(0, 2 * studies - 1) for _ in range(kills + given.full))
    full = set(chance.sample(range(len(moments)), given.full))
    for number, moment in enumerate(moments):
        while run.progress() < moment:
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 2))
        run.fill() if number in full else run.kill()
    sending.join()
    received = time.monotonic() - start
    run.node.wait(lambda: run.node.counts()["done"] == studies, 300 + 60 * studies)
    whole = time.monotonic() - start
    said = [run.node.get(page) for page in ("/", "/metrics", "/health")]
    code = run.node.stop()
    found = report(run, received, whole, kills, said, code)
    if given.full:
        subprocess.run(["umount", "-l", str(run.node.home)], check=True)
    return found


def report(
    run: Run, received: float, whole: float, kills: int, said: list[str], code: int
) -> dict[str, object]:
    """Compare the events with the promises."""
    names = [renamed(run.base[:1], number)[0] for number in range(run.studies)]
    back = [results(str(one.StudyInstanceUID)) for one in names]
    arrived = Path(os.environ["CAD_ARRIVED"]).read_text().split("\n")
    ours = [line.split(" ")[0] for line in arrived if " cad: " in line]
    secrets = ["Gravenstein", "Waldemar", "19470503"]
    for one in names:
        secrets += [str(one.PatientID), str(one.AccessionNumber), str(one.StudyInstanceUID)]
    places = [p for p in run.node.home.iterdir() if p.name not in DECLARED]
    files = [f for p in places for f in [p, *p.rglob("*")] if f.is_file()]
    kept = [*said, run.node.log.read_text(), *(p.read_bytes().decode("latin-1") for p in files)]
    order = list(dict.fromkeys(line["study"] for line in run.node.lines("done")))
    came = list(dict.fromkeys(line["study"] for line in run.node.lines("study opened")))
    later = [abs(came.index(key) - order.index(key)) for key in order if key in came]
    return {
        "studies": run.studies,
        "instances": len(run.acknowledged),
        "kills": kills,
        "full disks": run.filled,
        "seconds until all were received": round(received, 1),
        "seconds until all were returned": round(whole, 1),
        "studies a minute": round(60 * run.studies / whole, 1),
        "acknowledgement, median ms": round(1e3 * float(np.median(run.seconds)), 1),
        "acknowledgement, 99 % ms": round(1e3 * float(np.percentile(run.seconds, 99)), 1),
        "largest change of order": max(later, default=0),
        "wrong": {
            "acknowledged and not on the disk, at a kill": run.lost,
            "acknowledged and not on the disk, at the end": len(
                run.acknowledged - on_disk(run.node.home)
            ),
            "not returned": sum("SR" not in one or "SEG" not in one for one in back),
            "returned twice": sum(len(one) > 2 for one in back),
            "objects sent twice": len(ours) - len(set(ours)),
            "identities outside the declared places": len(hits([], secrets, kept)),
            "studies without a sound line in the audit trail": unaudited(run),
            "exit code": code,
        },
    }


def unaudited(run: Run) -> int:
    """Return how many studies have no line on a returned result; all, where the trail is broken."""
    trail = run.node.home / "audit.jsonl"
    if verify(trail).problems:
        return run.studies
    said = [json.loads(line)["entry"] for line in trail.read_text().splitlines()]
    last = "committed" if run.commitment else "stored"
    kept = {one["node_key"] for one in said if one.get("outcome") == last and one["returned"]}
    return run.studies - len(kept)


def main() -> None:
    """Run beside a separate Orthanc and print the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--full", type=int, default=0, help="so often the node's disk is full")
    parser.add_argument(
        "--jobs", type=int, default=2, help="studies that the node computes at once"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--commitment", action="store_true", help="done only when the archive has promised to keep"
    )
    given = parser.parse_args()
    if "CAD_ARCHIVE" not in os.environ:
        with tempfile.TemporaryDirectory() as name:
            arrived, script = count_arrivals(Path(name))
            own = {"CAD_ARRIVED": str(arrived), "CAD_ORTHANC_LUA": script}
            command = [
                ROOT / "tests/support/with_orthanc.sh",
                sys.executable,
                "-m",
                "benchmarks.node",
            ]
            done = subprocess.run(
                [*command, *sys.argv[1:]], env={**os.environ, **own}, cwd=ROOT, check=False
            )
        raise SystemExit(done.returncode)
    with tempfile.TemporaryDirectory() as name:
        found = measure(Path(name), given)
    print(json.dumps(found, indent=1))
    wrong = found["wrong"]
    raise SystemExit(any(wrong.values()) if isinstance(wrong, dict) else 1)


if __name__ == "__main__":
    main()
