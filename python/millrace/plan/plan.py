"""From a job to a plan: what will run where, on how many slots, and why. Refuses here whatever cannot be exact."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from millrace import _core, formats
from millrace.errors import RefusedError, ToolError
from millrace.job import Job
from millrace.model import Command, Frozen, OutputUse, Token, ToolUse, View
from millrace.plan import cores, fingerprint, fragments, heads, learnt, memory, run_place, workplace, world
from millrace.plan.first_word import check_starters, missing_hint
from millrace.plan.queries import Queries, look
from millrace.schedule.sizing import CostModel
from millrace.tools import registry
from millrace.tools.base import NUL, Adapter, Fragmenting, file_records, join_names, record_path
from millrace.words import count


class Plan(Frozen, frozen=True):
    """All that is decided before the run."""

    job: Job
    command: Command
    use: ToolUse
    slots: int
    run_dir: Path
    #: Folder for the work directory, if this is the only process.
    work_place: Path
    #: Fingerprints of inputs, databases and program.
    fingerprints: dict[str, str]
    notes: tuple[str, ...]
    #: Inputs, databases and program as they were then.
    world: tuple[world.File, ...]
    #: Under which name `millrace.plan.learnt` keeps what tasks cost; empty: it is of no use to another run.
    cost_key: str = ""
    #: Those of the notes that are said at the start of a run too.
    warnings: tuple[str, ...] = ()


def make(job: Job, cwd: Path, environ: Mapping[str, str], *, launched: bool = False, view: View | None = None) -> Plan:
    """Decide everything that can be decided before the first record is read.

    Args:
        launched: An MPI launcher has started this process: it gives it a pipe as standard input, whether or not anything
            comes in.
        view: Where the files behind the command's URLs are.

    Raises:
        RefusedError: The command cannot be answered exactly, or not at all.
        ToolError: The program is not there.
    """
    try:
        return _make(job, cwd, environ, launched, view)
    except OSError as error:
        # A name that is too long, a folder that may not be read, a disk that fails.
        raise RefusedError(
            f"{os.fsdecode(error.filename or '')}: {error.strerror or error}", "check this path"
        ) from error


def _make(job: Job, cwd: Path, environ: Mapping[str, str], launched: bool, view: View | None) -> Plan:
    command = Command(
        argv=job.command, cwd=cwd, environ=dict(environ), exe=find_program(job.program_on(os.uname().machine), cwd, environ, job.command),
        inputs=job.input, outputs=job.output, joins=job.join, shared=job.shared, ok_statuses=job.ok_status, format=job.format or ("regex" if job.record_start or job.record_end else ""),
        stdin_is_data=brings_data(0, pipes=not launched or not job.input or any(re.match("-(:|$)", each) for each in job.input)),
        view=view,
    )  # fmt: skip
    if not job.input:
        check_starters(job.command)
    adapter, seen = registry.find(Path(job.command[0]).name), command.seen
    use = with_files(adapter.understand(seen), seen)
    check_joins(job, use)
    check_statuses(job, use)
    check_inputs(use, seen.cwd)
    files = world.of_plan(use, seen)  # before anything is read of them that decides
    use = with_formats(use, seen.cwd)
    heads.refuse_old_mac(use, seen.cwd)
    warnings = (*heads.unpacked(use, seen.cwd), *version_note(use, job, Path(job.command[0]).name))
    check_boundaries(job, use)
    check_outputs(use, command)
    use, slots, why = count_slots(job, use, environ)
    queries = look(use.inputs[0], seen.cwd) if decided_by_queries(job, use, adapter) else None
    use, in_parts = with_fragments(job, use, seen, adapter, slots, queries)
    if queries:
        use = msgspec.structs.replace(use, cost=msgspec.structs.replace(use.cost, longest=queries.longest))
    run_dir = run_place.find(job.run_dir, use, job.command, cwd, environ)
    prints = fingerprints(job, use, seen)
    key = cost_key(use, prints)
    if found := learnt.recall(key, environ) if key else None:
        use = msgspec.structs.replace(use, cost=msgspec.structs.replace(use.cost, learnt=found))
    work = workplace.find(job.work_dir, slots, cwd, CostModel(use.cost).most_bytes(slots))
    return Plan(
        job=job, command=command, use=use, slots=slots, run_dir=run_dir, work_place=work.path, fingerprints=prints, cost_key=key,
        notes=tuple(filter(None, (*use.notes, *warnings, why, batch_note(job, use), check_note(job, use), in_parts, f"work directory: in {work.path}, {work.why}"))),
        warnings=warnings,
        world=files,
    )  # fmt: skip


def with_files(use: ToolUse, command: Command) -> ToolUse:
    """List the files of inputs in which each file is a record: what is in a folder is decided once, at the start."""
    inputs = []
    for item in use.inputs:
        if item.format == "files":
            names = file_records(item.path.split(NUL), command)
            if not names:
                raise RefusedError(
                    f"{item.path}: no files there", "give a folder with the files, a glob in quotes, or a list of names"
                )
            if command.view and any(command.view.file(command.cwd / name) for name in names):
                raise RefusedError(
                    f"{item.path}: files that are one record each cannot be behind URLs", "fetch them first"
                )
            item = msgspec.structs.replace(item, path=join_names(names))
        inputs.append(item)
    return msgspec.structs.replace(use, inputs=tuple(inputs))


def with_formats(use: ToolUse, cwd: Path) -> ToolUse:
    """Find the record format of inputs for which nobody named one, and check those that were named.

    Raises:
        RefusedError: It cannot be told, or there is no such format.
    """
    inputs = []
    for item in use.inputs:
        if not item.format:
            found = formats.detect(item.path if item.path == "-" else str(cwd / item.path))
            if found is None:
                name = "standard input" if item.path == "-" else item.path
                raise RefusedError(
                    f"{name}: its record format cannot be told", f"name it with --format: {', '.join(formats.FORMATS)}"
                )
            item = msgspec.structs.replace(item, format=found)
        formats.check(item.format)
        inputs.append(item)
    return msgspec.structs.replace(use, inputs=tuple(inputs))


def check_boundaries(job: Job, use: ToolUse) -> None:
    """Refuse record boundaries that are missing, that no input uses, or that are no regular expressions."""
    given = job.record_start or job.record_end
    by_regex = any(item.format == "regex" for item in use.inputs)
    if given and not by_regex:
        named = ", ".join(dict.fromkeys(item.format for item in use.inputs))
        raise RefusedError(
            f"--record-start and --record-end belong to format regex, not to {named}",
            "leave out either these or --format",
        )
    if by_regex and not given:
        raise RefusedError("format regex needs --record-start or --record-end", "as in: --record-start '^>'")
    if not by_regex:
        return
    try:
        _core.Reader([], "regex", record_start=job.record_start or None, record_end=job.record_end or None)
    except UnicodeEncodeError as error:
        raise RefusedError(
            "--record-start and --record-end: not UTF-8", "write other bytes as in: (?-u:\\xe9)"
        ) from error
    except ValueError as error:
        text = str(error).replace("record_start", "--record-start").replace("record_end", "--record-end")
        raise RefusedError(text, "write a regular expression, in single quotes") from error


def decided_by_queries(job: Job, use: ToolUse, adapter: Adapter) -> bool:
    """Whether it is of use to look at the queries: for the number of fragments, or for batches of measured size."""
    if not use.inputs:
        return False
    fragments_open = isinstance(adapter, Fragmenting) and job.fragment_size == (0, 0)
    return fragments_open or (job.batch_size == (0, 0) and use.cost.unit != "records" and use.cost.max_records != 1)


def with_fragments(
    job: Job, use: ToolUse, command: Command, adapter: Adapter, slots: int, queries: Queries | None
) -> tuple[ToolUse, str]:
    """Have the database searched in fragments where that is asked for or pays; and the reason.

    Raises:
        RefusedError: The user asks for fragments where the result would not be exact.
    """
    asked = job.fragment_size
    wanted = asked[0] > 1 or asked[1] > 0
    if not isinstance(adapter, Fragmenting):
        if wanted:
            raise RefusedError(
                f"--fragments {job.fragments}: {command.argv[0]} has no database that is known to be exact in fragments",
                "leave --fragments out",
            )
        return use, ""
    if asked == (1, 0):
        return use, "fragments: 1, as asked"
    database = adapter.fragmentable(use, command)
    known = (queries, slots, memory.usable()[0], use.cost, job.batch_size[0])
    decision = None if database.why_not else fragments.by_queries(asked, database.bytes, *known)
    if decision is None and database.count:
        database = database.count()
    if database.why_not:
        if wanted:
            raise RefusedError(f"--fragments {job.fragments}: {database.why_not}", "leave --fragments out")
        return use, f"fragments: 1; {database.why_not}"
    decision = decision or fragments.decide(asked, database, *known)
    if decision.n == 1:
        return use, f"fragments: 1; {decision.why}"
    use = with_programs(adapter.fragment(use, command, decision.sizes), command)
    n = len(use.fragmented.fragments) if use.fragmented else 1
    return use, f"fragments: {n}; {decision.why}"


def with_programs(use: ToolUse, command: Command) -> ToolUse:
    """Find the programs that search fragments and candidates, where they are not the user's own.

    Raises:
        ToolError: One is not there.
    """
    parts = use.fragmented
    if not parts:
        return use

    def found(argv: tuple[Token, ...]) -> tuple[Token, ...]:
        if argv[0] == use.argv[0]:
            return argv
        return (str(find_program(str(argv[0]), command.cwd, command.environ)), *argv[1:])

    replace = msgspec.structs.replace
    parts = replace(
        parts,
        fragments=tuple(replace(part, argv=found(part.argv)) for part in parts.fragments),
        finish=found(parts.finish),
    )
    return replace(use, fragmented=parts)


def find_program(name: str, cwd: Path, environ: Mapping[str, str], argv: Sequence[str] = ()) -> Path:
    """The program as the shell would find it.

    Args:
        argv: The command whose first word it is, for the hint.

    Raises:
        ToolError: There is none.
    """
    if not name:
        raise RefusedError("the first word of the command is empty", "write the program's name after --")
    if "/" in name:
        path = cwd / name
        if path.is_dir() or not path.exists():
            raise ToolError(
                f"{name}: {'is a folder' if path.is_dir() else 'no such program'}",
                "check the path of the program after --",
            )
        if not os.access(path, os.X_OK):
            raise ToolError(f"{name}: not executable", f"make it so with: chmod +x {name}")
        return Path(os.path.normpath(path))
    found = shutil.which(name, path=environ.get("PATH"))
    if not found:
        raise ToolError(f"{name}: program not found on PATH", missing_hint(name, argv or [name], environ))
    return Path(os.path.normpath(cwd / found))


def brings_data(descriptor: int, *, pipes: bool = True) -> bool:
    """Whether a descriptor is a file or pipe that could bring records (no terminal, not /dev/null, not closed).

    Args:
        pipes: A pipe counts.
    """
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or (pipes and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)))


def check_joins(job: Job, use: ToolUse) -> None:
    """Refuse to join the outputs of a known tool in another way than its own."""
    if job.join and use.adapter != "generic":
        raise RefusedError(
            f"--join {job.join[0]}: millrace knows how the outputs of {job.command[0]} are joined", "leave --join out"
        )


def check_statuses(job: Job, use: ToolUse) -> None:
    """Refuse to take for a result what a known tool says of a failure."""
    if job.ok_status and use.adapter != "generic":
        raise RefusedError(
            f"--ok-status {job.ok_status[0]}: millrace knows what the exit statuses of {job.command[0]} say",
            "leave --ok-status out",
        )


def check_inputs(use: ToolUse, cwd: Path) -> None:
    """Refuse inputs that cannot be read, before anything starts."""
    for item in use.inputs:
        for name in item.path.split("\0") if item.format == "files" else [item.path]:
            if name == "-":
                continue
            path = os.path.join(cwd, name)
            try:
                mode = os.stat(path).st_mode
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    raise
                raise RefusedError(f"{name}: no such file", "check the path of the input") from error
            if stat.S_ISDIR(mode):
                raise RefusedError(
                    f"{name}: is a folder, not a file of records",
                    "name a file in it, or the folder without a format: each file is a record then",
                )
            if not os.access(path, os.R_OK):
                raise RefusedError(f"{name}: permission denied", "make it readable with chmod, or ask its owner")


def check_outputs(use: ToolUse, command: Command) -> None:
    """Refuse outputs that cannot be written, that are written twice, or that would be written over what is read."""
    if not use.outputs:
        return
    cwd, read = command.cwd, files_read(use, command.seen.cwd, command.exe)
    seen: dict[object, OutputUse] = {}
    for output in use.outputs:
        for place in _places_of(output, use, cwd):
            if what := read.get(_which(place)):
                name = "standard output" if output.path == "-" else os.path.relpath(place, cwd)
                raise RefusedError(f"{name}: is both {what} and output", "write the output elsewhere")
        if output.path == "-":
            continue
        if command.view and (file := command.view.file(command.view.folder / output.path)):
            raise RefusedError(f"{file.place}: an output cannot be a URL", "write it to a file, and copy that")
        path = cwd / output.path
        if output.layout == "record":
            _check_writable((path if "{" not in path.parent.name else path.parent).parent, output)
            continue
        if path.is_dir() and output.layout == "file":
            raise RefusedError(f"{output.path}: is a folder, but the output is a file", "name a file in it")
        real = _which(path)
        if real in seen and (path.is_file() or not path.exists()):
            raise RefusedError(
                f"{output.path}: is named for two outputs, {seen[real].name} and {output.name}",
                "give each a file of its own",
            )
        seen[real] = output
        if (
            output.layout == "directory" or not path.exists() or path.is_file()
        ):  # a device or pipe is there, whose folder ever
            _check_writable(path.parent, output)
        if not path.is_dir() and path.exists() and not os.access(path, os.W_OK):
            raise RefusedError(f"{output.path}: permission denied", "make it writable with chmod, or write elsewhere")


def files_read(use: ToolUse, cwd: Path, exe: Path) -> dict[object, str]:
    """What a run reads, by the file itself, whatever its name, and what it is."""
    found: dict[object, str] = {_which(exe): "the program"}
    found |= {_which(cwd / path): "a database" for path in use.databases}
    for item in use.inputs:
        found |= {_which(name if name == "-" else cwd / name, 0): "input" for name in item.path.split(NUL)}
    found.pop(None, None)
    return found


def _places_of(output: OutputUse, use: ToolUse, cwd: Path) -> list[str | Path]:
    """The files that an output is, as far as that is known before the run."""
    if output.path == "-":
        return ["-"]
    if output.layout == "record":
        lists = (item.path.split(NUL) for item in use.inputs if item.format == "files")
        return [cwd / record_path(output.path, name) for names in lists for name in names]
    return [cwd / output.path]


def _which(path: str | Path, descriptor: int = 1) -> object:
    """What tells a file from all others whatever its name; None for what is none, such as a pipe.

    Args:
        path: ``-`` is ``descriptor``.
    """
    try:
        about = os.fstat(descriptor) if path == "-" else os.stat(path)
    except OSError:
        return None if path == "-" else os.path.realpath(path)
    if path == "-" and not stat.S_ISREG(about.st_mode):
        return None
    return about.st_dev, about.st_ino


def _check_writable(folder: Path, output: OutputUse) -> None:
    if not folder.is_dir():
        missing = folder if output.layout == "file" else folder.parent
        if output.layout == "file" or not missing.is_dir():
            if folder.exists():
                raise RefusedError(f"{output.path}: {folder} is a file, not a folder", "write the output elsewhere")
            raise RefusedError(
                f"{output.path}: no such folder {folder}", f"make it with: mkdir -p {shlex.quote(str(folder))}"
            )
    elif not os.access(folder, os.W_OK | os.X_OK):
        raise RefusedError(
            f"{output.path}: the folder {folder} cannot be written", "make it writable with chmod, or write elsewhere"
        )


def count_slots(job: Job, use: ToolUse, environ: Mapping[str, str]) -> tuple[ToolUse, int, str]:
    """How many tasks run side by side, and why; ``use`` with the threads of each."""
    n_cores, source = cores.usable(environ)
    if not use.threads:
        slots = job.slots or 1
        use = with_threads(use, max(1, n_cores // slots))
        asked = "as asked" if job.slots else f"as {use.adapter} itself spreads its work over all cores ({source})"
        return use, slots, f"slots: {slots} of {count(use.threads, 'thread')}, {asked}"
    return use, *_slots_of_known_threads(job, use, n_cores, source)


def with_threads(use: ToolUse, threads: int) -> ToolUse:
    """``use`` of a tool that takes as many threads as it gets; they share what its start costs."""
    cost = msgspec.structs.replace(use.cost, startup_seconds=use.cost.startup_seconds / threads)
    return msgspec.structs.replace(use, threads=threads, cost=cost)


def _slots_of_known_threads(job: Job, use: ToolUse, n_cores: int, source: str) -> tuple[int, str]:
    if job.slots:
        more = f"; {use.threads} threads each" if use.threads > 1 else ""
        over = "" if job.slots * use.threads <= n_cores else f" (more than the {n_cores} cores there are)"
        return job.slots, f"slots: {job.slots}, as asked{more}{over}"
    slots = max(1, n_cores // use.threads)
    if use.threads > 1:
        return slots, (
            f"slots: {slots} of {use.threads} threads each on {n_cores} cores ({source}); "
            "without the tool's own threads every core would have a slot, which is usually faster"
        )
    return slots, f"slots: {slots} ({source})"


def cost_key(use: ToolUse, fingerprints: Mapping[str, str]) -> str:
    """A digest of what the cost of a task depends on: the tool, its options and databases.

    Empty for a search in fragments, whose costs depend on how the database was cut.
    """
    if use.fragmented:
        return ""
    shared = {name: text for name, text in fingerprints.items() if not name.startswith("input ")}
    return hashlib.blake2b(repr((shared, use.argv, use.threads)).encode(), digest_size=16).hexdigest()


def batch_note(job: Job, use: ToolUse) -> str:
    """How batches get their size, in words."""
    records, size = job.batch_size
    if records:
        return f"batches: {records} records each, as asked"
    if size:
        return f"batches: {size} bytes each, as asked"
    if use.cost.max_records == 1:
        return "batches: one record each, as the tool takes one at a time"
    how = f"batches: sized from the measured time per {use.cost.unit.rstrip('s')}, large first, small at the end"
    if use.cost.learnt or use.cost.start_units:
        source = "as earlier runs showed" if use.cost.learnt else "by the size of its database"
        return f"{how}; a start takes about {CostModel(use.cost).startup:.2g} s, {source}"
    return how


def is_unknown(use: ToolUse) -> bool:
    """Whether the user alone knows whether the tool treats each record by itself."""
    return use.adapter == "generic"


def is_untested(use: ToolUse) -> bool:
    """Whether the adapter's rules were compared with serial runs of other versions of the tool alone."""
    return bool(use.tested) and not any(
        re.search(rf"(?<![\d.]){re.escape(version)}(?!\.?\d)", use.version) for version in use.tested
    )


def doubts(use: ToolUse, tool: str) -> str:
    """Why some of the input is run again and compared, even if nobody asks for it; empty: no reason."""
    if is_unknown(use):
        return f"{tool} is not known to millrace"
    if is_untested(use):
        return f"{use.version or f'{tool}, which does not tell its version,'} was never tested with millrace"
    return ""


def version_note(use: ToolUse, job: Job, tool: str) -> tuple[str, ...]:
    """What to say of a version that was never tested."""
    if not is_untested(use):
        return ()
    check = "" if job.verify == 0 else "; parts of the input are run again, cut elsewhere, and must give the same bytes"
    return (f"{doubts(use, tool)} (but {', '.join(use.tested)} were){check}",)


def check_note(job: Job, use: ToolUse) -> str:
    """How it is checked that the tool gives the same bytes wherever the input is cut, in words."""
    if job.verify == 0 or (job.verify is None and not is_unknown(use) and not is_untested(use)):
        return "check: none, as asked with --verify 0" if is_unknown(use) else ""
    share = "a sample" if job.verify is None else f"{job.verify:.0%} of the input"
    return f"check: both ends of the input and {share} are run again, cut elsewhere, and must give the same bytes"


def fingerprints(job: Job, use: ToolUse, command: Command) -> dict[str, str]:
    """What the result depends on, by what it is, for the resume's comparison."""
    version = use.version or "version unknown"
    if job.arch:
        # The next coordinator may be of another architecture; see `millrace.cluster.programs` for the files.
        found = {f"program {command.argv[0]}": version}
        found |= {f"program on {name}": arch.exe for name, arch in job.arch.items()}
    else:
        found = {f"program {command.exe}": f"{version}; {fingerprint.of_stat(command.exe)}"}
    for item in use.inputs:
        if item.format == "files":
            for name in item.path.split(NUL):
                if os.path.isfile(file := os.path.join(command.cwd, name)):
                    found[f"input {name}"] = fingerprint.of_stat(file)
        elif item.path != "-" and (command.cwd / item.path).is_file():
            found[f"input {item.path}"] = fingerprint.of_content(command.cwd / item.path)
    for path in use.databases:
        if command.view and (behind := command.view.file(path)):
            found[f"database {behind.place}, {behind.name}"] = f"{behind.size} bytes, version {behind.version}"
        elif (command.cwd / path).is_file():
            found[f"database {path}"] = fingerprint.of_stat(command.cwd / path)
    return found
