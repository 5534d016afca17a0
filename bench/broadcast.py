"""A database in memory at N places: our broadcast against MPI_Bcast, against all reading the file, against plain copies.

    python -m bench.broadcast              # the table of docs/cluster.md, for the MPIs that are there; two minutes
    python -m bench.broadcast pieces       # ours, by the size of a piece and how many of them a process has

Each process stands for a node: it ends with a copy of its own in /dev/shm. All are on one machine, so the bound is what
N copies cost there: ``cp`` from memory to memory, N at once, in the same minute. That is the least that can be done: every
byte is copied once for each, inside the kernel, into new pages. Nothing goes from process to process there, which is the
network's work on a cluster and the processors' here, and nothing is checked. *Cold* is a file that is not in the page
cache. Nodes do not share one, so those who all read for themselves read past it (``O_DIRECT``). *Slow* is the same on a
disk of 400 MB/s (control groups, version 1, as root), which stands for storage that all nodes share.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from statistics import median
from typing import Any

from bench.results import show_table

ROOT = Path(__file__).parents[1]
PLACES = (2, 4, 8)
BYTES = 256 << 20
REPEATS = 5
PIECE = 4 << 20
PIECES = [(256 << 10, 6), (512 << 10, 4), (1 << 20, 2), (1 << 20, 4), (4 << 20, 4), (16 << 20, 3)]
SLOW = 400_000_000
BLKIO = Path("/sys/fs/cgroup/blkio")


class Rank:
    """One of the processes, and the ways in which it can come to its copy."""

    def __init__(self, folder: Path) -> None:
        from millrace.cluster.transport.mpi_transport import MpiTransport
        from millrace.launch.mpi_environment import find_launched_process

        launched = find_launched_process(os.environ)
        assert launched
        self.world = MpiTransport(launched, folder)
        from mpi4py import MPI

        self.comm, self.rank, self.size = MPI.COMM_WORLD, self.world.rank, self.world.size
        self.memory, self.disk = str(folder / "source"), str(ROOT / "target" / "bench-source")
        self.copy = folder / f"copy-{self.rank}"

    def together(self) -> None:
        """Wait for all, without taking the processor from those who are not done."""
        request = self.comm.Ibarrier()
        while not request.Test():
            time.sleep(0.001)

    def seconds(self, way: Callable[[], None]) -> float:
        """Until all have their copy."""
        self.copy.unlink(missing_ok=True)
        self.together()
        begun = time.perf_counter()
        way()
        self.together()
        seconds = time.perf_counter() - begun
        assert self.copy.stat().st_size == BYTES
        return seconds

    def ours(self, source: str, piece: int, depth: int) -> None:
        from millrace.storage.broadcast import BroadcastRelay

        before, after = self.rank - 1 if self.rank else None, self.rank + 1 if self.rank + 1 < self.size else None
        target = os.open(self.copy, os.O_RDWR | os.O_CREAT)
        relay = BroadcastRelay(
            [BYTES], self.world.make_broadcast_link(before, after), [target], sources=() if self.rank else (source,), last=after is None,
            piece=piece, depth=depth, in_memory=True,
        )  # fmt: skip
        from millrace.cluster.node_staging import MAX_IDLE_STEPS, TRANSFER_NAP_SECONDS

        idle = 0
        while not relay.is_done:
            idle = 0 if relay.make_progress() else idle + 1
            if idle > MAX_IDLE_STEPS:
                relay.wait_for_progress(TRANSFER_NAP_SECONDS)
        relay.close()
        assert not relay.copy_error
        os.close(target)

    def bcast(self, source: str) -> None:
        """MPI_Bcast of one piece after another: read, send, write."""
        buffer = memoryview(mmap.mmap(-1, PIECE))
        file = os.open(source, os.O_RDONLY) if not self.rank else -1
        target = os.open(self.copy, os.O_RDWR | os.O_CREAT)
        for at in range(0, BYTES, PIECE):
            if not self.rank:
                os.preadv(file, [buffer], at)
            self.comm.Bcast(buffer, 0)
            os.pwrite(target, buffer, at)
        os.close(target)
        if not self.rank:
            os.close(file)

    def each(self, source: str, flags: int = 0) -> None:
        """Read it ourselves."""
        buffer = memoryview(mmap.mmap(-1, PIECE))
        file, target = os.open(source, os.O_RDONLY | flags), os.open(self.copy, os.O_RDWR | os.O_CREAT)
        for at in range(0, BYTES, PIECE):
            os.preadv(file, [buffer], at)
            os.pwrite(target, buffer, at)
        os.close(file)
        os.close(target)

    def bound(self) -> None:
        """As many copies, made by ``cp``."""
        if not self.rank:
            names = [str(self.copy.with_name(f"copy-{rank}")) for rank in range(self.size)]
            makers = [subprocess.Popen(["cp", self.memory, name]) for name in names]
            codes = [maker.wait() for maker in makers]
            assert not any(codes)

    def cold(self) -> None:
        """Let the file on disk be in nobody's page cache."""
        self.together()
        if not self.rank:
            file = os.open(self.disk, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def run_rank(what: str, folder: Path) -> None:
    """Be one of the processes: measure, and print what rank 0 has measured."""
    rank = Rank(folder)
    ways: dict[str, tuple[bool, Callable[[], None]]] = {"cp": (False, rank.bound)}
    if what == "pieces":
        for piece, depth in PIECES:
            ways[f"{piece >> 10} KiB x {depth}"] = (False, lambda p=piece, d=depth: rank.ours(rank.memory, p, d))  # type: ignore[misc]
    elif what == "warm":
        from millrace.storage.broadcast import MAX_PIECES_IN_FLIGHT
        from millrace.storage.broadcast import PIECE_BYTES as OURS

        ways["ours"] = (False, lambda: rank.ours(rank.memory, OURS, MAX_PIECES_IN_FLIGHT))
        ways["MPI_Bcast"] = (False, lambda: rank.bcast(rank.memory))
        ways["each reads"] = (False, lambda: rank.each(rank.memory))
    else:
        from millrace.storage.broadcast import MAX_PIECES_IN_FLIGHT
        from millrace.storage.broadcast import PIECE_BYTES as OURS

        ways["ours"] = (True, lambda: rank.ours(rank.disk, OURS, MAX_PIECES_IN_FLIGHT))
        ways["MPI_Bcast"] = (True, lambda: rank.bcast(rank.disk))
        ways["each reads"] = (True, lambda: rank.each(rank.disk, os.O_DIRECT))
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPEATS if what != "slow" else 2):
        for name, (cold, way) in ways.items():  # side by side, as the machine's mood changes
            if cold:
                rank.cold()
            found[name].append(rank.seconds(way))
    if not rank.rank:
        print(json.dumps({name: median(times) for name, times in found.items()}), flush=True)
    rank.world.finalize_or_abort(0)


@contextmanager
def slowed(n_bytes: int) -> Iterator[bool]:
    """Let all disk reads of what is started in here share so many bytes a second; False: not possible here."""
    group = BLKIO / f"millrace-bench-{os.getpid()}"
    device = os.stat(ROOT).st_dev
    try:
        group.mkdir()
        number = f"{os.major(device)}:{os.minor(device)}"
        (group / "blkio.throttle.read_bps_device").write_text(f"{number} {n_bytes}")
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        with suppress(OSError):
            group.rmdir()
        yield False
        return
    try:
        yield True
    finally:
        (BLKIO / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def measure(mpi: Any, n: int, what: str) -> dict[str, float]:
    """Seconds of each way, with ``n`` processes."""
    folder = Path(tempfile.mkdtemp(prefix="mr-bench-", dir="/dev/shm"))
    try:
        with open(folder / "source", "wb") as source:
            source.write(os.urandom(1 << 20) * (BYTES >> 20))
        if what in ("cold", "slow"):
            shutil.copy(folder / "source", ROOT / "target" / "bench-source")
            os.sync()
        python = str(Path(mpi.millrace).with_name("python"))
        said = subprocess.run(
            [*mpi.mpirun, "-n", str(n), python, "-m", "bench.broadcast", "--rank", what, str(folder)], cwd=ROOT,
            env={**os.environ, **mpi.environ}, stdout=subprocess.PIPE, check=True,
        ).stdout  # fmt: skip
        return dict(json.loads(said))
    finally:
        shutil.rmtree(folder)
        (ROOT / "target" / "bench-source").unlink(missing_ok=True)


def main() -> None:
    if sys.argv[1:2] == ["--rank"]:
        run_rank(sys.argv[2], Path(sys.argv[3]))
        return
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from mpi_jobs import find

    wanted = sys.argv[1:] or ["warm", "cold", "slow"]
    lines: list[list[str]] = []
    for what in wanted:
        with slowed(SLOW) if what == "slow" else nullcontext():
            for name in ("openmpi", "mpich"):
                for n in PLACES if what != "pieces" else (4,):
                    found = measure(find(name), n, what)
                    bound = found["cp"]
                    for way, seconds in found.items():
                        rate = f"{BYTES / seconds / 1e6:.0f}"
                        lines.append([f"{what}: {way}", name, str(n), f"{seconds:.2f}", rate, f"{bound / seconds:.0%}"])
                        print(*lines[-1], sep="\t", file=sys.stderr, flush=True)
    show_table("broadcast", ("", "MPI", "places", "s", "MB/s each", "of the bound"), lines)


if __name__ == "__main__":
    main()
