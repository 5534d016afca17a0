"""``python -m bench.workflow``: the example of docs/workflows.md as one job, beside the same steps one after another, each
through Millrace, and with ``--snakemake PROGRAM`` beside Snakemake; ``--kills N``: kill the job at random moments, resume it, and compare the bytes."""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("MILLRACE_TEST_DATA") or REPO / ".tools" / "data")

#: What is of the day, the clock or the number of threads in the report of hmmsearch.
VOLATILE = re.compile(
    rb"^# (?:CPU time|Mc/sec|Date|Current dir|Option settings):?.*$|^# number of worker threads:.*\n", re.MULTILINE
)

STEPS = """set -e
millrace run -q -- blastp -query queries.faa -db targets -outfmt 6 -evalue 1e-5 -out hits.tsv
python3 -c "
import families, os
for name, text in families.of_each_query(open('hits.tsv', 'rb'), 'targets.faa', 1e-10):
    open('families/' + name, 'w').write(text)"
millrace run -q -- muscle3 -quiet -in families/ -out 'aligned/{stem}.afa'
millrace run -q --verify 0 --input aligned/ --output 'profiles/{stem}.hmm' -- hmmbuild -o /dev/null 'profiles/{stem}.hmm' aligned/
cat profiles/* | grep -v '^DATE' > profiles.hmm
millrace run -q -- hmmsearch --noali --tblout scan.tbl -o scan.txt profiles.hmm targets.faa
"""


def block(language: str) -> str:
    """The first block of a language in docs/workflows.md."""
    return (REPO / "docs" / "workflows.md").read_text().partition(f"```{language}\n")[2].partition("```")[0]


def prepare(folder: Path, n_queries: int) -> None:
    """Data and files of the example in a new folder."""
    folder.mkdir()
    for name, source, step, most in (
        ("targets.faa", "proteins_db.faa", 3, None),
        ("queries.faa", "proteins_queries.faa", 1, n_queries),
    ):
        records = (DATA / source).read_bytes().rstrip(b"\n").split(b"\n>")[::step][:most]
        (folder / name).write_bytes(b"\n>".join(records) + b"\n")
    line = ["makeblastdb", "-in", "targets.faa", "-dbtype", "prot", "-out", "targets"]
    subprocess.run(line, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (folder / "families.py").write_text(block("python"))
    (folder / "job.toml").write_text(block("toml"))
    (folder / "steps.sh").write_text(STEPS)
    (folder / "serial.sh").write_text(block("sh"))


def results(folder: Path) -> dict[str, bytes]:
    """What is compared."""
    paths = [folder / name for name in ("hits.tsv", "profiles.hmm", "scan.tbl", "scan.txt")]
    paths += [path for name in ("families", "aligned") for path in sorted((folder / name).glob("[!.]*"))]
    return {str(path.relative_to(folder)): VOLATILE.sub(b"", path.read_bytes()) for path in paths}


def as_job(folder: Path) -> None:
    for name in ("aligned", "profiles"):
        (folder / name).mkdir()
    subprocess.run(["millrace", "run", "-q", "job.toml"], cwd=folder, check=True)


def as_steps(folder: Path) -> None:
    for name in ("families", "aligned", "profiles"):
        (folder / name).mkdir()
    subprocess.run(["sh", "steps.sh"], cwd=folder, check=True)


def by_snakemake(program: str) -> Callable[[Path], None]:
    """The same by Snakemake, with as many jobs side by side as there are cores."""
    line = [program, "--cores", str(len(os.sched_getaffinity(0))), "--quiet", "all"]

    def way(folder: Path) -> None:
        shutil.copy(REPO / "bench" / "Snakefile", folder)
        said = subprocess.run(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if said.returncode:
            raise RuntimeError(said.stdout.decode(errors="replace"))

    return way


def compare(root: Path, n_queries: int, repeats: int, snakemake: str) -> int:
    """Time the ways side by side, interleaved; returns how many gave other bytes."""
    ways: dict[str, Callable[[Path], None]] = {"one job in phases": as_job, "step by step": as_steps}
    if snakemake:
        ways["Snakemake"] = by_snakemake(snakemake)
    serial = root / "serial"
    prepare(serial, n_queries)
    begun = time.monotonic()
    subprocess.run(["bash", "-e", "serial.sh"], cwd=serial, check=True)
    print(f"{'serial, in a shell':20} {time.monotonic() - begun:7.1f} s", flush=True)
    expected, wrong, seconds = results(serial), 0, {name: list[float]() for name in ways}
    for repeat in range(repeats):
        for name, way in ways.items():
            folder = root / f"{name}-{repeat}"
            prepare(folder, n_queries)
            begun = time.monotonic()
            way(folder)
            seconds[name].append(time.monotonic() - begun)
            written = results(folder)
            other = sorted(each for each in expected.keys() | written.keys() if expected.get(each) != written.get(each))
            if other:
                wrong += 1
                print(f"{name}: other bytes in {', '.join(other[:5])}", flush=True)
            shutil.rmtree(folder)
    for name, found in seconds.items():
        print(f"{name:20} {min(found):7.1f} s at best, {max(found):.1f} s at worst, of {repeats}")
    return wrong


def kill(root: Path, n_queries: int, kills: int, seed: int) -> int:
    """Kill the job at random moments and resume it until it is done, again and again; returns how often the end was wrong."""
    chance, done, wrong, whole = random.Random(seed), 0, 0, 0
    serial = root / "serial"
    prepare(serial, n_queries)
    begun = time.monotonic()
    subprocess.run(["bash", "-e", "serial.sh"], cwd=serial, check=True)
    expected, length = results(serial), time.monotonic() - begun
    while done < kills:
        folder = root / f"killed-{whole}"
        prepare(folder, n_queries)
        for name in ("aligned", "profiles"):
            (folder / name).mkdir()
        code = None
        while code is None:
            with subprocess.Popen(
                ["millrace", "run", "job.toml"], cwd=folder, stderr=subprocess.PIPE, process_group=0
            ) as process:
                try:
                    _, said = process.communicate(timeout=chance.uniform(0.0, length) if done < kills else None)
                    code = process.returncode
                except subprocess.TimeoutExpired:
                    number = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
                    process.send_signal(number)
                    done += 1
                    _, said = process.communicate()
                    if process.returncode == 0 or process.returncode not in (-number, 128 + number):
                        code = process.returncode
        whole += 1
        if code or results(folder) != expected:
            wrong += 1
            print(f"kill {done}: exit code {code}\n{said.decode(errors='replace')}", flush=True)
        else:
            shutil.rmtree(folder)
    print(f"{done} kills, {whole} jobs brought to their end, {wrong} wrong")
    return wrong


def main() -> int:
    """Measure, or kill; the exit code says whether anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=60, help="records of the first phase (60)")
    parser.add_argument("--repeats", type=int, default=2, help="interleaved repeats (2)")
    parser.add_argument("--snakemake", default="", metavar="PROGRAM", help="run it so, too, side by side")
    parser.add_argument("--kills", type=int, default=0, help="kill so often instead")
    parser.add_argument("--seed", type=int, default=1, help="decides the moments (1)")
    arguments = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        if arguments.kills:
            return int(bool(kill(Path(folder), arguments.queries, arguments.kills, arguments.seed)))
        return int(bool(compare(Path(folder), arguments.queries, arguments.repeats, arguments.snakemake)))


if __name__ == "__main__":
    sys.exit(main())
