"""``python -m bench.kept_profiles``: hmmscan with many profiles through Millrace, with the profiles kept open from query to
query and without, in turn, on the local disk and through a slow link; the bytes of all are compared with the serial run's."""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import shlex
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import inputs, measure
from bench.results import show_table

#: The serial tool's own command.
TOOL = "hmmscan -o /dev/null --tblout out.tbl --domtblout out.dom p.hmm q.faa"
#: ``millrace`` as it was before profiles were kept.
WITHOUT = "import runpy, millrace.adapters.hmmer.adapter as adapter; adapter.MIN_REREAD_BYTES = 1 << 62; runpy.run_module('millrace', run_name='__main__')"  # fmt: skip
VOLATILE = re.compile(rb"(?m)^# (?:Date|Current dir):.*\n")
#: Nodes of a profile that are exchanged with others in each copy, as a share.
CHANGED = 0.08


def change_profile(chosen: random.Random, profile: bytes, name: bytes) -> bytes:
    """Return a relative of a profile: some of its match emissions are exchanged."""
    lines = profile.split(b"\n")
    nodes = [at for at, line in enumerate(lines) if re.match(rb" +\d+ ", line) and len(line.split()) > 21]
    for _ in range(round(len(nodes) * CHANGED / 2)):
        one, other = chosen.sample(nodes, 2)
        first, second = lines[one].split(), lines[other].split()
        lines[one] = b"  ".join([first[0], *second[1:21], *first[21:]])
        lines[other] = b"  ".join([second[0], *first[1:21], *second[21:]])
    return re.sub(rb"(?m)^NAME .*$", b"NAME  " + name, b"\n".join(lines), count=1)


def prepare(folder: Path, n_profiles: int, n_proteins: int) -> None:
    """Write and press the profiles, and write the proteins."""
    chosen = random.Random(53)
    profiles = re.findall(rb"^HMMER(?:.*\n)+?//\n", (inputs.DATA / "profiles.hmm").read_bytes(), re.MULTILINE)
    with (folder / "p.hmm").open("wb") as file:
        for k in range(n_profiles):
            file.write(change_profile(chosen, profiles[k % len(profiles)], b"profile%d" % k))
    subprocess.run(["hmmpress", "p.hmm"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    proteins = (inputs.DATA / "proteins_queries.faa").read_bytes().split(b">")[1 : n_proteins + 1]
    (folder / "q.faa").write_bytes(b"".join(b">" + each for each in proteins))


@contextlib.contextmanager
def mount_slowly(folder: Path, rate: float) -> Iterator[tuple[Path, Path]]:
    """Show ``folder`` through a link of ``rate`` bytes a second; yield where, and the file that counts what is read."""
    fuse = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True)
    if fuse.returncode:
        raise SystemExit(f"bench.kept_profiles: libfuse 3 and its headers are needed: {fuse.stderr.strip()}")
    with tempfile.TemporaryDirectory() as place:
        link, mounted, counts = Path(place, "storage_link"), Path(place, "mounted"), Path(place, "counts")
        source = Path(__file__).with_name("storage_link.c")
        subprocess.run(["cc", "-O2", "-o", link, source, *fuse.stdout.split()], check=True)
        mounted.mkdir()
        environ = {"STORAGE_LINK_FORGETS": "1"}
        subprocess.run([link, folder, str(rate), counts, "-o", "auto_unmount", mounted], check=True, env=environ)
        try:
            yield mounted, counts
        finally:
            subprocess.run(["fusermount3", "-u", mounted], check=True)


def take_written(folder: Path) -> bytes:
    """Return what the tool wrote, without what differs from time to time; the files are removed."""
    found = b""
    for path in sorted(folder.glob("out.???")):
        found += VOLATILE.sub(b"", path.read_bytes())
        path.unlink()
    return found


def measure_ways(
    folder: Path, options: argparse.Namespace, place: str, expected: bytes, counts: Path | None = None
) -> list[str]:
    """Measure both ways in ``folder``, in turn; return a row of the table."""
    arguments = (
        f"run -q --progress none --slots {options.slots} --batch {options.batch} --fragments 1 --stage off -- {TOOL}"
    )
    ways = {"-m millrace": measure.Series(), f"-c {shlex.quote(WITHOUT)}": measure.Series()}
    n_read = dict.fromkeys(ways, 0)
    for _ in range(options.repeats):
        for way, series in ways.items():
            before = read_count(counts)
            command = f"exec {sys.executable} {way} {arguments}"
            series.runs.append(measure.run(command, folder, {"HMMER_NCPU": "0"}))
            n_read[way] = read_count(counts) - before
            if take_written(folder) != expected:
                raise SystemExit(f"bench.kept_profiles: {place}: bytes differ from the serial run's")
    kept, without = ways.values()
    read = [f"{n / 1e9:.2f}" if counts else "" for n in n_read.values()]
    return [
        place, f"{without.cpu:.2f}", f"{kept.cpu:.2f}", f"{kept.cpu / without.cpu:.2f}",
        f"{without.median:.2f}", f"{kept.median:.2f}", f"{kept.median / without.median:.2f}", read[1], read[0],
    ]  # fmt: skip


def read_count(counts: Path | None) -> int:
    """Return the bytes that came through the link so far."""
    return int(struct.unpack("QQ", counts.read_bytes())[0]) if counts else 0


def main() -> int:
    """Measure; prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profiles", type=int, default=3200, help="profiles of the database (3200)")
    parser.add_argument("--proteins", type=int, default=100, help="queries (100)")
    parser.add_argument("--slots", type=int, default=2, help="tools side by side (2)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each, in turn (3)")
    parser.add_argument("--batch", default="auto", help="queries of a task (auto)")
    parser.add_argument("--rate", type=float, default=100, help="MB a second of the slow link (100); 0: none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder, options.profiles, options.proteins)
        subprocess.run(f"HMMER_NCPU=0 {TOOL}", shell=True, cwd=folder, check=True)
        expected = take_written(folder)
        lines = [measure_ways(folder, options, "local disk", expected)]
        if options.rate:
            with mount_slowly(folder, options.rate * 1e6) as (mounted, counts):
                lines.append(measure_ways(mounted, options, f"link of {options.rate:g} MB/s", expected, counts))
    head = ("", "CPU s", "kept", "ratio", "wall s", "kept", "ratio", "GB read", "kept")
    show_table("kept_profiles", head, lines)
    print("bytes of all: the serial tool's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
