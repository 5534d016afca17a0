"""Reader of HMMER command lines, by HMMER's own rules; its programs, their files, and how each output is joined."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from millrace.adapters.adapter_base import is_stream_path
from millrace.adapters.option_reader import CommandWord, OptionErrorTexts, OptionTable, scan_options, split_words
from millrace.adapters.program_identity import read_checked_help
from millrace.core.errors import RefusedError
from millrace.core.tool_use import ArgumentToken, DatabaseArg, InputArg, OutputArg, OutputUse, ToolUse, UserCommand


class HmmerProgram(msgspec.Struct, frozen=True, kw_only=True):
    """Queries and targets of one program."""

    #: Formats of the query: ``fasta``, ``hmm``. Standard input is taken for the first.
    formats: tuple[str, ...]
    #: Index of the query among the two positional arguments.
    query: int
    #: Whether the target is a pressed profile database, not sequences.
    scans: bool = False


PROGRAMS = {
    "hmmscan": HmmerProgram(formats=("fasta",), query=1, scans=True),
    "nhmmscan": HmmerProgram(formats=("fasta",), query=1, scans=True),
    "hmmsearch": HmmerProgram(formats=("hmm",), query=0),
    "phmmer": HmmerProgram(formats=("fasta",), query=0),
    "jackhmmer": HmmerProgram(formats=("fasta",), query=0),
    "nhmmer": HmmerProgram(formats=("hmm", "fasta"), query=0),
}


#: Options that ``-h`` does not show; True: takes an argument.
HIDDEN = {
    **dict.fromkeys(
        split_words("restrictdb_stkey restrictdb_n ssifile bgfile mx domE domT incdomE incdomT domZ B1 B2 B3"), True
    ),
    **dict.fromkeys(split_words("cut_ga cut_nc cut_tc daemon mpi stall"), False),
}

#: Options that do not work with batches: the reason, and what to use instead.
REFUSED = {
    "mpi": (
        "runs its own MPI master",
        "leave --mpi away: millrace does what it does, on any number of nodes",
    ),
    "stall": ("waits for a debugger", "leave --stall away"),
    "daemon": ("serves searches and never ends", "run it directly"),
    **dict.fromkeys(
        ("chkhmm", "chkali"),
        ("names its files by iteration for all queries together", "run jackhmmer directly for checkpoints"),
    ),
}
COMPLAINTS = OptionErrorTexts(
    unknown=("option {typed} is not known", "see {program} -h"),
    no_value=("option {typed} needs an argument", "see {program} -h"),
)
_OPTION = re.compile(r"^ +--?(\w+)(?: (<\w>))? +:.*$", re.MULTILINE)
_VERSION = re.compile(r"^# (HMMER \S.*?)(?:;.*)?$", re.MULTILINE)


class HmmerCommandLine(msgspec.Struct, frozen=True, kw_only=True):
    """Options and files of a command line, as HMMER reads it."""

    options: tuple[CommandWord, ...]
    #: Indexes in argv of the two files.
    files: tuple[int, int]

    def get_value(self, name: str) -> str | None:
        """Return the value of option ``name``, empty if it takes no argument; None: it is not used."""
        word = next((each for each in self.options if each.name == name), None)
        return None if word is None else word.value if word.values else ""


def read_help_page(command: UserCommand) -> str:
    """Run the program with ``-h`` and the user's options, so that HMMER checks them, and return its help page.

    Raises:
        RefusedError: It cannot be started, or does not accept the options.
    """
    if "-h" in command.argv[1:]:
        raise RefusedError(f"{command.tool} -h only prints help", f"run it directly: {command.tool} -h")
    return read_checked_help(command, ("-h", *command.argv[1:]), "# HMMER 3", "HMMER")


def parse_help_options(help_page: str) -> dict[str, bool]:
    """Read from a help page which options exist, without dashes, and whether each takes an argument.

    >>> parse_help_options("  -o <f>  : direct output\\n  --acc   : prefer accessions")["o"]
    True
    """
    shown = {name: bool(argument) for name, argument in _OPTION.findall(help_page)}
    return HIDDEN | shown


def parse_version(help_page: str) -> str:
    """Return the version in the banner, such as ``HMMER 3.3.2 (Nov 2020)``; empty if there is none."""
    found = _VERSION.search(help_page)
    return found[1] if found else ""


def parse_command_line(argv: tuple[str, ...], arguments: Mapping[str, bool]) -> HmmerCommandLine:
    """Read the command line as HMMER does: options first, which may be shortened, then two files.

    Raises:
        RefusedError: There are not two files, or an option is unknown.
    """
    options = OptionTable(
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
    found = scan_options(argv, options, argv[0])
    files = [word.at for word in found if not word.name]
    if len(files) != 2:
        raise RefusedError(
            f"{argv[0]} needs two files after its options, found {len(files)}",
            "HMMER takes all options first, then the two files",
        )
    return HmmerCommandLine(options=tuple(word for word in found if word.name), files=(files[0], files[1]))


def add_dashes(name: str) -> str:
    """Return an option as it is typed, with one dash or two.

    >>> add_dashes("o"), add_dashes("cpu")
    ('-o', '--cpu')
    """
    return f"-{name}" if len(name) == 1 else f"--{name}"


def refuse_options(name: str, parsed: HmmerCommandLine) -> None:
    """Refuse options with which the output of batches is not the serial output.

    Raises:
        RefusedError: There is an option of ``REFUSED``, or a seed that differs from run to run.
    """
    for option in parsed.options:
        if option.name in REFUSED:
            reason, hint = REFUSED[option.name]
            raise RefusedError(f"{name} {add_dashes(option.name)} {reason}", hint)
    seed = parsed.get_value("seed")
    if seed is not None and parse_c_integer(seed) == 0:
        raise RefusedError(
            f"{name} --seed 0 takes another seed in every run, so there is no output to be equal to",
            "leave --seed away or give any other number",
        )


def parse_c_integer(text: str) -> int:
    """Read a number as C's ``atoi`` does, which HMMER uses; 0 if there is none.

    >>> parse_c_integer("007"), parse_c_integer("0x10")
    (7, 0)
    """
    found = re.match(r"\s*[-+]?\d+", text)
    return int(found[0]) if found else 0


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

#: Options that change only the layout of a report.
LOOKS = frozenset({*OUTPUTS, "acc", "noali", "notextw", "textw"})

#: Lines that differ between two serial runs, by join; ``--hmmout`` by name.
VOLATILE = {
    "hmmer-report": ("^# CPU time: .*$", "^# Mc/sec: .*$"),
    "hmmer-table": ("^# Date: .*$",),
    "hmmer-sections": ("^# Date: .*$",),
    "hmmout": ("^DATE  .*$",),
}


def find_outputs(
    command: UserCommand, parsed: HmmerCommandLine, added: str
) -> tuple[tuple[OutputUse, ...], dict[int, OutputArg]]:
    """Find the outputs and the indexes of their paths in argv. Without ``-o`` the report goes to standard output.

    Raises:
        RefusedError: Two outputs go to one file, or one goes to a device.
    """
    outputs: list[OutputUse] = []
    places: dict[int, OutputArg] = {}
    if parsed.get_value("o") is None:
        outputs.append(_describe_output("o", "-", added, stdout=True))
    taken: dict[Path, str] = {}
    for option in parsed.options:
        if option.name not in OUTPUTS or option.value == "/dev/null":
            continue
        path = command.cwd / option.value
        if is_stream_path(option.value) or path.is_fifo():
            hint = "leave -o away for standard output; give every other output a file of its own"
            raise RefusedError(f"{add_dashes(option.name)} {option.value} is not a regular file", hint)
        key = path.resolve()
        if key in taken:
            raise RefusedError(
                f"{add_dashes(taken[key])} and {add_dashes(option.name)} both write to {option.value}",
                "give every output a file of its own",
            )
        taken[key] = option.name
        places[option.value_at] = OutputArg(index=len(outputs), prefix=option.prefix)
        outputs.append(_describe_output(option.name, option.value, added))
    return tuple(outputs), places


def _describe_output(option: str, path: str, added: str, *, stdout: bool = False) -> OutputUse:
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


def add_searched_files(
    options: Sequence[ArgumentToken], command: UserCommand, use: ToolUse, k: int, n_targets: int
) -> tuple[ArgumentToken, ...]:
    """Add the files to the ``options`` of the search of fragment ``k``, which has ``n_targets``."""
    query = "-" if use.inputs[0].stdin else InputArg(index=0)
    if PROGRAMS[command.tool].scans:
        return (*options, "--", DatabaseArg(), query)
    place = ("--restrictdb_stkey", f"fragment-{k:05}", "--restrictdb_n", str(n_targets), "--ssifile", DatabaseArg())
    return (*options, *place, "--", query, command.argv[-1])


def read_copied_targets(argv: Sequence[ArgumentToken]) -> tuple[ArgumentToken, ...]:
    """Turn the search of a range of the whole file into the search of a file with only its sequences."""
    at = argv.index("--restrictdb_stkey")
    return (*argv[:at], "--", argv[-2], DatabaseArg())
