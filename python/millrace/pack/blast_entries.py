"""The entries of a BLAST database, from ``run_blastdbcmd``: names, and a digest independent of volumes and paths."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set

from millrace.model import BlastDatabase, UserCommand
from millrace.pack.codec import NotPackableError
from millrace.pack.known_databases import DatabaseEntries
from millrace.tools.blast.alias import KINDS

#: The name of an entry without an id: its position in its volume.
_NUMBERED = re.compile(rb"^(?:gnl\|)?BL_ORD_ID[|:]\d+$")

_MODULUS = 1 << 256


def read_entries(about: BlastDatabase, command: UserCommand, most: int | None) -> DatabaseEntries:
    """Read and digest all entries, or the first ``most``.

    Raises:
        NotPackable: ``run_blastdbcmd`` cannot list them.
    """
    ordered, total, n, residues = hashlib.sha256(), 0, 0, 0
    for line in read_blastdbcmd_lines(about, command, "%i\t%t\t%s"):
        if n == most:
            break
        name, _, rest = line.rstrip(b"\n").partition(b"\t")
        sequence = rest.rpartition(b"\t")[2]
        digest = hashlib.sha256((b"" if _NUMBERED.match(name) else name) + b"\t" + rest).digest()
        ordered.update(digest)
        total = (total + int.from_bytes(digest, "big")) % _MODULUS
        n, residues = n + 1, residues + len(sequence)
    return DatabaseEntries(n, residues, ordered.hexdigest(), f"{total:064x}")


def find_named_ordinals(about: BlastDatabase, command: UserCommand, words: Set[bytes]) -> Mapping[bytes, Sequence[int]]:
    """Return the ordinals, ascending, of the entries named by each of ``words``."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for number, line in enumerate(read_blastdbcmd_lines(about, command, "%i\t%a\t%t")):
        for name in _list_entry_names(line.rstrip(b"\n")) & words:
            found[name].append(number)
    return found


def _list_entry_names(line: bytes) -> set[bytes]:
    """Return the words by which a result may name the entry of a line.

    >>> sorted(_list_entry_names(b"gnl|BL_ORD_ID|3\\tBL_ORD_ID:3\\tsp|P1|X_Y a protein"))
    [b'BL_ORD_ID:3', b'P1', b'X_Y', b'gnl|BL_ORD_ID|3', b'sp|P1|X_Y']
    >>> sorted(_list_entry_names(b"sp|P12.3|\\tP12.3\\ta protein"))
    [b'P12', b'P12.3', b'a', b'sp|P12.3|']
    """
    name, accession, title = [*line.split(b"\t", 2), b"", b""][:3]
    found = {name, accession, accession.rpartition(b".")[0]}
    if not _NUMBERED.match(name):
        found |= {part for part in name.split(b"|")[1:] if part}
    # Control-A separates the titles of an entry.
    for each in title.split(b"\x01"):
        words = each.split(None, 1)
        if words:
            found |= {words[0], *(part for part in words[0].split(b"|")[1:] if part)}
    return found - {b""}


def find_blastdbcmd(command: UserCommand) -> str:
    """Return the path of ``run_blastdbcmd``.

    Raises:
        NotPackable: It is not on the ``PATH``.
    """
    program = shutil.which("blastdbcmd", path=command.environ.get("PATH"))
    if program is None:
        raise NotPackableError("blastdbcmd is not on the PATH, which tells what a database holds")
    return program


def read_blastdbcmd_lines(about: BlastDatabase, command: UserCommand, outfmt: str) -> Iterator[bytes]:
    """Yield a line of ``blastdbcmd -outfmt`` for each entry, in the order of the database.

    Raises:
        NotPackable: ``run_blastdbcmd`` is not there, or fails.
    """
    program = find_blastdbcmd(command)
    # One volume after another, in the order in which BLAST counts their entries.
    for base, _ in about.volumes:
        name = f'"{base}"' if " " in base else base
        arguments = ["-db", name, "-dbtype", KINDS[about.letter], "-entry", "all", "-outfmt", outfmt]
        with subprocess.Popen(
            [program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=command.cwd, env=dict(command.environ)
        ) as process:  # fmt: skip
            assert process.stdout and process.stderr
            try:
                yield from process.stdout
                words = process.stderr.read().decode(errors="replace").strip()
            except GeneratorExit:
                process.kill()
                raise
        if process.returncode:
            raise NotPackableError(f"blastdbcmd cannot read {base}: {words}")
