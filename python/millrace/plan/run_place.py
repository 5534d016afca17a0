"""Location of the run directory, from the user's option, the outputs or the command."""

from __future__ import annotations

import os
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from collections.abc import Mapping
from pathlib import Path

from millrace import state
from millrace.model import OutputUse, ToolUse
from millrace.rundir import SUFFIX, RunDir
from millrace.tools.base import is_stream_path


def choose_run_dir(wanted: str, use: ToolUse, argv: tuple[str, ...], cwd: Path, environ: Mapping[str, str]) -> Path:
    """Choose the run directory: ``OUTPUT.millrace`` beside the first output that has a name.

    A run to standard output has it in the current folder, or in the user's state folder where that cannot be written.

    Args:
        wanted: The user's choice; empty: none.
    """
    if wanted:
        return cwd / wanted
    for output in use.outputs:
        if output.path != "-" and not is_stream_path(output.path):
            return cwd / (_strip_placeholders(output) + SUFFIX)
    here, base = cwd / _make_digest_name(argv), state.find_state_folder(environ)
    if _is_writable_folder(cwd) or here.exists() or not base:
        return here
    there = next(folder for folder in (base, *base.parents) if folder.exists())
    return base / "unfinished" / _make_digest_name((str(cwd), *argv), argv[0]) if _is_writable_folder(there) else here


def resolve_run_dir(name: str) -> Path:
    """Return the run directory with this name, or the one beside the output of this name."""
    beside = Path(name.rstrip("/") + SUFFIX)
    return beside if beside.is_dir() and not RunDir(Path(name)).has_run() else Path(name)


def list_run_dirs(folder: Path) -> list[Path]:
    """List the run directories in a folder, by name."""
    return [path for path in sorted(folder.glob(f"*{SUFFIX}")) if path.is_dir()]


def _is_writable_folder(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _strip_placeholders(output: OutputUse) -> str:
    """Remove placeholders of records from the path of an output; the result lies outside the folder of the outputs.

    >>> _strip_placeholders(OutputUse(name="o", path="a/hits.tsv")), _strip_placeholders(OutputUse(name="o", path="a/{stem}.txt", layout="record"))
    ('a/hits.tsv', 'a.stem.txt')
    """
    folder, _, rest = output.path.rstrip("/").partition("{")
    folder, slash, begin = folder.rpartition("/")
    if not rest or output.layout != "record":
        return output.path.rstrip("/")
    name = (begin + rest).replace("{", "").replace("}", "").replace("/", ".")
    return f"{folder}.{name}" if folder else slash + name


def _make_digest_name(words: tuple[str, ...], program: str = "") -> str:
    digest = blake2b("\0".join(words).encode(errors="surrogateescape"), digest_size=4).hexdigest()
    return f"{Path(program or words[0]).name}-{digest}{SUFFIX}"
