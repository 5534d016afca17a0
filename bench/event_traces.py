"""How small event traces get: periodic ones with jitter, one without a period, and a real one where there is a tracer; each unpacked and compared."""

from __future__ import annotations

import argparse
import filecmp
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.results import show_table

MILLRACE = str(Path(sys.executable).parent / "millrace")

_REGIONS = ("MPI_Irecv", "MPI_Isend", "stencil", "MPI_Waitall", "reduce", "MPI_Allreduce", "write")


@dataclass(frozen=True)
class Trace:
    """What a solver does in iterations, as a tracer logs it: entering and leaving regions of code."""

    name: str
    ranks: int
    iterations: int
    #: Standard deviation of each duration, as a share of it.
    jitter: float
    #: Whether each iteration does the same.
    periodic: bool = True
    seed: int = 1


TRACES = (
    Trace("1 rank, jitter 2 %", 1, 2000, 0.02),
    Trace("8 ranks, jitter 2 %", 8, 250, 0.02),
    Trace("8 ranks, jitter 0.2 %", 8, 250, 0.002),
    Trace("8 ranks, jitter 10 %", 8, 250, 0.1),
    Trace("8 ranks, no period", 8, 250, 0.02, periodic=False),
    Trace("8 ranks, jitter 2 %, 8 times as long", 8, 2000, 0.02),
)


def text(trace: Trace, regions: int = 20) -> bytes:
    """The trace as lines of ``time,rank,event,region,peer,bytes``, in the order of time, in microseconds.

    Args:
        regions: So many are entered and left in an iteration.
    """
    chance = random.Random(trace.seed)
    plan = [_step(chance) for _ in range(regions)]
    events = []
    for rank in range(trace.ranks):
        now = 0
        for _ in range(trace.iterations):
            for step in plan:
                region, peer, size, usual = step if trace.periodic else _step(chance)
                took = max(1, round(usual * chance.gauss(1, trace.jitter)))
                events.append((now, rank, "ENTER", region, (rank + peer) % 16, size))
                events.append((now + took, rank, "LEAVE", region, (rank + peer) % 16, size))
                now += took + max(1, round(chance.gauss(5, 1)))
    rows = (f"{t // 10**6}.{t % 10**6:06d},{r},{e},{g},{p},{b}\n" for t, r, e, g, p, b in sorted(events))
    return ("time,rank,event,region,peer,bytes\n" + "".join(rows)).encode()


def _step(chance: random.Random) -> tuple[str, int, int, int]:
    return (
        chance.choice(_REGIONS),
        chance.randrange(16),
        chance.choice((8, 64, 1024, 12288, 65536)),
        chance.randrange(20, 4000),
    )


def main(arguments: list[str]) -> int:
    """Measure, and print the table; 1 if a trace does not come out as it was."""
    argparse.ArgumentParser(prog="python -m bench pack-traces", description=__doc__).parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder, rows = Path(name), []
        for trace in TRACES:
            source = folder / "trace.csv"
            source.write_bytes(events := text(trace))
            n_events = events.count(b"\n") - 1
            rows.append(measure(trace.name, f"{n_events:,}", [source]))
        if all(map(shutil.which, ("eztrace", "mpicc", "mpirun"))):
            rows.append(measure("OTF2, Jacobi on 2 ranks by EZTrace", "", jacobi(folder)))
    head = ("", "events", "original", "zstd -19 --long", "packed", "zstd / packed", "MB/s of a core", "how", "same")
    show_table("pack-traces", head, rows)
    return int(any(row[-1] != "yes" for row in rows))


def jacobi(folder: Path, ranks: int = 2, iterations: int = 20000) -> list[Path]:
    """The files of a real trace, with the jitter of the day."""
    source = Path(__file__).resolve().parent / "jacobi.c"
    subprocess.run(["mpicc", "-O2", source, "-o", "jacobi", "-lm"], cwd=folder, check=True)
    traced = ["eztrace", "-t", "openmpi", "./jacobi", str(iterations)]
    subprocess.run(
        ["mpirun", "--oversubscribe", "-n", str(ranks), *traced], cwd=folder, check=True, stderr=subprocess.DEVNULL
    )
    return sorted(path for path in (folder / "jacobi_trace").rglob("*") if path.is_file())


def measure(name: str, events: str, sources: list[Path]) -> tuple[str, ...]:
    """One row."""
    folder = sources[0].parent
    pack, again = folder / "trace.mrp", [folder / f"again{number}" for number in range(len(sources))]
    words = [MILLRACE, "pack", *map(str, sources), "-o", str(pack)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=True).stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    named = [word for path in again for word in ("-o", str(path))]
    subprocess.run([MILLRACE, "unpack", str(pack), *named], stderr=subprocess.PIPE, check=True)
    command = ["zstd", "-q", "-19", "--long=27", "-c"]
    zstd = sum(len(subprocess.run([*command, path], stdout=subprocess.PIPE, check=True).stdout) for path in sources)
    packed, size = pack.stat().st_size, sum(path.stat().st_size for path in sources)
    how = "trace" if "periodic trace" in told else "zstd"
    same = all(filecmp.cmp(*pair, shallow=False) for pair in zip(sources, again, strict=True))
    for path in again:
        path.unlink()
    speed = f"{size / seconds / 1e6:.0f}"
    return (
        name,
        events,
        f"{size:,}",
        f"{zstd:,}",
        f"{packed:,}",
        f"{zstd / packed:.1f}",
        speed,
        how,
        "yes" if same else "NO",
    )
