"""The record formats: their names, their file suffixes, and the detection of an input's format."""

from __future__ import annotations

from pathlib import Path

import msgspec

from millrace import _core
from millrace.core.errors import RefusedError

#: First bytes of compressed files: gzip, zstd, bzip2, xz.
PACKED_MAGIC = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ")

#: Suffixes of compressed files; the compression itself is detected by their first bytes.
COMPRESSED = (".gz", ".bgz", ".zst", ".bz2", ".xz")


def strip_compressed_suffix(name: str) -> str:
    """Return a file name without the suffix of a compression.

    >>> strip_compressed_suffix("a.fa.gz"), strip_compressed_suffix("a.fa")
    ('a.fa', 'a.fa')
    """
    return name[: name.rindex(".")] if name.endswith(COMPRESSED) else name


class RecordFormat(msgspec.Struct, frozen=True):
    """One way to cut an input into records."""

    name: str
    description: str
    #: File name suffixes, lower case, without that of a compression.
    suffixes: tuple[str, ...] = ()
    #: Unit of a record's cost: ``residues`` or ``bytes``.
    unit: str = "bytes"
    #: Whether an input begins with a header, which is no record; each part of the input begins with it.
    has_header: bool = False
    #: Default way of joining outputs; see ``millrace.adapters.joins``.
    join: str = "concat"


FORMATS: dict[str, RecordFormat] = {
    known.name: known
    for known in (
        RecordFormat(
            "fasta",
            "sequences; a record begins at a '>' at the start of a line",
            (".fa", ".faa", ".fna", ".ffn", ".fasta", ".fas"),
            "residues",
        ),
        RecordFormat("fastq", "reads with qualities, on four lines each or wrapped", (".fq", ".fastq"), "residues"),
        RecordFormat("mol2", "molecules; a record begins at @<TRIPOS>MOLECULE", (".mol2",)),
        RecordFormat("sdf", "molecules; a record ends with $$$$", (".sdf", ".sd", ".mol")),
        RecordFormat("smiles", "molecules, one a line; not cut after a blank line", (".smi", ".smiles")),
        RecordFormat("hmm", "HMMER profiles; a record ends with //", (".hmm",)),
        RecordFormat("cm", "covariance models of Infernal; a record begins at INFERNAL1/", (".cm",)),
        RecordFormat("stockholm", "alignments; a record ends with //", (".sto", ".stk")),
        RecordFormat("genbank", "annotated sequences; a record begins at LOCUS", (".gb", ".gbk", ".gbff")),
        RecordFormat("pdbqt", "docking models; a record ends with ENDMDL", (".pdbqt",)),
        RecordFormat("jsonl", "JSON values, one a line", (".jsonl", ".ndjson")),
        RecordFormat("csv", "rows of a table; a field in quotes may hold line breaks"),
        RecordFormat("csv+header", "the same below a row of names, with which each part begins", has_header=True),
        RecordFormat("lines", "each line is a record", (".txt", ".tsv", ".list")),
        RecordFormat("lines+header", "the same below a line of names, with which each part begins", has_header=True),
        RecordFormat(
            "vcf",
            "variants, one a line; each part begins with the lines at the beginning that begin with '#'",
            (".vcf",),
            has_header=True,
            join="header:^#",
        ),
        RecordFormat(
            "mgf",
            "spectra; a record begins at BEGIN IONS, and each part with the lines before the first",
            (".mgf",),
            has_header=True,
        ),
        RecordFormat("nul", "each record ends with a NUL byte, as find -print0 writes them"),
        RecordFormat("regex", "a record begins or ends at lines that match --record-start or --record-end"),
        RecordFormat("files", "each file is a record"),
    )
}

_BY_SUFFIX = {suffix: known.name for known in FORMATS.values() for suffix in known.suffixes}


def detect_format(path: str) -> str | None:
    """Detect the format of an input by its name, then by its first bytes.

    The name decides, with two exceptions, where unambiguous bytes decide: a suffix that means only text (``.txt``,
    ``.tsv``, ``.list``), and sequences, as FASTA and FASTQ files often have each other's suffix. Of a pipe only the
    name is used: reading would consume bytes.

    Args:
        path: Path as the user typed it; ``-`` is standard input.

    Returns:
        Name of the format, None if it is unknown.

    Raises:
        OSError: The file exists but cannot be read.
    """
    named = find_format_by_suffix(path)
    found = _core.sniff(path) if path != "-" and Path(path).is_file() else None
    if named is None or (found is not None and (named == "lines" or found in ("fasta", "fastq"))):
        return found or named
    return named


def has_header(name: str) -> bool:
    """Tell whether inputs of the format begin with a header; False for an unknown format."""
    return name in FORMATS and FORMATS[name].has_header


def parse_input(text: str, cwd: Path) -> tuple[str, str]:
    """Split ``FILE[:FORMAT]`` as the user typed it in ``cwd``.

    File names may have colons. The text after the last one is a format if it is the name of one, unless only the whole
    text is a file. It is a mistyped format if only the text before it is a file (or ``-``).

    Returns:
        The path, and the format's name or "".

    Raises:
        RefusedError: The format does not exist; offers the nearest.
    """
    path, colon, name = text.rpartition(":")
    if not colon or not path:
        return text, ""
    is_whole, is_part = (cwd / text).exists(), path == "-" or (cwd / path).exists()
    if name in FORMATS:
        return (text, "") if is_whole and not is_part else (path, name)
    if is_part and not is_whole:
        check_format_name(name)
    return text, ""


def check_format_name(name: str) -> str:
    """Return ``name`` if it is a known format.

    Raises:
        RefusedError: It is unknown; offers the nearest.
    """
    if name in FORMATS:
        return name
    import difflib  # only for the refusal

    nearest = difflib.get_close_matches(name.lower().removeprefix("."), FORMATS, n=1)
    alias = find_format_by_suffix(f"x.{name}")
    likely = alias or (nearest[0] if nearest else "")
    hint = f"did you mean '{likely}'?" if likely else f"formats are {', '.join(FORMATS)}"
    raise RefusedError(f"unknown record format '{name}'", hint)


def find_format_by_suffix(path: str) -> str | None:
    """Return the format of a file suffix, below that of a compression; None: unknown."""
    plain = Path(path.lower())
    if plain.suffix in COMPRESSED:
        plain = plain.with_suffix("")
    return _BY_SUFFIX.get(plain.suffix)
