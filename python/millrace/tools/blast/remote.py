"""Names of the files of a BLAST database, for folders that can only be listed, or asked for names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from millrace.tools.base import FileNamePatterns, match_one_file
from millrace.tools.blast.search_path import split_names

#: Options that name databases.
NAMING = ("db", "rpsdb")

#: Endings of the files of a volume, after the letter of its kind, that ``makeblastdb`` of 2.2 to 2.17 writes.
ENDINGS = [
    "al",
    "in",
    "hr",
    "sq",
    "db",
    "ot",
    "tf",
    "to",
    "os",
    "nd",
    "ni",
    "sd",
    "si",
    "og",
    "pd",
    "pi",
    "hd",
    "hi",
    "aa",
    "ab",
    "ac",
    "td",
    "ti",
    "js",
]

#: Lines of an alias that name files with lists of entries.
LISTS = ("GILIST", "SEQIDLIST", "TAXIDLIST", "OIDLIST")

#: Endings of files that searches of separate volumes do not read: the taxon of each entry, the entries of each taxon,
#: and the ids of each entry. Commands with options that read them get whole databases. The taxa in the output come from
#: the headers.
#:
#: Source: "BLAST Database Version 5" of the NCBI C++ Toolkit; ``strace``, and comparison without them, of BLAST+ 2.12,
#: 2.16, 2.17.
UNREAD = ("ot", "tf", "to", "os")

#: Files beside databases that all of them share: the names of taxa.
TAXA = ("taxdb.btd", "taxdb.bti", "taxonomy4blast.sqlite3")


def describe_argument_files(nucleotides: bool, argv: Sequence[str], at: int, name: str) -> FileNamePatterns | None:
    """Describe the files of the database that an argument names; None: it names no database.

    >>> bool(re.fullmatch(describe_argument_files(False, ["blastp", "-db", "nr"], 2, "nr").pattern, "nr.003.psq"))
    True
    >>> describe_argument_files(False, ["blastp", "-query", "q.faa"], 2, "q.faa") is None
    True
    """
    option = argv[at].partition("=")[0] if argv[at].startswith("-") else argv[at - 1]
    if option.lstrip("-") not in NAMING:
        return None
    return describe_database_files(name, "n" if nucleotides and option.lstrip("-") == "db" else "p")


def describe_database_files(name: str, letter: str) -> FileNamePatterns:
    """Describe all files of a database and of its volumes; ``letter`` is ``p`` or ``n``."""
    own, taxa = re.escape(name), "|".join(map(re.escape, TAXA))
    others = ("rps", "loo", "aux", "freq", "wcounts", "obsr")
    return FileNamePatterns(
        needed=rf"{own}\.{letter}(al|in)",
        pattern=rf"{own}(\.\d\d+)?\.({letter}[a-z]{{2}}|{letter}js|{'|'.join(others)})|{taxa}",
        usual=(*(f"{name}.{letter}{ending}" for ending in ENDINGS), *(f"{name}.{each}" for each in others), *TAXA),
        packed=rf"{own}(\.\d\d+)?\.tar\.gz",
        apart=rf".+\.\d\d+\.{letter}(sq|hr)",
        unread=rf".+\.{letter}({'|'.join(UNREAD)})",
    )


def read_file_references(name: str, read: Callable[[], bytes]) -> dict[str, FileNamePatterns]:
    """Describe the files that an alias names: other databases, and lists of entries.

    >>> [*read_file_references("nr.pal", lambda: b"TITLE nr\\nDBLIST nr.00 nr.01\\n")]
    ['nr.00', 'nr.01']
    """
    kind = re.search(r"\.([pn])al$", name)
    found: dict[str, FileNamePatterns] = {}
    for line in read().decode(errors="replace").splitlines() if kind else ():
        key, _, value = line.strip().partition(" ")
        for each in split_names(value) if key in ("DBLIST", *LISTS) else ():
            found[each] = describe_database_files(each, kind[1]) if kind and key == "DBLIST" else match_one_file(each)
    return found
