"""The job: all settings of a user, from the command line or a TOML file, checked in one place."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from millrace.core import record_formats
from millrace.core.errors import RefusedError
from millrace.core.replica_rules import ReplicaRule
from millrace.core.replica_rules import check_replica_rules as check_replicas

#: Far above the cores of any one machine; a typing error ends here, not in exhausted memory.
MAX_SLOTS = 16384

#: Records or units of size in a fixed batch; keeps sums within 64 bits.
MAX_BATCH_SIZE = 2**32

#: Far above a useful number: each fragment costs one start of the tool for each batch.
MAX_FRAGMENTS = 4096

Slots = Annotated[int, msgspec.Meta(ge=1, le=MAX_SLOTS)]
ExitStatus = Annotated[int, msgspec.Meta(ge=1, le=255)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
ProgressMode = Literal["auto", "bar", "plain", "json", "none"]


class ArchOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Settings for nodes of one architecture."""

    #: The program there: a path, or a name on that node's ``PATH``.
    exe: Annotated[str, msgspec.Meta(min_length=1)]


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """One job. A TOML file has the same names as the command line's options, and ``command``."""

    command: tuple[str, ...]
    #: Name of the known tool, if the command's program has another name.
    known_as: str = msgspec.field(default="", name="as")
    slots: Slots | None = None
    run_dir: str = ""
    #: Folder with run directories that are found by what they compute (``run_dir`` takes precedence), and with what
    #: earlier runs have computed (``docs/reuse.md``).
    store: str = ""
    work_dir: str = ""
    fresh: bool = False
    input: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    #: Ways of joining outputs: ``millrace.adapters.joins``.
    join: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    #: Exit statuses besides 0 that mean success.
    ok_status: tuple[ExitStatus, ...] = ()
    format: str = ""
    #: The program stays alive and takes records one by one (``docs/records.md``).
    records: bool = False
    #: The tool is started once a slot, up to its first touch of the input, and forked for each task (``docs/warm.md``).
    warm: bool = False
    record_start: str = ""
    record_end: str = ""
    batch: str = "auto"
    fragments: str = "auto"
    retries: Annotated[int, msgspec.Meta(ge=0)] = 1
    record_timeout: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    on_failure: Literal["quarantine", "stop"] = "quarantine"
    #: Most records to quarantine: ``auto``, a number, or a share (``2%``).
    max_quarantined: str = "auto"
    retry_quarantined: bool = False
    keep_run_dir: bool = False
    #: Whether an output grows under another name, and gets its own when it is whole; None: in a pipeline.
    atomic_output: bool | None = None
    #: Most seconds between a signal and the end of the run.
    grace: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 10.0
    #: What the event log has of reads and writes: nothing, totals of tasks, or calls on each file, too.
    profile_io: Literal["", "tasks", "files"] = ""
    #: Longest time in seconds until a committed result is synced to the disk.
    sync: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 1.0
    #: The user asserts that the program treats each record by itself.
    independent: bool = False
    #: Share of the input that is run again, cut elsewhere; None: a small share if the tool is unknown.
    verify: Fraction | None = None
    progress: ProgressMode = "auto"
    #: File that is kept with the latest figures, as OpenMetrics; empty: none.
    metrics: str = ""
    #: Command for ``sh`` that is run at trouble and at the end, with a JSON object on standard input; empty: none.
    notify: str = ""
    #: Location of database copies on nodes: ``auto``, ``ram``, ``disk``, ``off`` or a folder.
    stage: str = "auto"
    #: Number of nodes that keep each volume of a database on shared storage; None: it is decided.
    replicas: Annotated[int, msgspec.Meta(ge=1)] | None = None
    #: Way of writing the outputs of a run on several nodes: ``millrace.scheduler.write_extents``.
    write: Literal["auto", "merge", "individual", "collective", "coordinator"] = "auto"
    #: Nodes to spread the run over, as ``a,b,c`` or ``n[1-8]``.
    hosts: tuple[str, ...] = ()
    #: Dask cluster to run on: the address of its scheduler, or a scheduler file; empty: none.
    dask: str = ""
    #: Longest time in seconds without Dask's scheduler.
    patience: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 600.0
    #: By architecture, as named by ``uname -m``.
    arch: dict[str, ArchOptions] = {}
    #: Nodes in a partition with a leader; None: no partitions up to some hundred nodes, then a chosen size.
    partition_size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    #: Rules for replicas of files.
    replica: tuple[ReplicaRule, ...] = ()
    #: Model of the costs of reading: ``millrace.storage.cost_table.load_cost_model``.
    costs: str = "fitted"
    nice: Annotated[int, msgspec.Meta(ge=0, le=19)] = 0
    #: -1 quiet, 0 normal, 1 verbose, 2 with the debug log.
    verbosity: Annotated[int, msgspec.Meta(ge=-1, le=2)] = 0

    @property
    def tool_grace_seconds(self) -> float:
        """The part of ``grace`` in which running tools may end; the rest is for what they wrote."""
        return 0.7 * self.grace

    @property
    def write_grace_seconds(self) -> float:
        """The part of ``grace`` in which finished results are written to the outputs; the journal has them in any case."""
        return 0.2 * self.grace

    @property
    def progress_shown(self) -> ProgressMode:
        """The progress display: none if the user wants quiet, and asks for no other."""
        return "none" if self.verbosity < 0 and self.progress == "auto" else self.progress

    def find_program(self, machine: str) -> str:
        """Return the program for an architecture: the one set for it, else the first word of the command."""
        return self.arch[machine].exe if machine in self.arch else self.command[0]

    @property
    def batch_size(self) -> tuple[int, int]:
        """(records, bytes) of a fixed batch; (0, 0) for ``auto``."""
        return parse_batch(self.batch)

    @property
    def quarantine_limit(self) -> tuple[int | None, float | None]:
        """(records, share) that may be quarantined; both None for ``auto``."""
        return parse_quarantine_limit(self.max_quarantined)

    @property
    def fragment_size(self) -> tuple[int, int]:
        """(number of fragments, bytes of a fragment) as asked; (0, 0) for ``auto``."""
        return parse_fragments(self.fragments)


def parse_batch(text: str) -> tuple[int, int]:
    """Parse ``auto`` into (0, 0), ``100`` into (100 records, 0), ``64K``, ``10M``, ``1G`` into (0, bytes).

    Raises:
        RefusedError: It is none of these.
    """
    if text == "auto":
        return (0, 0)
    found = re.fullmatch(r"([1-9][0-9]*)([KMG]?)(?:i?B)?", text, re.IGNORECASE)
    if not found:
        raise RefusedError(
            f"--batch {text}: not a batch size", "use auto, a number of records (100), or a size (64K, 10M)"
        )
    number, unit = int(found[1]), found[2].upper()
    if number > MAX_BATCH_SIZE:
        raise RefusedError(
            f"--batch {text}: too large", "leave it out: batches then get their size from measured times"
        )
    if not unit and not text.lower().endswith("b"):
        return (number, 0)
    return (0, number * 1024 ** " KMG".index(unit or " "))


def parse_quarantine_limit(text: str) -> tuple[int | None, float | None]:
    """Parse ``auto`` into (None, None), ``100`` into (100, None), ``2%``, ``0.5%`` into (None, share).

    Raises:
        RefusedError: It is none of these.
    """
    if text == "auto":
        return (None, None)
    if re.fullmatch(r"[0-9]{1,12}", text):
        return (int(text), None)
    if (found := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", text)) and float(found[1]) <= 100:
        return (None, float(found[1]) / 100)
    raise RefusedError(
        f"--max-quarantined {text}: neither a number of records nor a share",
        "use auto, a number (500), or a share (2%)",
    )


def parse_fragments(text: str) -> tuple[int, int]:
    """Parse ``auto`` into (0, 0), ``8`` into (8 fragments, 0), ``500M``, ``2G`` into (0, bytes).

    Raises:
        RefusedError: It is none of these.
    """
    if text == "auto":
        return (0, 0)
    found = re.fullmatch(r"([1-9][0-9]*)(?:([KMGT])(?:i?B)?)?", text, re.IGNORECASE)
    if not found or (not found[2] and int(found[1]) > MAX_FRAGMENTS):
        raise RefusedError(
            f"--fragments {text}: neither a number of fragments nor a size",
            f"use auto, a number up to {MAX_FRAGMENTS} (8), or the size of a fragment (500M, 2G)",
        )
    if not found[2]:
        return (int(found[1]), 0)
    return (0, int(found[1]) * 1024 ** " KMGT".index(found[2].upper()))


def check_stage(text: str) -> None:
    """Check that ``text`` names a location for copies of databases.

    Raises:
        RefusedError: It does not.
    """
    if text not in ("auto", "ram", "disk", "off") and not text.startswith("/"):
        raise RefusedError(
            f"--stage {text}: not a place for copies of databases",
            "use auto, ram, disk, off, or the absolute path of a folder on each node's own disk",
        )


def expand_home(store: str) -> str:
    """Return the path of a store, in which a ``~`` or ``~user`` at the start is that user's home folder.

    Raises:
        RefusedError: There is no such user.
    """
    found = os.path.expanduser(store)
    if found.startswith("~"):
        raise RefusedError(
            f"store {store}: no home folder is known for {store.partition('/')[0]}",
            f"write the path in full, or ./{store} for a folder of this name",
        )
    return found


def make_job(values: dict[str, Any], where: str = "") -> JobSpec:
    """Check ``values`` (names as in a TOML file) and make a job of them.

    Raises:
        RefusedError: A name is unknown (offers the nearest known one), or a value is wrong.
    """
    prefix = f"{where}: " if where else ""
    check_known_keys(values, JobSpec.__struct_encode_fields__, where)
    values = dict(values)
    if isinstance(values.get("command"), str):
        values["command"] = split_command(values["command"], prefix)
    for name in ("input", "output", "join", "shared", "hosts"):
        if isinstance(values.get(name), str):
            values[name] = [values[name]]
    rules = values.get("replica")
    for rule in rules if isinstance(rules, list) else ():
        if isinstance(rule, dict):
            check_known_keys(rule, ("path", "at"), f"{prefix}[[replica]]")
    if isinstance(values.get("ok-status"), int):
        values["ok-status"] = [values["ok-status"]]
    for name in ("batch", "fragments"):
        if isinstance(values.get(name), int):
            values[name] = str(values[name])
    for name in ("input", "output", "shared", "hosts"):
        given = values.get(name)
        if isinstance(given, list | tuple) and "" in given:
            raise RefusedError(f"{prefix}{name}: an empty file name", "an unset variable in the command line, perhaps")
    try:
        job = msgspec.convert(values, JobSpec)
    except msgspec.ValidationError as error:
        raise RefusedError(
            f"{prefix}{_rewrite_validation_error(str(error), values)}", "see millrace run --help"
        ) from error
    if not job.command:
        raise RefusedError(
            f"{prefix}no command",
            "write the serial command after --, as in: millrace run -- blastp -query q.faa -db nr -out hits.tsv",
        )
    job.batch_size  # noqa: B018 - checks the text
    job.fragment_size  # noqa: B018 - as well
    job.quarantine_limit  # noqa: B018 - as well
    if job.format:
        record_formats.check_format_name(job.format)
    check_stage(job.stage)
    check_replicas(job.replica, where)
    return msgspec.structs.replace(job, store=expand_home(job.store)) if job.store.startswith("~") else job


def split_command(
    command: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], prefix: str = ""
) -> tuple[str, ...]:
    """Split a command into words, as a shell does.

    Raises:
        RefusedError: A quotation is not closed.

    >>> split_command("blastp -query 'q 1.faa'")
    ('blastp', '-query', 'q 1.faa')
    """
    if isinstance(command, os.PathLike):
        return (os.fspath(command),)
    if not isinstance(command, str):
        return tuple(os.fspath(word) for word in command)
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise RefusedError(
            f"{prefix}command: {error}", "close the quotation, or write the command as a list of words"
        ) from error


def check_known_keys(values: Iterable[str], known: Collection[str], where: str = "") -> None:
    """Refuse an unknown key, and offer the nearest known one.

    Raises:
        RefusedError: A key is unknown.
    """
    for name in values:
        if name not in known:
            import difflib  # only for the refusal

            near = difflib.get_close_matches(name, known, n=1)
            raise RefusedError(
                f"{where + ': ' if where else ''}unknown key {name!r}",
                f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(sorted(known))}",
            )


def read_job_file(path: Path) -> dict[str, Any]:
    """Read a job file.

    Raises:
        RefusedError: It cannot be read, or is not TOML.
    """
    import tomllib  # slow to import, and seldom needed

    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror}", "check the path of the job file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RefusedError(
            f"{path}: not a TOML job file: {error}", 'a job file says at least: command = ["blastp", "-query", ...]'
        ) from error


#: Readable names of msgspec's types.
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list of words",
}


def _rewrite_validation_error(message: str, values: dict[str, Any]) -> str:
    """Rewrite a msgspec error with the place first: ``slots: expected a whole number >= 1, found 0``."""
    text, _, place = message.partition(" - at `$.")
    place = place.rstrip("`").split("[")[0]
    text = text.partition(", got")[0]
    text = re.sub(r"`(\w+)(?: \| null)?`", lambda found: _TYPES.get(found[1], found[1]), text)
    # The place in a rule may be a URL with a password.
    found = f", found {values[place]!r}" if place in values and place != "replica" else ""
    return f"{place + ': ' if place else ''}{text[:1].lower()}{text[1:]}{found}"
