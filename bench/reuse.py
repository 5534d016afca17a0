"""What a store saves: CPU and wall time of searches with and without one, beside the tool's own threads.

    python -m bench.reuse --grow 4 --part 100

The database is the proteins of the test data, and behind them sequences of the same letters in random order, up to
``--grow`` times its size. Before, 3 % of its entries were not there, in all parts of it. The last line is of some of the
queries, each four times under other names, without a store.
"""

from __future__ import annotations

import argparse
import random
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import inputs
from bench.results import show_table
from millrace.extensions.reuse.search_store import SearchStore
from millrace.extensions.reuse.store_run import STORE_NAME

#: Share of the entries that are new.
NEW = 0.03


class Searches:
    """A folder with two databases, before and after, and queries."""

    def __init__(self, folder: Path, part: int, grow: int, options: str) -> None:
        self.folder, self.options = folder, shlex.split(options)
        choose = random.Random(1)
        entries = inputs.records(inputs.DATA / "proteins_db.faa")
        for number in range(len(entries) * (grow - 1)):
            letters = list("".join(entries[number % len(entries)].decode().split("\n")[1:]))
            choose.shuffle(letters)
            entries.append(f">chance{number}\n{''.join(letters)}\n".encode())
        self.make_database("after", entries)
        self.make_database("before", [entry for entry in entries if choose.random() > NEW])
        more = max(1, part // 100)
        queries = list(inputs.copies(inputs.records(inputs.DATA / "proteins_queries.faa"), part + more, inputs.AMINO))
        choose.shuffle(queries)
        (folder / "q.faa").write_bytes(b"".join(queries[:part]))
        few = queries[: max(10, part // 10)]
        (folder / "four.faa").write_bytes(b"".join(b">%d" % time + query[1:] for time in range(4) for query in few))
        (folder / "more.faa").write_bytes(
            b"".join([*queries[: part // 2], *queries[part : part + more], *queries[part // 2 : part]])
        )

    def make_database(self, name: str, entries: list[bytes]) -> None:
        """Make a database."""
        (self.folder / f"{name}.faa").write_bytes(b"".join(entries))
        command = ["makeblastdb", "-in", f"{name}.faa", "-dbtype", "prot", "-out", name]
        subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        (self.folder / f"{name}.faa").unlink()

    def search(self, queries: str, database: str, out: str, *before: str) -> tuple[float, float, float]:
        """Return CPU and wall seconds of a search, and then MB in the store; ``before`` stands before its command."""
        (self.folder / out).unlink(missing_ok=True)
        began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        words = ["blastp", "-query", queries, "-db", database, *self.options, "-out", out]
        subprocess.run([*before, *words], cwd=self.folder, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu, wall = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime, time.monotonic() - began
        return cpu, wall, self.count_stored() / 1e6 if "--store" in before else 0.0

    def has_written(self, expected: str) -> bool:
        """Whether the search that knew something wrote the bytes of another."""
        return (self.folder / "known").read_bytes() == (self.folder / expected).read_bytes()

    def count_stored(self) -> int:
        """Return the bytes of what is kept of queries: without the digests of entries, and without free pages."""
        store = SearchStore(self.folder / "store" / STORE_NAME, read_only=True)
        return sum(size for _, _, _, size, _ in store.count_rows())

    def count_residues(self) -> int:
        """Return the number of residues of the queries."""
        lines = (self.folder / "q.faa").read_text().splitlines()
        return sum(len(line) for line in lines if not line.startswith(">"))


def main(arguments: list[str]) -> int:
    """Measure, and print the table; 1 if bytes differ."""
    parser = argparse.ArgumentParser(prog="python -m bench.reuse", description=__doc__)
    parser.add_argument("--part", type=int, default=100, help="queries")
    parser.add_argument("--grow", type=int, default=1, help="size of the database")
    parser.add_argument("--options", default="-evalue 1e-5 -outfmt 6", help="of blastp")
    asked = parser.parse_args(arguments)
    program = [sys.executable, "-m", "millrace", "run", "-q"]
    plain, once, kept = [*program, "--fresh", "--"], [*program, "--"], [*program, "--store", "store", "--"]
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        place = Searches(Path(name), asked.part, asked.grow, asked.options)
        whole = place.search("q.faa", "after", "full", *plain)
        serial = place.search("q.faa", "after", "serial")
        found = {
            "the tool itself, one thread": (serial, whole),
            "before, without a store": (place.search("q.faa", "before", "x", *plain), whole),
            "before, into an empty store": (place.search("q.faa", "before", "x", *kept), whole),
            "3 % of the entries new": (place.search("q.faa", "after", "known", *kept), whole),
        }
        same = place.has_written("serial")
        found["nothing new"] = (place.search("q.faa", "after", "known", *kept), whole)
        more = place.search("more.faa", "after", "full", *plain)
        found["1 % of the queries new"] = (place.search("more.faa", "after", "known", *kept), more)
        same = same and place.has_written("full")
        four = place.search("four.faa", "after", "full", *plain)
        found["each query four times"] = (place.search("four.faa", "after", "known", *once), four)
        same = same and place.has_written("full")
        size = sum(path.stat().st_size for path in (place.folder / "store").rglob("*") if path.is_file())
        millions = place.count_residues() / 1e6
        shutil.rmtree(place.folder / "store")
    rows = [("all, by Millrace", *(f"{each:.1f}" for each in whole[:2]), "1", "1", "")]
    rows += [
        (what, f"{cpu:.1f}", f"{wall:.1f}", f"{cpu / of[0]:.2f}", f"{wall / of[1]:.2f}", f"{kept / millions:.2f}" if kept else "")
        for what, ((cpu, wall, kept), of) in found.items()
    ]  # fmt: skip
    names = ("", "CPU s", "wall s", "CPU share", "wall share", "MB in the store, a million residues of queries")
    show_table("reuse", names, rows)
    print(f"\nthe same bytes: {'yes' if same else 'NO'}; the store has {size:,} bytes")
    return int(not same)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
