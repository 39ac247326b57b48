"""Draw a given number of damaged inputs through every door for bytes from outside.

``python -m benchmarks.doors --inputs 100000 [--processes 2] [--first 0]`` shares the inputs between
the cases of ``tests/support/door_cases.py``. Each case has a process of its own, so that a signal
is counted and does not end the program. The module prints a line for each case. It exits with 1
where a fault was found: a signal, a traceback that is not the project's, more than ten seconds, a
number that is no probability, or a byte from outside the source. An input is made again from its
case and number. ``--first`` is the number of the first input of every case, so that a large count
can be reached in parts.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from door_cases import CASES, in_this_process

MEMORY = 4 * 10**9


def draw(kind: str, first: int, last: int, heard: int) -> None:
    """Draw one case's inputs in this process; write a line for each begun input and finding."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.RLIM_INFINITY))
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # libraries write about their input, so that their output is discarded
        os.dup2(nothing, stream)
    with tempfile.TemporaryDirectory() as folder, in_this_process():
        boundary = CASES[kind].make(Path(folder))
        boundary.read()
        for number in range(first, last):
            os.write(heard, f"{number}\n".encode())
            text = boundary.case(random.Random(f"door {kind} {number}"))  # noqa: S311 - no secret
            if text:
                first_line = text.splitlines()[0]
                os.write(heard, f"FOUND {first_line}\n".encode())


def tried(kind: str, begin: int, inputs: int) -> tuple[str, int, Counter[str], float]:
    """Run one case to its end, beyond every signal; return its findings."""
    start, found = time.monotonic(), Counter[str]()
    first, end = begin, begin + inputs
    while first < end:
        heard, told = os.pipe()
        pid = os.fork()
        if not pid:
            code = 1
            try:
                os.close(heard)
                draw(kind, first, end, told)
                code = 0
            except BaseException as error:
                os.write(told, f"FOUND outside of the reader: {error!r:.200}\n".encode())
            finally:
                os._exit(code)
        os.close(told)
        reached = first - 1
        with os.fdopen(heard, errors="replace") as lines:
            for line in lines:
                if line.startswith("FOUND "):
                    found[f"{line[6:].strip()} (input {reached})"] += 1
                else:
                    reached = int(line)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code < 0:
            found[f"{signal.Signals(-code).name} (input {reached})"] += 1
        elif reached < end - 1:
            found[f"its process ended by exit code {code} (input {reached})"] += 1
        if reached < first:  # no input was begun at all
            found["the case itself does not work"] += 1
            break
        first = reached + 1
    return kind, inputs, found, time.monotonic() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=2_000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of each case's first input")
    parser.add_argument("--case", action="append", choices=sorted(CASES))
    arguments = parser.parse_args()
    kinds = arguments.case or list(CASES)
    each = -(-arguments.inputs // len(kinds))
    begin = arguments.first
    total = Counter[str]()
    with ThreadPoolExecutor(arguments.processes) as pool:
        for kind, inputs, found, seconds in pool.map(lambda kind: tried(kind, begin, each), kinds):
            print(
                f"{kind}: {inputs} inputs, {seconds:.0f} s, {sum(found.values())} found", flush=True
            )
            for text, count in found.most_common(20):
                print(f"  {count} x {text}")
            total += found
    print(f"{each * len(kinds)} inputs through {len(kinds)} cases: {sum(total.values())} found")
    return int(bool(total))


if __name__ == "__main__":
    sys.exit(main())
