"""Fingerprints of all that a result depends on, which a resume compares; measured costs of tools.

Fingerprints of files are cheap enough for every start; digests of environment variables describe those that have
changed since a run began. The costs of tools that earlier runs measured are in a small, optional file in the user's
state folder, with numbers and digests, no names; if several runs write at the same time, one may lose its
measurement.
"""

from __future__ import annotations

import os
import re
import stat
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from millrace.adapters.adapter_base import is_still_growing
from millrace.core.job import JobSpec
from millrace.core.text_format import format_count
from millrace.core.tool_use import CostSums, ToolUse, UserCommand
from millrace.host import permissions
from millrace.host.permissions import replace_file

#: Largest file that is read whole; of larger ones, samples are read.
MAX_WHOLE_BYTES = 64 << 20
N_SAMPLES = 64
SAMPLE_BYTES = 64 << 10

#: Files that tools read in their working folder though no argument names them, by adapter.
SETTINGS = {"blast": (".ncbirc",)}

#: Key of the fingerprint of standard input.
STANDARD_INPUT = "input on standard input"


def fingerprint_content(path: Path) -> str:
    """Return size and digest of a file, or of samples of a large one, in words.

    A change that the samples miss is still found by a resume, which compares the checksum of every batch.
    A pipe has no fingerprint: the text says that it is not a regular file.
    """
    if not path.is_file():
        return "not a regular file"
    with path.open("rb") as file:
        return _fingerprint_descriptor(file.fileno(), 0)


def fingerprint_standard_input() -> str:
    """Fingerprint the rest of standard input from its current offset; empty if it is not a regular file."""
    try:
        if not stat.S_ISREG(os.fstat(0).st_mode):
            return ""
        return _fingerprint_descriptor(0, os.lseek(0, 0, os.SEEK_CUR))
    except OSError:
        return ""


def _fingerprint_descriptor(file: int, start: int) -> str:
    """Fingerprint an open file from offset ``start``, without moving its file offset."""
    size = max(0, os.fstat(file).st_size - start)
    digest = blake2b(digest_size=16)
    if size <= MAX_WHOLE_BYTES:
        at = start
        while block := os.pread(file, 1 << 20, at):
            digest.update(block)
            at += len(block)
    else:
        for k in range(N_SAMPLES):
            digest.update(os.pread(file, SAMPLE_BYTES, start + (size - SAMPLE_BYTES) * k // (N_SAMPLES - 1)))
    return f"{size} bytes, {digest.hexdigest()}"


def fingerprint_stat(path: str | os.PathLike[str]) -> str:
    """Return size and time of change: for databases and programs, which are too large to read at every start."""
    found = os.stat(path)
    return format_stat_fingerprint(found.st_size, found.st_mtime_ns)


def format_stat_fingerprint(size_bytes: int, mtime_ns: int) -> str:
    """Format the fingerprint of a file whose status is known."""
    return f"{size_bytes} bytes, changed {mtime_ns}"


def digest_cost_key(use: ToolUse, fingerprints: Mapping[str, str]) -> str:
    """Digest what the cost of a task depends on: tool, options, databases and threads.

    Empty for a search in fragments, whose costs depend on how the database was cut.
    """
    if use.fragmented:
        return ""
    shared = {name: text for name, text in fingerprints.items() if not name.startswith("input ")}
    return blake2b(repr((shared, use.argv, use.threads)).encode(), digest_size=16).hexdigest()


def fingerprint_run(job: JobSpec, use: ToolUse, command: UserCommand) -> dict[str, str]:
    """Fingerprint program, inputs and databases of a run, for the comparison of a resume: name to fingerprint."""
    version = use.version or "version unknown"
    if job.arch:
        # The next coordinator may be of another architecture; see ``millrace.cluster.node_info`` for the files.
        found = {f"program {command.argv[0]}": version}
        found |= {f"program on {name}": arch.exe for name, arch in job.arch.items()}
    else:
        found = {f"program {command.exe}": f"{version}; {fingerprint_stat(command.exe)}"}
    for item in use.inputs:
        if item.format == "files":
            for name in item.paths:
                if os.path.isfile(file := os.path.join(command.cwd, name)):
                    found[f"input {name}"] = fingerprint_stat(file)
        elif item.path == "-":
            found |= {STANDARD_INPUT: text} if (text := fingerprint_standard_input()) else {}
        elif command.view and (behind := command.view.find_hdfs_input(command.cwd / item.path)):
            # The same on one node, which fetches it, as on several, none of which reads all of it.
            found[f"input {item.path}"] = f"{behind.size} bytes, version {behind.version}"
        elif not is_still_growing(item.path, command) and (command.cwd / item.path).is_file():
            found[f"input {item.path}"] = fingerprint_content(command.cwd / item.path)
    for path in use.databases:
        if command.view and (behind := command.view.find_file(path)):
            found[f"database {behind.place}, {behind.name}"] = f"{behind.size} bytes, version {behind.version}"
        elif (command.cwd / path).is_file():
            found[f"database {path}"] = fingerprint_stat(command.cwd / path)
    for name in SETTINGS.get(use.adapter, ()):
        if os.access(command.cwd / name, os.R_OK) and (command.cwd / name).is_file():  # tools pass over others
            found[f"settings {name}"] = fingerprint_content(command.cwd / name)
    for later in command.view.later if command.view else ():
        found[f"database {later.place}, {later.name}"] = f"{later.size} bytes, version {later.version}"
    return found


def has_all_fingerprints(use: ToolUse, command: UserCommand, fingerprints: Mapping[str, str]) -> bool:
    """Tell whether every input has a fingerprint; the content of a pipe is unknown before it is read.

    Inputs that another phase writes are not counted: that phase checks them.
    """
    return all(
        (STANDARD_INPUT if item.path == "-" else f"input {item.path}") in fingerprints
        for item in use.inputs
        if item.format != "files" and not is_still_growing(item.path, command)
    )


#: Variables that differ between logins, jobs or terminals, and on which no output depends.
_PASSING = re.compile(
    r"(SLURM|SLURMD|DASK|PBS|SGE|LSB|LSF|OMPI|PMI|PMIX|PRTE|HYDRA|MPI|MPIR|MILLRACE|SSH|XDG|DBUS|TMUX|VSCODE|GNOME|KDE|CONDA_P)_\w*"
    r"|_|PWD|OLDPWD|SHLVL|TERM\w*|COLUMNS|LINES|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|STY|WINDOW|WINDOWID|TTY|TMUX|PS\d|LS_COLORS"
    r"|PROMPT_COMMAND|HIST\w+|LESS\w*|MAIL|HOST|HOSTNAME|TMP|TEMP|TMPDIR|LD_PRELOAD|BASH_FUNC_.*|JOB_ID|NSLOTS|NCPUS|JOURNAL_STREAM"
    r"|INVOCATION_ID|GPG_\w+|COLORTERM|EDITOR|VISUAL|PAGER|BROWSER|PYTHONDONTWRITEBYTECODE"
)

#: Most names in a message.
_MAX_NAMES = 5


#: Key of the salt among the digests of ``digest_environment``: no variable has this name.
SALT = ""


def digest_environment(environ: Mapping[str, str], salt: str | None = None) -> dict[str, str]:
    """Return a short digest of each variable that stays the same from login to login; the values are not kept.

    Args:
        salt: Key of the digests, in hex, so that neither a table nor another run reveals the values; None: a new one.
            Empty: no key, as releases up to 0.3 wrote them.

    >>> digest_environment({"A": "1"}) == digest_environment({"A": "1"}), digest_environment({"A": "1"}, "00") == digest_environment({"A": "1"}, "00")
    (False, True)
    """
    salt = os.urandom(16).hex() if salt is None else salt
    found = {
        name: blake2b(value.encode(errors="surrogateescape"), digest_size=4, key=bytes.fromhex(salt)).hexdigest()
        for name, value in environ.items()
        if not _PASSING.fullmatch(name)
    }
    return {SALT: salt, **found} if salt else found


def describe_changed_variables(was: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Describe which variables have changed, in words; empty: none, or the earlier ones are unknown.

    Args:
        was: Their digests (``digest_environment``) at the start of the run.

    >>> describe_changed_variables(digest_environment({"A": "1", "B": "2"}), {"B": "3", "C": "4"})
    'A, B, C: not what the environment had when this run began'
    >>> describe_changed_variables({}, {"A": "1"})
    ''
    """
    if not was:
        return ""
    now = digest_environment(environ, was.get(SALT, ""))
    names = sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
    if not names:
        return ""
    more = [format_count(len(names) - _MAX_NAMES, "more variable")] if len(names) > _MAX_NAMES else []
    return f"{', '.join([*names[:_MAX_NAMES], *more])}: not what the environment had when this run began"


#: Most entries (a tool with options and databases) that are kept, the latest ones.
MAX_TOOLS = 200

#: Most bytes that are read, more than all entries ever take.
MAX_FILE_BYTES = 1 << 20


class CostMemory(msgspec.Struct):
    """Content of the file, the latest entry last."""

    #: Learnt costs by the digest of tool, options and databases.
    tools: Annotated[dict[str, CostSums], msgspec.Meta(max_length=10 * MAX_TOOLS)] = {}


def recall_learnt_cost(key: str, environ: Mapping[str, str]) -> CostSums | None:
    """Return the cost that was learnt under ``key``; None: there is none, or the file cannot be read."""
    path = _find_memory_path(environ)
    return _read_cost_memory(path).tools.get(key) if path else None


def remember_learnt_cost(key: str, learnt: CostSums, environ: Mapping[str, str]) -> None:
    """Keep ``learnt`` under ``key``; if the folder cannot be written, the next run measures again."""
    path = _find_memory_path(environ)
    if not path:
        return
    tools = _read_cost_memory(path).tools
    tools.pop(key, None)
    tools[key] = learnt
    latest = dict(list(tools.items())[-MAX_TOOLS:])
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, msgspec.json.encode(CostMemory(tools=latest)), 0o600)


def _read_cost_memory(path: Path) -> CostMemory:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(MAX_FILE_BYTES), type=CostMemory)
    except (OSError, msgspec.MsgspecError):
        return CostMemory()


def _find_memory_path(environ: Mapping[str, str]) -> Path | None:
    home = permissions.find_state_folder(environ)
    return home / "learnt.json" if home else None
