"""Physical fragments of a BLAST database: volumes with files of their own that together equal the original.

For nodes with storage of their own, or to keep one part of a database in the memory of each node. The result is a
database of one volume for each fragment, and an alias with the name and title of the original. Entries have the same
ordinals and statistics, so BLAST finds the same in it, and ``--fragments`` cuts it where its volumes end.
``makeblastdb`` itself makes the volumes, and each entry is compared with the original.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from millrace.adapters.blast.database import NotInFragmentsError, SearchedDatabase, read_database
from millrace.adapters.blast.search_path import SearchPath
from millrace.adapters.blast.volumes import KINDS, BlastVolume, add_ending, cut_volumes, write_alias
from millrace.core.errors import MillraceError, RefusedError, ToolError
from millrace.core.tool_use import UserCommand

#: Free space that the fragments need, as a multiple of the original's files.
ROOM = 1.1


class PhysicalDatabase(msgspec.Struct, frozen=True):
    """A database made of physical fragments."""

    #: Path of the database, for ``-db``.
    database: Path
    volumes: tuple[BlastVolume, ...]


def split_database(
    name: str, wanted: tuple[int, int], folder: Path, cwd: Path, environ: Mapping[str, str], otherwise: str = "give another with -o",
) -> PhysicalDatabase:  # fmt: skip
    """Make a database of physical fragments in ``folder``; after an error ``folder`` has none of its files.

    Args:
        name: The database, as after ``-db``.
        wanted: (number of fragments, maximum bytes of one); one of them is 0.
        otherwise: Hint for the user if ``folder`` has too little free space.

    Raises:
        RefusedError: There is no such database, it cannot be fragmented, or ``folder`` has one of this name.
        ToolError: ``makeblastdb`` fails.
    """
    database = _read_database(name, cwd, environ)
    maker = _VolumeMaker(database, environ)
    made = (cwd / folder / Path(name).name).absolute()
    alias = add_ending(made, f"{database.letter}al")
    if taken := [path for path in (alias, add_ending(made, f"{database.letter}in")) if path.exists()]:
        raise RefusedError(f"{taken[0]} is there already", "give another folder with -o, or remove it")
    if " " in made.name:
        raise RefusedError(f"{name}: makeblastdb makes no database with a space in its name", "name it otherwise")
    if not database.has_ids and any(
        add_ending(volume.base, f"{volume.letter}aa").exists() for volume in database.volumes
    ):
        raise RefusedError(f"{name} has masks, but no ids", "make it again with makeblastdb -parse_seqids")
    runs = cut_volumes(database.volumes, [1] * _count_fragments(database, wanted))
    made.parent.mkdir(parents=True, exist_ok=True)
    _check_room(database, made.parent, otherwise)
    with _make_workplace(made.parent) as place:
        digits = max(2, len(str(len(runs) - 1)))
        names = [f"{made.name}.{number:0{digits}}" for number in range(len(runs))]

        def make(number: int) -> None:
            first, last, _ = runs[number]
            part = place / f"part{number}"
            write_alias(
                part, database.letter, database.title, [str(base) for base in database.bases],
                f"FIRST_OID {first + 1}", f"LAST_OID {last}",
            )  # fmt: skip
            maker.make_volume(part, place / "made" / names[number])

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            list(threads.map(make, range(len(runs))))
        write_alias(place / "made" / made.name, database.letter, database.title, names)
        _check_database(database, place / "made" / made.name, environ)
        # The alias last: without it the volumes are not yet a database.
        for path in sorted((place / "made").iterdir(), key=lambda path: path.name == alias.name):
            path.rename(made.parent / path.name)
    return PhysicalDatabase(made, _read_database(str(made), made.parent, environ).volumes)


def _read_database(name: str, cwd: Path, environ: Mapping[str, str]) -> SearchedDatabase:
    search = SearchPath(UserCommand(argv=("blastdbcmd",), cwd=cwd, environ=dict(environ), exe=Path("blastdbcmd")))
    letters = [letter for letter in KINDS if search.find_base(name, letter)]
    if not letters:
        raise RefusedError(f"there is no BLAST database {name}", "give its path without an ending such as .pin")
    if len(letters) > 1:
        raise RefusedError(f"{name} is a database of proteins and one of nucleotides", "give them names of their own")
    try:
        return read_database(f'"{name}"', letters[0], search)
    except NotInFragmentsError as why:
        raise RefusedError(f"{name}: {why}", "split the databases that it is made of") from None


def _count_fragments(database: SearchedDatabase, wanted: tuple[int, int]) -> int:
    number, size = wanted
    return min(number or math.ceil(database.sequence_bytes / size), database.entries)


def _check_room(database: SearchedDatabase, folder: Path, otherwise: str) -> None:
    files = (path for volume in database.volumes for path in volume.list_files())
    needed, free = ROOM * sum(path.stat().st_size for path in files), shutil.disk_usage(folder).free
    if needed > free:
        raise RefusedError(
            f"{folder} has {free >> 20} MB free, and the fragments need {int(needed) >> 20} MB", otherwise
        )


@contextmanager
def _make_workplace(folder: Path) -> Iterator[Path]:
    """Make a temporary folder in the folder of the result; it is removed at the end, also after an error."""
    with tempfile.TemporaryDirectory(prefix=".millrace-split-", dir=folder) as name:
        (Path(name) / "made").mkdir()
        yield Path(name)


class _VolumeMaker:
    """Maker of the volumes, which compares each entry with the original."""

    def __init__(self, database: SearchedDatabase, environ: Mapping[str, str]) -> None:
        self._database, self._environ = database, dict(environ)
        self._programs = {name: self._find_program(name) for name in ("makeblastdb", "blastdbcmd")}
        self._kind = ["-dbtype", KINDS[database.letter]]

    def _find_program(self, name: str) -> str:
        program = shutil.which(name, path=self._environ.get("PATH"))
        if program is None:
            raise ToolError(f"{name} is not on the PATH", "it comes with BLAST+")
        return program

    def make_volume(self, part: Path, volume: Path) -> None:
        """Make ``volume`` of the entries of ``part``."""
        database = self._database
        command = [self._programs["makeblastdb"], *self._kind, "-out", volume.name, "-title", database.title]
        command += ["-blastdb_version", str(database.volumes[0].version)]
        if database.has_ids:
            self._run_program(
                [*command, "-parse_seqids", "-in", f'"{part}"', "-input_type", "blastdb"], volume.parent, None
            )
        else:
            # From a database (-input_type blastdb) makeblastdb gives ids, with old ordinals, to entries that have none.
            with self._start_blastdbcmd(part, "%f") as entries:
                self._run_program([*command, "-in", "-"], volume.parent, entries.stdout)
        if self._digest_entries(part) != self._digest_entries(volume):
            raise MillraceError(f"makeblastdb has not made the entries of {volume.name} as they were")

    def _run_program(self, command: list[str], folder: Path, stdin: IO[bytes] | None) -> None:
        # In the folder itself: the name after -out may not have spaces.
        done = subprocess.run(
            command, cwd=folder, env=self._environ, stdin=stdin or subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip() or done.stdout.decode(errors="replace").strip()
            raise ToolError(f"makeblastdb failed: {words}", "is the database whole? blastdbcheck tells")

    def _digest_entries(self, database: Path) -> bytes:
        """Hash titles, lengths, sequences and taxa of all entries, in order, and their ids if they have any."""
        found = hashlib.sha256()
        with self._start_blastdbcmd(database, "%i %t %l %h %T" if self._database.has_ids else "%t %l %h %T") as entries:
            assert entries.stdout is not None  # a pipe was asked for
            while piece := entries.stdout.read(1 << 20):
                found.update(piece)
        return found.digest()

    @contextmanager
    def _start_blastdbcmd(self, database: Path, form: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start ``blastdbcmd`` that writes all entries.

        Raises:
            ToolError: It fails.
        """
        command = [self._programs["blastdbcmd"], *self._kind, "-db", f'"{database}"', "-entry", "all", "-outfmt", form]
        with tempfile.TemporaryFile() as words:
            with subprocess.Popen(command, env=self._environ, stdout=subprocess.PIPE, stderr=words) as process:
                yield process
            if process.returncode:
                words.seek(0)
                raise ToolError(f"blastdbcmd failed: {words.read().decode(errors='replace').strip()}")


def _check_database(database: SearchedDatabase, made: Path, environ: Mapping[str, str]) -> None:
    """Check that the new database has the entries, residues and title of the original.

    Raises:
        MillraceError: It has not.
    """
    # From its own folder: the original's may have volumes of these names, which BLAST would read instead.
    found = _read_database(str(made), made.parent, environ)
    if (found.entries, found.residues, found.title) != (database.entries, database.residues, database.title):
        raise MillraceError(
            f"makeblastdb has made {found.entries} entries with {found.residues} residues of {database.entries} with "
            f"{database.residues}"
        )
