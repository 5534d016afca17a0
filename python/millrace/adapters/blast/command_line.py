"""Reader of BLAST+ options (``-name value`` or ``-name=value``, each once) and of query names."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Sequence

import msgspec

from millrace.adapters.adapter_base import is_still_growing
from millrace.adapters.option_reader import CommandWord, OptionErrorTexts, OptionTable, scan_options_lazily, split_words
from millrace.core.errors import RefusedError
from millrace.core.tool_use import UserCommand

_PROBLEM, _HINT = "BLAST would not take these options: ", "see the program's own -help"

OPTIONS = OptionTable(
    dashes="one",
    equals=True,
    once=True,
    others=True,
    # Of all programs (``PROGRAM -xmlhelp`` of 2.12, and one known of later releases).
    flags=split_words(
        """h help version version-full version-full-xml version-full-json xmlhelp dryrun html ignore_msa_master
        lcase_masking no_greedy no_taxid_expansion parse_deflines remote save_each_pssm
        save_pssm_after_last_round show_domain_hits show_gis subject_besthit ungapped use_sw_tback"""
    ),
    complaints=OptionErrorTexts(
        unknown=(_PROBLEM + 'Unknown argument: "{name}"', _HINT),
        no_value=(_PROBLEM + 'Argument "{name}". Value is missing', _HINT),
        twice=(_PROBLEM + "Argument with this name is defined already: {name}", _HINT),
    ),
)


def make_usage_refusal(problem: str) -> RefusedError:
    """Make the error for options that BLAST itself would reject; ``problem`` is in BLAST's words."""
    return RefusedError(_PROBLEM + problem, _HINT)


def read_options(arguments: Sequence[str]) -> Iterator[CommandWord]:
    """Read the options of a command, whose first word is the program, one by one.

    Raises:
        RefusedError: BLAST itself would reject them; in its words.
    """
    for word in scan_options_lazily(arguments, OPTIONS, "BLAST"):
        if not word.name:
            raise make_usage_refusal(f"Too many positional arguments (1), the offending value: {word.typed}")
        yield word


def parse_options(arguments: Sequence[str]) -> dict[str, str]:
    """Return the value of each option of a command, empty for a flag; see ``read_options``.

    An unknown option has a value if one follows.
    """
    return {word.name: word.value if word.values else "" for word in read_options(arguments)}


class QueryNames(msgspec.Struct, frozen=True):
    """Facts on the names of the queries."""

    #: Whether the queries were read; those of a pipe are not.
    known: bool
    #: Whether the file has nothing but white space, so that BLAST takes it for empty and writes nothing in any format.
    blank: bool = False
    #: 1-based number of the first record without a name; 0: all have one.
    unnamed: int = 0
    #: Whether the name of a record begins with ``Query_``.
    query_like: bool = False
    path: str = ""


def find_query(command: UserCommand, options: dict[str, str]) -> str:
    """Return the path of the queries as typed; ``-`` is standard input.

    Raises:
        RefusedError: There are no queries.
    """
    query = options.get("query", "-")
    if query == "-" and not command.stdin_is_data:
        raise RefusedError("no queries: -query is not given and nothing comes from standard input", "add -query FILE")
    return query


def read_query_names(command: UserCommand, query: str, parsed: bool) -> QueryNames:
    """Read the names of the queries, if they are in a file that is complete.

    Args:
        query: Path as typed.
        parsed: Whether ``-parse_deflines`` is used; then two records with one id are refused.

    Raises:
        RefusedError: The file is missing or is not FASTA as BLAST reads it, or two records have one id.
    """
    path = command.cwd / query
    if query == "-":
        return QueryNames(known=False, path="standard input")
    if is_still_growing(query, command):
        return QueryNames(known=False, path=query)
    if not path.exists():
        raise RefusedError(f'Command line argument error: Argument "query". File is not accessible:  `{query}\'')
    if not path.is_file():
        return QueryNames(known=False, path=query)
    if path.stat().st_size == 0:
        return QueryNames(known=True, path=query)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        names = _scan_names(data, query)
        if parsed and not names.unnamed:
            _refuse_twin_ids(data, query)
        return names


def _scan_names(data: mmap.mmap, query: str) -> QueryNames:
    if re.fullmatch(rb"\s*", data):
        return QueryNames(known=True, blank=True, path=query)
    start = re.match(rb"(?:[ \t]*\r?\n)*", data)
    first = data[start.end() : start.end() + 4] if start else b""
    if first[:2] == b"\x1f\x8b" or first == b"\x28\xb5\x2f\xfd":
        raise RefusedError(
            f"{query}: is compressed, which BLAST does not read",
            f"zcat {query} | millrace run -- ... -query -",
        )
    if first and not first.startswith(b">"):
        raise RefusedError(
            f"{query}:1: expected '>', found '{first[:1].decode('latin-1')}': "
            "a bare sequence or a list of accessions, which cannot be cut into records",
            "write the queries as FASTA, each record with a line that begins with '>'",
        )
    if data.find(b"\n>?") >= 0:
        raise RefusedError(
            f"{query}: a line begins with '>?', which BLAST takes for a gap and not for a record",
            "write gaps as N or X",
        )
    unnamed = min(_find_unnamed_records(data), default=None)
    before = data[:unnamed] if unnamed is not None else b""
    return QueryNames(
        known=True,
        unnamed=0 if unnamed is None else before.count(b"\n>") + before.startswith(b">") + 1,
        query_like=re.match(rb"> ?Query_", data) is not None
        or any(data.find(b"\n>" + name) >= 0 for name in (b"Query_", b" Query_")),
        path=query,
    )


def _refuse_twin_ids(data: mmap.mmap, query: str) -> None:
    """Refuse two records with one id: with ``-parse_deflines`` BLAST searches the first one twice."""
    seen: dict[bytes, int] = {}
    begin = -1 if data[:1] == b">" else data.find(b"\n>")
    number = 0
    while number == 0 or begin >= 0:
        number += 1
        word = data[begin + 2 : begin + 2 + 500].split(None, 1)[:1]
        key = parse_sequence_id(word[0]) if word else b""
        if key in seen:
            raise RefusedError(
                f"{query}: records {seen[key]} and {number} have the same id, and with -parse_deflines "
                "BLAST searches the first one twice",
                "leave -parse_deflines out, or give every record an id of its own",
            )
        seen[key] = number
        begin = data.find(b"\n>", begin + 1)


def parse_sequence_id(word: bytes) -> bytes:
    """Return the id by which BLAST compares names, without case and version.

    Ids that BLAST takes for the same are the same here; the converse need not hold.

    >>> parse_sequence_id(b"sp|P01013.2|OVAX_CHICK"), parse_sequence_id(b"Gene.1"), parse_sequence_id(b"lcl|x")
    (b'p01013', b'gene.1', b'x')
    """
    parts = word.lower().split(b"|")
    if len(parts) == 1:
        return parts[0]
    if parts[0] == b"gi" and len(parts) > 3:
        parts = parts[2:]
    if parts[0] in (b"gnl", b"lcl", b"pdb"):
        return b"|".join(parts[1:])
    return (parts[1] or parts[-1]).split(b".")[0]


def _find_unnamed_records(data: mmap.mmap) -> Iterator[int]:
    """Yield the offset of the first record whose ``>`` line is only white space, for each kind of white space."""
    if re.match(rb">[ \t]*\r?(\n|\Z)", data):
        yield 0
    if data[-2:] == b"\n>":
        yield len(data) - 1
    for needle in (b"\n>\n", b"\n>\r", b"\n> ", b"\n>\t"):
        at = data.find(needle)
        while at >= 0:
            end = data.find(b"\n", at + 1)
            if not data[at + 2 : end if end >= 0 else len(data)].strip():
                yield at + 1
                break
            at = data.find(needle, at + 1)
