"""Inputs of a HMMER program: queries, targets, and other files that all tasks read."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path

from millrace import _core
from millrace.adapters.adapter_base import is_still_growing
from millrace.adapters.hmmer.command_line import HmmerCommandLine, HmmerProgram
from millrace.core.errors import RefusedError
from millrace.core.record_formats import find_format_by_suffix
from millrace.core.tool_use import InputUse, UserCommand

#: Options that name a file that all tasks read.
SHARED_FILES = ("mxfile", "bgfile", "ssifile")

#: What ``hmmpress`` writes next to a profile database.
PRESSED = (".h3m", ".h3i", ".h3f", ".h3p")


def find_databases(
    name: str, program: HmmerProgram, command: UserCommand, parsed: HmmerCommandLine
) -> tuple[Path, ...]:
    """Find the files that all tasks read: the targets, matrices and the like.

    Raises:
        RefusedError: One is missing, or cannot be read again for every query.
    """
    target = command.argv[parsed.files[1 - program.query]]
    shared = [command.cwd / value for option in SHARED_FILES if (value := parsed.get_value(option))]
    if target == "-":
        raise RefusedError(
            f"{name} can read its targets from standard input for a single query only",
            "write them to a file first",
        )
    if not program.scans:
        return (*_find_sequence_files(name, command, target), *shared)
    found = _find_profile_files(name, command, target)
    if option := _find_cutoff_option(parsed):
        refuse_missing_cutoffs(name, option, target, _list_pressed_without(found[-1].with_suffix(""), option))
    return (*found, *shared)


def _find_profile_files(name: str, command: UserCommand, target: str) -> list[Path]:
    database = find_profile_database(command, target)
    if database is None:
        raise RefusedError(f"{name}: profile database {target} not found", "check the path")
    pressed = [Path(f"{database}{suffix}") for suffix in PRESSED]
    if missing := [path.name for path in pressed if not path.is_file()]:
        raise RefusedError(
            f"{name}: profile database {target} is not pressed, {missing[0]} is missing",
            f"run hmmpress {target} first",
        )
    return [path for path in (database, *pressed) if path.is_file()]


def _find_sequence_files(name: str, command: UserCommand, target: str) -> list[Path]:
    database = command.cwd / target
    if not database.exists() or database.is_dir():
        raise RefusedError(f"{name}: sequence file {target} not found", "check the path")
    if database.suffix == ".gz" or not database.is_file():
        raise RefusedError(
            f"{name} cannot read {target} again for a second query, as it is no plain file",
            f"unpack it first and give {name} the plain file",
        )
    index = Path(f"{database}.ssi")
    return [database, index] if index.is_file() else [database]


def find_profile_database(command: UserCommand, path: str) -> Path | None:
    """Find ``path`` as hmmscan does: as it is, else in the directories of ``PFAMDB``; None: not found."""
    directories = [each for each in command.environ.get("PFAMDB", "").split(":") if each]
    candidates = [command.cwd / path, *(command.cwd / each / path for each in directories)]
    for candidate in candidates:
        if candidate.exists() or Path(f"{candidate}{PRESSED[0]}").exists():
            return candidate
    return None


def _refuse_stale_profiles(name: str, file: Path, path: str) -> None:
    """Refuse a profile file whose pressed form is older: HMMER would read the old form, and batches the new one."""
    pressed = Path(f"{file}{PRESSED[0]}")
    if pressed.is_file() and pressed.stat().st_mtime < file.stat().st_mtime:
        raise RefusedError(
            f"{name}: {path}.h3m is older than {path}, and {name} itself would read the older one",
            f"run hmmpress -f {path}, or remove the old {path}.h3*",
        )


#: The thresholds in a model's header, by the option that asks for them. In this order a pressed profile has them, two each.
CUTOFFS = {"cut_ga": "GA", "cut_tc": "TC", "cut_nc": "NC"}

#: How the first line of a profile begins, and the line behind its header.
PROFILE_LINES = (b"\nHMMER", b"\nHMM")


def find_query(
    name: str, program: HmmerProgram, command: UserCommand, parsed: HmmerCommandLine
) -> tuple[InputUse, tuple[str, ...]]:
    """Find the file to be cut, and the options with which nhmmer reads each batch as it reads the whole file.

    Raises:
        RefusedError: The file is missing, empty or in a format that is not cut.
    """
    path = command.argv[parsed.files[program.query]]
    query_format = parsed.get_value("qformat")
    if query_format is not None and query_format.lower() != "fasta":
        raise RefusedError(
            f"{name} --qformat {query_format}: only FASTA queries are cut",
            "convert the queries first: esl-reformat fasta FILE",
        )
    if path == "-":
        if not command.stdin_is_data:
            raise RefusedError(f"{name} is to read its queries from standard input, which is empty", "give a file")
        kind = "fasta" if query_format else program.formats[0]
        head = b""
    elif is_still_growing(path, command):
        named = find_format_by_suffix(path)
        kind, head = named if named in program.formats else program.formats[0], b""
    else:
        head = _read_head(name, command.cwd / path, path)
        kind = _detect_format(name, program, path, head)
        if kind == "hmm":
            _refuse_stale_profiles(name, command.cwd / path, path)
            _check_profiles(name, command.cwd / path, path, _find_cutoff_option(parsed))
    if name == "nhmmer" and kind == "hmm" and parsed.get_value("hmmout") is not None:
        raise RefusedError("nhmmer --hmmout writes nothing when the queries are profiles", "leave --hmmout away")
    added: tuple[str, ...] = ()
    if name == "nhmmer" and kind == "fasta":
        if option := _find_cutoff_option(parsed):
            raise RefusedError(
                f"nhmmer --{option}: profiles that nhmmer makes of sequences have no {CUTOFFS[option]} thresholds",
                f"leave --{option} out, or search with profiles that have them",
            )
        if path != "-" and query_format is None and parsed.get_value("qsingle_seqs") is None:
            _refuse_alignment(command.cwd / path, path)
        added = _choose_sequence_options(parsed, head)
    hide = (".h3m", ".h3i", ".h3f", ".h3p", ".ssi") if kind == "hmm" else ()
    return InputUse(path=path, format=kind, stdin=path == "-", hide=hide), added


def _read_head(name: str, file: Path, path: str) -> bytes:
    """Read the first bytes of the queries, decompressed, without leading white space."""
    if not file.exists() or file.is_dir():
        raise RefusedError(f"{name}: query file {path} not found", "check the path")
    if not file.is_file():
        raise RefusedError(f"{name}: query file {path} is not a regular file", "use - to read standard input")
    try:
        with _open_unpacked(file) as unpacked:
            head = bytes(unpacked.read(1 << 16)).lstrip()
    except (OSError, EOFError) as error:
        raise RefusedError(f"{name}: query file {path} cannot be read: {error}", "check the file") from error
    if not head:
        raise RefusedError(f"{name}: query file {path} has no queries", f"run {name} by itself")
    return head


def _open_unpacked(file: Path) -> gzip.GzipFile | BufferedReader:
    with file.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b" and file.suffix == ".gz"
    return gzip.open(file, "rb") if packed else file.open("rb")


def _refuse_alignment(file: Path, path: str) -> None:
    """Refuse a file that nhmmer may take for an alignment: one named ``.a2m``, or with records of one length.

    Source: comparison with 3.3.2 and 3.4, which read the whole file to decide; white space does not count.
    """
    hint = (
        "if it holds sequences add --qformat fasta; build a profile of an alignment with hmmbuild, and search with that"
    )
    if file.name.removesuffix(".gz").endswith(".a2m"):
        raise RefusedError(f"nhmmer takes {path} for an alignment by its name", hint)
    lengths = _read_lengths(file)
    first = next(lengths, 0)
    if (second := next(lengths, None)) == first and all(length == second for length in lengths):
        raise RefusedError(
            f"nhmmer: {path} could be either aligned or unaligned: all its sequences have {first:,} residues", hint
        )


def _check_profiles(name: str, file: Path, path: str, option: str) -> None:
    """Refuse a file of profiles that HMMER would not read to its end; ``option``: the cutoff that they must have, or empty."""
    headers = [*read_model_headers(file, *PROFILE_LINES)]
    _refuse_alphabets(name, headers, path)
    if option:
        refuse_missing_cutoffs(name, option, path, list_models_without(headers, CUTOFFS[option]))


def _find_cutoff_option(parsed: HmmerCommandLine) -> str:
    """Return the option that asks for cutoffs of the profiles; empty: none."""
    return next((option for option in CUTOFFS if parsed.get_value(option) is not None), "")


def _list_pressed_without(database: Path, option: str) -> list[str]:
    """Return the names of the pressed profiles that have not the cutoff of ``option``; none if they are not understood."""
    try:
        return _core.profiles_without_cutoff(database, 2 * [*CUTOFFS].index(option))
    except (OSError, ValueError):
        return []  # the tool says what is wrong


def _refuse_alphabets(name: str, headers: Iterable[bytes], path: str) -> None:
    """Refuse profiles of several alphabets: the first profile sets the alphabet, and HMMER stops at another one."""
    found = {_find_field(header, b"ALPH").lower() for header in headers} - {b""}
    if len(found) > 1:
        named = ", ".join(sorted(each.decode(errors="replace") for each in found))
        raise RefusedError(
            f"{name}: {path} has profiles of several alphabets ({named}): {name} ends at the first of another one",
            "put the profiles of each alphabet into a file of its own",
        )


def read_model_headers(file: Path, first: bytes, body: bytes) -> Iterator[bytes]:
    """Yield the header of each model of a text file: from its ``first`` line to the line ``body`` behind the header.

    Args:
        first, body: How these lines begin. Newlines stand for the start of a line.
    """
    with _open_unpacked(file) as models:
        rest = b"\n"
        while block := models.read(1 << 20):
            text = rest + block
            at = text.find(first)
            while at >= 0 and (end := text.find(body, at + len(first))) >= 0:
                yield text[at:end]
                at = text.find(first, end)
            rest = text[at:] if at >= 0 else text[-len(first) :]


def list_models_without(headers: Iterable[bytes], cutoff: str) -> list[str]:
    """Return the names of the models that have no line ``cutoff``, in order."""
    missing = (header for header in headers if not _find_field(header, cutoff.encode()))
    return [_find_field(header, b"NAME").decode(errors="replace") for header in missing]


def refuse_missing_cutoffs(name: str, option: str, path: str, missing: Sequence[str]) -> None:
    """Refuse ``option`` where models are ``missing`` its cutoff: the tool stops at the first one whose cutoff it needs."""
    if missing:
        more = f", nor have {len(missing) - 1:,} others" if len(missing) > 1 else ""
        raise RefusedError(
            f"{name} --{option}: model {missing[0]} of {path} has no {CUTOFFS[option]} thresholds{more}",
            f"leave --{option} out, or search with models that have them; {name} itself ends at the first one without",
        )


def _find_field(header: bytes, field: bytes) -> bytes:
    """Return what follows ``field`` in its line; empty: there is none."""
    at = header.find(b"\n" + field + b" ")
    return header[at + len(field) + 2 :].split(b"\n", 1)[0].strip() if at >= 0 else b""


def _read_lengths(file: Path) -> Iterator[int]:
    """Yield the length of each record in characters, without white space."""
    length = -1
    with _open_unpacked(file) as lines:
        for line in lines:
            if not line.startswith(b">"):
                length += len(b"".join(line.split()))
            elif length >= 0:
                yield length
                length = 0
            else:
                length = 0
    yield max(length, 0)


def _detect_format(name: str, program: HmmerProgram, path: str, head: bytes) -> str:
    kind = "fasta" if head.startswith(b">") else "hmm" if head.startswith(b"HMMER") else ""
    if kind in program.formats:
        return kind
    wanted = " or ".join({"fasta": "FASTA", "hmm": "text profiles (HMMER3/f)"}[each] for each in program.formats)
    hint = {
        "hmmsearch": "build profiles with hmmbuild; make text of pressed ones with hmmconvert",
        "nhmmer": "build profiles from alignments with hmmbuild and search with these",
    }.get(name, "convert the queries first: esl-reformat fasta FILE")
    raise RefusedError(f"{name}: query file {path} is not {wanted}", hint)


def _choose_sequence_options(parsed: HmmerCommandLine, head: bytes) -> tuple[str, ...]:
    """Choose the options that replace guesses of nhmmer from the whole file: no alignment, and the alphabet."""
    added = []
    if parsed.get_value("qformat") is None and parsed.get_value("qsingle_seqs") is None:
        added.append("--qsingle_seqs")
    if parsed.get_value("dna") is None and parsed.get_value("rna") is None:
        added.append(_guess_alphabet(head))
    return tuple(added)


def _guess_alphabet(head: bytes) -> str:
    """Return the option of the alphabet that nhmmer would guess from the first sequence.

    Raises:
        RefusedError: The guess is not certain.
    """
    lines = head.split(b">", 2)[1].splitlines()[1:] if head else []
    residues = b"".join(lines).upper().translate(None, b" \t\r\n-.*")
    letters = {chr(residue) for residue in residues}
    for option, alphabet in (("--dna", set("ACGT")), ("--rna", set("ACGU"))):
        if alphabet <= letters <= alphabet | {"N"} and residues.count(b"N") * 50 <= len(residues) >= 50:
            return option
    raise RefusedError("nhmmer cannot be sure of the alphabet of the first query", "add --dna or --rna")
