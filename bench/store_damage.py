"""Damage a store in many ways, run a command with it, and compare the bytes with those of the serial command.

    python -m bench.store_damage --cases 500 --kills 50

Each case is a fresh copy of a store that knows two searches of one database, damaged in one way, and a command whose results
are known, or whose candidates are known, in the same database or in one that has grown. A run must end with the serial bytes,
or with an error that names the store; then the same command is run again, without the store if the error asks for that.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from bench.results import show_table
from millrace.extensions.reuse.store_seals import ChecksumSeal

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests" / "support")]

from changed_databases import SequenceMaker, make_database, write_records  # noqa: E402
from hidden_candidates import hide_candidates  # noqa: E402

#: Names and arguments of the commands: results are known of the first, candidates of the second, and of the third but for new entries.
COMMANDS = {
    "same": ["-db", "march", "-outfmt", "6"],
    "other format": ["-db", "march", "-outfmt", "7"],
    "grown": ["-db", "april", "-outfmt", "6"],
}

Damage = Callable[[Path, random.Random], None]


def _choose_file(store: Path, choose: random.Random) -> Path:
    return choose.choice(sorted(path for path in (store / "candidates").rglob("*") if path.is_file()))


def _flip_bytes(store: Path, choose: random.Random) -> None:
    file = _choose_file(store, choose)
    content = bytearray(file.read_bytes())
    for _ in range(choose.choice((1, 1, 20))):
        content[choose.randrange(len(content))] ^= choose.randrange(1, 256)
    file.write_bytes(content)


def _overwrite_stretch(store: Path, choose: random.Random) -> None:
    file = _choose_file(store, choose)
    content = bytearray(file.read_bytes())
    at = choose.randrange(len(content)) // 512 * 512
    size = min(choose.choice((512, 4096)), len(content) - at)
    content[at : at + size] = choose.choice((bytes(size), content[:size], choose.randbytes(size)))
    file.write_bytes(content)


def _truncate_file(store: Path, choose: random.Random) -> None:
    file = _choose_file(store, choose)
    os.truncate(file, choose.choice((0, choose.randrange(file.stat().st_size))))


def _remove_file(store: Path, choose: random.Random) -> None:
    _choose_file(store, choose).unlink()


def _swap_files(store: Path, choose: random.Random) -> None:
    folders = [sorted((store / "candidates" / name).iterdir()) for name in ("entries", "databases")]
    one, other = choose.sample(choose.choice([files for files in folders if len(files) > 1]), 2)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def _leave_journal(store: Path, choose: random.Random) -> None:
    content = (store / "candidates" / "candidates.sqlite").read_bytes()
    (store / "candidates" / "candidates.sqlite-journal").write_bytes(
        choose.choice((choose.randbytes(9000), b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + content[:4096], content))
    )


def _change_tables(store: Path, *statements: str) -> None:
    with closing(sqlite3.connect(store / "candidates" / "candidates.sqlite")) as tables, tables:
        for statement in statements:
            tables.execute(statement)


def _drop_table(store: Path, choose: random.Random) -> None:
    _change_tables(store, f"DROP TABLE {choose.choice(('search', 'candidates', 'results'))}")


def _change_version(store: Path, choose: random.Random) -> None:
    _change_tables(store, f"PRAGMA user_version = {choose.randrange(2, 99)}")


def _swap_keys(store: Path, choose: random.Random) -> None:
    """Give each search the rows of another, as if they were copies of it."""
    with closing(sqlite3.connect(store / "candidates" / "candidates.sqlite")) as tables, tables:
        rows = tables.execute("SELECT id, key FROM search").fetchall()
        tables.execute("UPDATE search SET key = id")
        n = choose.randrange(1, len(rows))
        for (number, _), (_, key) in zip(rows, rows[n:] + rows[:n], strict=True):
            tables.execute("UPDATE search SET key = ? WHERE id = ?", (key, number))


def _mix_rows(store: Path, choose: random.Random) -> None:
    """Give rows a value of another row."""
    table, column = choose.choice(
        (("candidates", "found"), ("candidates", "depth"), ("candidates", "entries"), ("candidates", "query"), ("results", "blocks"),
         ("results", "content"), ("results", "first"), ("results", "records"), ("results", "checksum"), ("candidates", "checksum"))
    )  # fmt: skip
    with closing(sqlite3.connect(store / "candidates" / "candidates.sqlite")) as tables, tables:
        values = [row[0] for row in tables.execute(f"SELECT {column} FROM {table}")]
        identity = "search || hex(query)" if table == "candidates" else "search || hex(content)"
        rows = [row[0] for row in tables.execute(f"SELECT {identity} FROM {table}")]
        for row in choose.sample(rows, choose.randrange(1, len(rows) + 1)):
            tables.execute(
                f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {identity} = ?", (choose.choice(values), row)
            )


def _hide_candidates(store: Path, choose: random.Random) -> None:
    """Drop candidates of all queries, and write valid checksums, as a hostile owner of a store would."""
    share = choose.choice((0.0, 0.3, 0.7))
    _change_tables(store, "DELETE FROM results")
    hide_candidates(store, ChecksumSeal(), lambda: choose.random() < share)


def _open_to_all(store: Path, choose: random.Random) -> None:
    (store if choose.random() < 0.5 else store / "candidates").chmod(0o777)


def _give_away(store: Path, choose: random.Random) -> None:
    os.chown(store if choose.random() < 0.5 else store / "candidates", 65534, 65534)


def _replace_by_folder(store: Path, choose: random.Random) -> None:
    file = _choose_file(store, choose)
    file.unlink()
    file.mkdir()


DAMAGES: dict[str, Damage] = {
    "bytes flipped": _flip_bytes,
    "a stretch of other bytes": _overwrite_stretch,
    "a file cut short": _truncate_file,
    "a file removed": _remove_file,
    "two files swapped": _swap_files,
    "a journal of SQLite that is not its own": _leave_journal,
    "a table dropped": _drop_table,
    "tables of another version": _change_version,
    "rows under the key of another search": _swap_keys,
    "rows with values of others": _mix_rows,
    "candidates hidden, checksums right": _hide_candidates,
    "a folder that all may write": _open_to_all,
    "a folder of another user": _give_away,
    "a folder in the place of a file": _replace_by_folder,
}


class DamagedStore:
    """A folder with databases, queries and a store that is copied for each case."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        maker = SequenceMaker(7)
        entries = maker.make_entries(40)
        make_database(folder, "march", entries, "prot")
        make_database(folder, "april", maker.change_entries(maker.change_entries(entries, "change"), "add"), "prot")
        write_records(folder / "q.faa", [maker.make_relative() for _ in range(4)], "q")
        self.expected = {}
        for name, words in COMMANDS.items():
            subprocess.run(["blastp", "-query", "q.faa", *words, "-out", "serial"], cwd=folder, check=True)
            self.expected[name] = (folder / "serial").read_bytes()
        for more in (
            COMMANDS["same"],
            [*COMMANDS["same"], "-threshold", "12"],
            [*COMMANDS["grown"], "-threshold", "13"],
        ):
            words = [*self.fill_words("store"), "-q", "--", "blastp", "-query", "q.faa", *more, "-out", "x"]
            subprocess.run(words, cwd=folder, check=True)
        shutil.move(folder / "store", folder / "whole")

    def fill_words(self, store: str) -> list[str]:
        """Return the words of a run with, or without, a store."""
        chosen = ["--store", store] if store else ["--fresh"]
        return [sys.executable, "-m", "millrace", "run", "--slots", "2", "--batch", "2", "--verify", "0", *chosen]

    def copy_store(self) -> Path:
        """Return a fresh copy of the whole store."""
        shutil.rmtree(self.folder / "store", ignore_errors=True)
        shutil.copytree(self.folder / "whole", self.folder / "store")
        return self.folder / "store"

    def run(self, name: str, store: str = "store") -> tuple[int, str]:
        """Run a command; return its exit code, and what it said."""
        (self.folder / "ours").unlink(missing_ok=True)
        words = [*self.fill_words(store), "--", "blastp", "-query", "q.faa", *COMMANDS[name], "-out", "ours"]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=600)
        return done.returncode, done.stderr

    def kill(self, name: str, seconds: float) -> None:
        """Start a command, and kill it after some time."""
        words = [*self.fill_words("store"), "--", "blastp", "-query", "q.faa", *COMMANDS[name], "-out", "ours"]
        process = subprocess.Popen(words, cwd=self.folder, stderr=subprocess.DEVNULL, start_new_session=True)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def is_exact(self, name: str) -> bool:
        """Tell whether the last run has written the serial bytes."""
        ours = self.folder / "ours"
        return ours.exists() and ours.read_bytes() == self.expected[name]

    def judge(self, name: str) -> str:
        """Run a command with the store as it is; return what has become of it."""
        code, told = self.run(name)
        if code:
            if str(self.folder / "store") not in told:
                return f"WRONG: exit code {code}: {told}"
            again, _ = self.run(name, "store" if code == 5 else "")
            return "said, exit code and place" if again == 0 and self.is_exact(name) else f"WRONG: after {told}"
        if not self.is_exact(name):
            return f"WRONG: other bytes: {told}"
        if "store: not used" in told or "could not be kept" in told:
            return "exact, and said" if str(self.folder / "store") in told else f"WRONG: does not say where: {told}"
        return "exact"


def main(arguments: list[str]) -> int:
    """Damage stores, and print the table; 1 if a byte is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.store_damage", description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--kills", type=int, default=50, help="writers that are killed")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    asked = parser.parse_args(arguments)
    counted: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        os.environ["XDG_STATE_HOME"] = f"{name}/state"
        place = DamagedStore(Path(name))
        for seed in range(asked.first, asked.first + asked.cases + asked.kills):
            choose = random.Random(seed)
            kind, command = list(DAMAGES)[seed % len(DAMAGES)], choose.choice(list(COMMANDS))
            store = place.copy_store()
            if seed < asked.first + asked.cases:
                DAMAGES[kind](store, choose)
            else:
                kind = "a writer killed"
                place.kill(command, choose.uniform(0.3, 2.5))
            found = place.judge(command)
            if found.startswith("WRONG"):
                print(f"seed {seed}, {kind}, {command}: {found}", file=sys.stderr)
                found = "WRONG"
            counted.setdefault(kind, Counter())[found] += 1
    ends = ("exact", "exact, and said", "said, exit code and place", "WRONG")
    rows = [(kind, *(str(found[end]) for end in ends)) for kind, found in counted.items()]
    show_table("store_damage", ("damage", *ends), rows)
    return int(any(found["WRONG"] for found in counted.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
