"""The files of the census: which packages, which commands, and what is expected of each."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec

HERE = Path(__file__).resolve().parent
PROGRAMS, RESULTS = HERE / "programs", HERE / "results"


#: What stands for something in a command: an input, a folder, and two words. Other braces are the program's own.
PLACE = re.compile(r"\{([\w-]+\.[\w.-]+|[\w-]+/|threads|stem)\}")


class CensusCommand(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """One command; ``{dna.fa}`` in it is an input that is cut, ``{threads}`` a number of threads, ``out*`` an output.

    ``{families/}`` is a folder: each file is a whole input, and ``{stem}`` in the command its name.
    """

    run: str
    #: ``exact``, ``refused`` (before it starts), or ``stopped`` (by the check, while it runs).
    expect: str = "exact"
    #: What is expected instead with the releases of other suites of Debian; ``fails``: the command itself does not work.
    suites: dict[str, str] = {}
    #: Whether it is typed behind ``millrace run --`` as it is, without ``--input`` and ``--output``.
    known: bool = False
    #: As ``--join`` of ``millrace run``; for known programs what Millrace does by itself.
    join: list[str] = []
    #: Exit statuses besides 0 that are results.
    ok: list[int] = []
    #: Format of the inputs, where their names do not tell it.
    format: str = ""
    #: Further options of ``millrace run``.
    options: str = ""
    #: Pattern of lines that two equal runs write otherwise, such as times; they are not compared.
    ignore: str = ""
    #: Why it is refused although pieces gave the same bytes, or what else a reader must know.
    note: str = ""

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs that are cut."""
        return [name for name in PLACE.findall(self.run) if name not in ("threads", "stem")]

    def get_expected(self, suite: str) -> str:
        """Return what is expected with the releases of a suite of Debian; empty: of this machine."""
        return self.suites.get(suite, self.expect)

    @property
    def has_threads(self) -> bool:
        """Whether its threads can be set."""
        return "{threads}" in self.run

    def format_line(self, threads: int = 1) -> str:
        """Return the command as a user types it."""
        return PLACE.sub(lambda found: self._fill(found[1], threads), self.run)

    def _fill(self, name: str, threads: int) -> str:
        return "{stem}" if name == "stem" else str(threads) if name == "threads" else name.rstrip("/")


class RefusedCalls(msgspec.Struct, forbid_unknown_fields=True):
    """Calls of programs that Millrace refuses, as the census found that parts do not make the whole."""

    #: Names, with blanks between them.
    programs: str
    #: Completes "PROGRAM ...".
    why: str
    #: What works: ``pipe``, ``alone``, ``folder``, ``header``, or a text.
    instead: str = "alone"
    #: Pattern of an argument, or of an option and the argument behind it with a blank between; empty: all calls.
    when: str = ""
    #: Such a pattern of calls that are exact.
    unless: str = ""
    #: Kind of ``--join`` with which it is exact.
    join: str = ""


class CensusFile(msgspec.Struct, forbid_unknown_fields=True):
    """Programs of some packages."""

    programs: dict[str, list[CensusCommand | str]]
    debian: list[str] = []
    pypi: list[str] = []
    refused: list[RefusedCalls] = []
    #: Shell commands that make databases of the inputs, once.
    setup: list[str] = []
    env: dict[str, str] = {}
    #: Record formats of inputs by name, for all commands.
    formats: dict[str, str] = {}

    def list_commands(self) -> list[tuple[str, CensusCommand]]:
        """List all commands with their programs."""
        return [
            (name, CensusCommand(each) if isinstance(each, str) else each)
            for name, commands in self.programs.items()
            for each in commands
        ]


def read_census_file(name: str) -> CensusFile:
    """Read ``census/programs/NAME.toml``.

    Raises:
        SystemExit: There is none, or it is not valid; the message says where.
    """
    path = PROGRAMS / f"{name}.toml"
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), CensusFile)
    except FileNotFoundError:
        raise SystemExit(f"census: {path}: no such file; there are: {', '.join(list_names())}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SystemExit(f"census: {path}: {error}") from error


def list_names() -> list[str]:
    """List the names of all files."""
    return sorted(path.stem for path in PROGRAMS.glob("*.toml"))
