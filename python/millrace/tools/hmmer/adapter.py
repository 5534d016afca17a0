"""HMMER 3: hmmscan, hmmsearch, phmmer, jackhmmer, nhmmer and nhmmscan.

Exactness. HMMER searches one query after the other and starts anew for each: its random numbers are
re-seeded, and ``Z`` counts the targets, never the queries. So the queries of all batches together are the
queries of the serial run; what is left is text that HMMER writes once a run, which the ``hmmer-`` joins keep
to once. Rule and test of every program and output: ``docs/exactness-hmmer.md``.

The tool itself says which options it knows (``-h``), so that no version is written down here.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from millrace.errors import RefusedError
from millrace.model import (
    STANDSTILL_SECONDS,
    Command,
    CostHint,
    InputArg,
    InputUse,
    OutputArg,
    OutputUse,
    Token,
    ToolUse,
)
from millrace.tools.base import Parts, with_suffixes
from millrace.tools.options import Complaints, Options, Word, scan

#: Name and join of each option that takes an output file.
OUTPUTS = {
    "o": ("out", "hmmer-report"),
    "A": ("alignment", "concat"),
    "tblout": ("tblout", "hmmer-table"),
    "domtblout": ("domtblout", "hmmer-table"),
    "pfamtblout": ("pfamtblout", "hmmer-sections"),
    "dfamtblout": ("dfamtblout", "hmmer-sections"),
    "aliscoresout": ("aliscoresout", "concat"),
    "hmmout": ("hmmout", "concat"),
}
#: What differs between two serial runs, by join; ``--hmmout`` by name.
VOLATILE = {
    "hmmer-report": ("^# CPU time: .*$", "^# Mc/sec: .*$"),
    "hmmer-table": ("^# Date: .*$",),
    "hmmer-sections": ("^# Date: .*$",),
    "hmmout": ("^DATE  .*$",),
}

#: Options that ``-h`` does not show; True: takes an argument.
HIDDEN = {
    "restrictdb_stkey": True,
    "restrictdb_n": True,
    "ssifile": True,
    "bgfile": True,
    "mx": True,
    "domE": True,
    "domT": True,
    "incdomE": True,
    "incdomT": True,
    "domZ": True,
    "B1": True,
    "B2": True,
    "B3": True,
    "cut_ga": False,
    "cut_nc": False,
    "cut_tc": False,
    "daemon": False,
    "mpi": False,
    "stall": False,
}

#: Options whose work cannot be cut, with the reason and what to use instead.
REFUSED = {
    "mpi": (
        "runs its own MPI master",
        "leave --mpi away: millrace does what it does, on any number of nodes",
    ),
    "stall": ("waits for a debugger", "leave --stall away"),
    "daemon": ("serves searches and never ends", "run it directly"),
    "chkhmm": (
        "names its files by iteration for all queries together",
        "run jackhmmer directly for checkpoints",
    ),
    "chkali": (
        "names its files by iteration for all queries together",
        "run jackhmmer directly for checkpoints",
    ),
}

#: Options that name a file all tasks read.
SHARED_FILES = ("mxfile", "bgfile", "ssifile")

#: What ``hmmpress`` writes next to a profile database.
PRESSED = (".h3m", ".h3i", ".h3f", ".h3p")

COMPLAINTS = Complaints(
    unknown=("option {typed} is not known", "see {program} -h"),
    no_value=("option {typed} needs an argument", "see {program} -h"),
)

_OPTION = re.compile(r"^ +--?(\w+)(?: (<\w>))? +:.*$", re.MULTILINE)
_DEFAULT_CPU = re.compile(r"^ +--cpu <n> +:.*\[(\d+)\]", re.MULTILINE)
_VERSION = re.compile(r"^# (HMMER \S.*?)(?:;.*)?$", re.MULTILINE)


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between the programs."""

    #: Formats of the query: ``fasta``, ``hmm``; the first is taken for standard input.
    formats: tuple[str, ...]
    #: Which of the two positional arguments the query is.
    query: int
    #: Whether the other one is a pressed profile database instead of sequences.
    scans: bool = False


PROGRAMS = {
    "hmmscan": Program(formats=("fasta",), query=1, scans=True),
    "nhmmscan": Program(formats=("fasta",), query=1, scans=True),
    "hmmsearch": Program(formats=("hmm",), query=0),
    "phmmer": Program(formats=("fasta",), query=0),
    "jackhmmer": Program(formats=("fasta",), query=0),
    "nhmmer": Program(formats=("hmm", "fasta"), query=0),
}


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A command line as HMMER reads it."""

    options: tuple[Word, ...]
    #: Indexes in argv of the two files.
    files: tuple[int, int]

    def value(self, name: str) -> str | None:
        """Value of option ``name`` (empty for one without argument), or None where it is not used."""
        word = next((each for each in self.options if each.name == name), None)
        return None if word is None else word.value if word.values else ""


class HmmerAdapter:
    """The HMMER 3 search programs."""

    def parts(self, argv: Sequence[str], at: int, name: str) -> Parts:
        """See `Gathering`: a file of profiles or sequences, with what was made of it."""
        return with_suffixes(name, (*PRESSED, ".ssi"))

    def named_in(self, name: str, read: Callable[[], bytes]) -> dict[str, Parts]:
        """See `Gathering`."""
        return {}

    def understand(self, command: Command) -> ToolUse:
        """Find queries, targets and outputs; asks the program for its help page, which checks all options.

        Raises:
            RefusedError: An option or file that does not work, in HMMER's words or ours.
        """
        name = Path(command.argv[0]).name
        program = PROGRAMS[name]
        help_page = ask(command)
        parsed = parse(command.argv, option_arguments(help_page))
        refuse_options(name, parsed)
        databases = find_databases(name, program, command, parsed)
        query, added = find_query(name, program, command, parsed)
        threads, env, cpu, note = choose_threads(name, help_page, command, parsed)
        outputs, output_at = find_outputs(command, parsed, ",".join((*added, *cpu)))
        argv = list[Token](command.argv)
        for at, token in output_at.items():
            argv[at] = token
        if not query.stdin:
            argv[parsed.files[program.query]] = InputArg(index=0)
        argv[1:1] = added
        notes = [note] if note else []
        if added:
            notes.append(f"{' '.join(added)} added, so that no batch of queries is taken for an alignment")
        return ToolUse(
            adapter="hmmer",
            still_seconds=STANDSTILL_SECONDS,
            argv=tuple(argv),
            inputs=(query,),
            outputs=outputs,
            databases=databases,
            threads=threads,
            env=env,
            cost=CostHint(unit="residues" if query.format == "fasta" else "bytes", startup_seconds=0.002),
            version=version(help_page),
            tested=("3.3.2", "3.4"),
            notes=tuple(notes),
        )


def ask(command: Command) -> str:
    """Help page of the program, asked for together with the user's options, so that HMMER checks them all.

    Raises:
        RefusedError: It cannot be started, or says what is wrong with the options.
    """
    name, options = Path(command.argv[0]).name, command.argv[1:]
    if "-h" in options:
        raise RefusedError(f"{name} -h only prints help", f"run it directly: {name} -h")
    try:
        answer = subprocess.run(
            [command.argv[0], "-h", *options],
            executable=command.exe,
            cwd=command.cwd,
            env=command.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RefusedError(f"{name} cannot be started: {error}", "check that HMMER is installed") from error
    if answer.returncode != 0 or "# HMMER 3" not in answer.stdout:
        words = (answer.stdout + answer.stderr).strip().splitlines() or ["no answer"]
        problem = words[0].removeprefix("Failed to parse command line: ").rstrip(".")
        raise RefusedError(f"{name} does not take these options: {problem}", f"see {name} -h")
    return answer.stdout


def option_arguments(help_page: str) -> dict[str, bool]:
    """Which options there are, without dashes, and whether each takes an argument, from the program's help page.

    >>> option_arguments("  -o <f>  : direct output\\n  --acc   : prefer accessions")["o"]
    True
    """
    shown = {name: bool(argument) for name, argument in _OPTION.findall(help_page)}
    return HIDDEN | shown


def version(help_page: str) -> str:
    """Version as the banner has it: ``HMMER 3.3.2 (Nov 2020)``."""
    found = _VERSION.search(help_page)
    return found[1] if found else ""


def parse(argv: tuple[str, ...], arguments: Mapping[str, bool]) -> Parsed:
    """Read the command line as HMMER does: options first, long ones may be shortened, then two files.

    Raises:
        RefusedError: There are not two files, or an option is not known.
    """
    options = Options(
        flags=frozenset(name for name, takes in arguments.items() if not takes),
        values=frozenset(name for name, takes in arguments.items() if takes),
        dashes="tell",
        equals=True,
        shorten=True,
        together=True,
        ends=True,
        leading=True,
        complaints=COMPLAINTS,
    )
    found = scan(argv, options, argv[0])
    files = [word.at for word in found if not word.name]
    if len(files) != 2:
        raise RefusedError(
            f"{argv[0]} needs two files after its options, found {len(files)}",
            "HMMER takes all options first, then the two files",
        )
    return Parsed(options=tuple(word for word in found if word.name), files=(files[0], files[1]))


def dashed(name: str) -> str:
    """An option as it is typed.

    >>> dashed("o"), dashed("cpu")
    ('-o', '--cpu')
    """
    return f"-{name}" if len(name) == 1 else f"--{name}"


def refuse_options(name: str, parsed: Parsed) -> None:
    """Refuse what cannot be exact.

    Raises:
        RefusedError: An option of `REFUSED`, or a seed that differs from run to run.
    """
    for option in parsed.options:
        if option.name in REFUSED:
            reason, hint = REFUSED[option.name]
            raise RefusedError(f"{name} {dashed(option.name)} {reason}", hint)
    seed = parsed.value("seed")
    if seed is not None and c_integer(seed) == 0:
        raise RefusedError(
            f"{name} --seed 0 takes another seed in every run, so there is no output to be equal to",
            "leave --seed away or give any other number",
        )


def c_integer(text: str) -> int:
    """Value of ``text`` for C's ``atoi``, which HMMER uses.

    >>> c_integer("007"), c_integer("0x10")
    (7, 0)
    """
    found = re.match(r"\s*[-+]?\d+", text)
    return int(found[0]) if found else 0


def find_outputs(command: Command, parsed: Parsed, added: str) -> tuple[tuple[OutputUse, ...], dict[int, OutputArg]]:
    """Outputs and the places of their paths in argv; the report is on standard output unless ``-o`` is used.

    Raises:
        RefusedError: Two outputs go to one file, or one to a device.
    """
    outputs: list[OutputUse] = []
    places: dict[int, OutputArg] = {}
    if parsed.value("o") is None:
        outputs.append(_output("o", "-", added, stdout=True))
    taken: dict[Path, str] = {}
    for option in parsed.options:
        if option.name not in OUTPUTS or option.value == "/dev/null":
            continue
        path = command.cwd / option.value
        if option.value.startswith(("/dev/", "/proc/")) or path.is_fifo():
            hint = "leave -o away for standard output; give every other output a file of its own"
            raise RefusedError(f"{dashed(option.name)} {option.value} is not a regular file", hint)
        key = path.resolve()
        if key in taken:
            raise RefusedError(
                f"{dashed(taken[key])} and {dashed(option.name)} both write to {option.value}",
                "give every output a file of its own",
            )
        taken[key] = option.name
        places[option.value_at] = OutputArg(index=len(outputs), prefix=option.prefix)
        outputs.append(_output(option.name, option.value, added))
    return tuple(outputs), places


def _output(option: str, path: str, added: str, *, stdout: bool = False) -> OutputUse:
    name, join = OUTPUTS[option]
    # A file that is named "-" is not standard output for HMMER.
    path = f"./{path}" if path == "-" and not stdout else path
    return OutputUse(
        name="stdout" if stdout else name,
        path=path,
        stdout=stdout,
        join=f"{join}:{added}" if added and join.startswith("hmmer-") else join,
        volatile=VOLATILE.get(name, VOLATILE.get(join, ())),
    )


def find_databases(name: str, program: Program, command: Command, parsed: Parsed) -> tuple[Path, ...]:
    """Files that all tasks read: the targets, and matrices and the like.

    Raises:
        RefusedError: They are missing, or cannot be read once for every query.
    """
    target = command.argv[parsed.files[1 - program.query]]
    shared = [command.cwd / value for option in SHARED_FILES if (value := parsed.value(option))]
    if target == "-":
        raise RefusedError(
            f"{name} can read its targets from standard input for a single query only",
            "write them to a file first",
        )
    found = _profiles(name, command, target) if program.scans else _sequences(name, command, target)
    return (*found, *shared)


def _profiles(name: str, command: Command, target: str) -> list[Path]:
    database = profile_database(command, target)
    if database is None:
        raise RefusedError(f"{name}: profile database {target} not found", "check the path")
    pressed = [Path(f"{database}{suffix}") for suffix in PRESSED]
    if missing := [path.name for path in pressed if not path.is_file()]:
        raise RefusedError(
            f"{name}: profile database {target} is not pressed, {missing[0]} is missing",
            f"run hmmpress {target} first",
        )
    return [path for path in (database, *pressed) if path.is_file()]


def _sequences(name: str, command: Command, target: str) -> list[Path]:
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


def profile_database(command: Command, path: str) -> Path | None:
    """Find ``path`` as hmmscan does: as it is, else in the directories of PFAMDB."""
    directories = [each for each in command.environ.get("PFAMDB", "").split(":") if each]
    candidates = [command.cwd / path, *(command.cwd / each / path for each in directories)]
    for candidate in candidates:
        if candidate.exists() or Path(f"{candidate}{PRESSED[0]}").exists():
            return candidate
    return None


def find_query(name: str, program: Program, command: Command, parsed: Parsed) -> tuple[InputUse, tuple[str, ...]]:
    """The file to be cut, and the options that nhmmer needs to read every batch as it reads the whole file.

    Raises:
        RefusedError: It is missing, empty or in a format that is not cut.
    """
    path = command.argv[parsed.files[program.query]]
    query_format = parsed.value("qformat")
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
    else:
        head = _head(name, command.cwd / path, path)
        kind = _format(name, program, path, head)
        if kind == "hmm":
            _refuse_stale(name, command.cwd / path, path)
    if name == "nhmmer" and kind == "hmm" and parsed.value("hmmout") is not None:
        raise RefusedError("nhmmer --hmmout writes nothing when the queries are profiles", "leave --hmmout away")
    added = _read_as_sequences(parsed, head) if name == "nhmmer" and kind == "fasta" else ()
    hide = (".h3m", ".h3i", ".h3f", ".h3p", ".ssi") if kind == "hmm" else ()
    return InputUse(path=path, format=kind, stdin=path == "-", hide=hide), added


def _head(name: str, file: Path, path: str) -> bytes:
    """First bytes of the queries, unpacked, without leading white space."""
    if not file.exists() or file.is_dir():
        raise RefusedError(f"{name}: query file {path} not found", "check the path")
    if not file.is_file():
        raise RefusedError(f"{name}: query file {path} is not a regular file", "use - to read standard input")
    try:
        with file.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b" and file.suffix == ".gz"
        with gzip.open(file, "rb") if packed else file.open("rb") as unpacked:
            head = bytes(unpacked.read(1 << 16)).lstrip()
    except (OSError, EOFError) as error:
        raise RefusedError(f"{name}: query file {path} cannot be read: {error}", "check the file") from error
    if not head:
        raise RefusedError(f"{name}: query file {path} is empty", f"{name} itself stops at an empty query file")
    return head


def _format(name: str, program: Program, path: str, head: bytes) -> str:
    kind = "fasta" if head.startswith(b">") else "hmm" if head.startswith(b"HMMER") else ""
    if kind in program.formats:
        return kind
    wanted = " or ".join({"fasta": "FASTA", "hmm": "text profiles (HMMER3/f)"}[each] for each in program.formats)
    hint = {
        "hmmsearch": "build profiles with hmmbuild; make text of pressed ones with hmmconvert",
        "nhmmer": "build profiles from alignments with hmmbuild and search with these",
    }.get(name, "convert the queries first: esl-reformat fasta FILE")
    raise RefusedError(f"{name}: query file {path} is not {wanted}", hint)


def _refuse_stale(name: str, file: Path, path: str) -> None:
    """Refuse a profile file whose pressed form is older: HMMER would read that, and we cut the new one."""
    pressed = Path(f"{file}{PRESSED[0]}")
    if pressed.is_file() and pressed.stat().st_mtime < file.stat().st_mtime:
        raise RefusedError(
            f"{name}: {path}.h3m is older than {path}, and {name} itself would read the older one",
            f"run hmmpress -f {path}, or remove the old {path}.h3*",
        )


def _read_as_sequences(parsed: Parsed, head: bytes) -> tuple[str, ...]:
    """Options that tell nhmmer what it guesses from the whole file: no alignment, and which alphabet."""
    added = []
    if parsed.value("qformat") is None and parsed.value("qsingle_seqs") is None:
        added.append("--qsingle_seqs")
    if parsed.value("dna") is None and parsed.value("rna") is None:
        added.append(_alphabet(head))
    return tuple(added)


def _alphabet(head: bytes) -> str:
    """Which alphabet nhmmer takes the first sequence for, where there is no doubt."""
    lines = head.split(b">", 2)[1].splitlines()[1:] if head else []
    residues = b"".join(lines).upper().translate(None, b" \t\r\n-.*")
    letters = {chr(residue) for residue in residues}
    for option, alphabet in (("--dna", set("ACGT")), ("--rna", set("ACGU"))):
        if alphabet <= letters <= alphabet | {"N"} and residues.count(b"N") * 50 <= len(residues) >= 50:
            return option
    raise RefusedError("nhmmer cannot be sure of the alphabet of the first query", "add --dna or --rna")


def choose_threads(
    name: str, help_page: str, command: Command, parsed: Parsed
) -> tuple[int, dict[str, str], tuple[str, ...], str]:
    """Threads of a task, environment that sets them, the option that HMMER prints for it, the reason.

    HMMER gives the same hits, values and order with any number of threads, and without worker threads it
    needs the least CPU. It then says so in its output, which the joins take out again. nhmmer cuts long
    targets by another rule without workers, so it keeps one; and it always prints the number, which the join
    sets right.
    """
    cores = os.sysconf("SC_NPROCESSORS_ONLN")
    asked = parsed.value("cpu") or command.environ.get("HMMER_NCPU")
    if asked is not None:
        threads = max(1, c_integer(asked))
        note = f"{threads} threads a task, as the command asks; without --cpu a task needs less CPU"
        return threads, {}, (), note
    default = _DEFAULT_CPU.search(help_page)
    workers = "1" if name == "nhmmer" else "0"
    if default is None or default[1] == workers:
        return 1, {}, (), ""
    printed = f"={min(int(default[1]), cores)}" if name == "nhmmer" else ""
    note = f"one thread a task (HMMER_NCPU={workers}): same output, least CPU"
    return 1, {"HMMER_NCPU": workers}, (f"--cpu {workers}{printed}",), note
