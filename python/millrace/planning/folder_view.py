"""Views of the user's working folder for tasks: the folder itself under an overlay, or links to its entries.

The overlay is mounted at the folder's own path, in a mount namespace of each task. Version numbers do not tell whether
the kernel allows that, so it is tried over the folder itself.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from millrace import _core
from millrace.core.errors import RefusedError
from millrace.core.tool_use import InputArg, OutputArg, ToolUse
from millrace.planning.program_lookup import is_unknown_tool

#: Name, beside the slots, of the layer of an overlay that hides entries of the folder or adds others, by its number.
MASK = "mask-{}"

#: Folders that hold only devices and processes.
DEVICES = ("/dev", "/proc", "/sys")


class ViewParts(msgspec.Struct, frozen=True):
    """Parts of a view; see ``View`` in ``crates/millrace-core/src/slot/view.rs``."""

    #: Folders with an overlay, real and absolute; outer ones before inner ones.
    overlays: tuple[str, ...]
    #: Mounts below them.
    mounts: tuple[str, ...] = ()
    #: (path in a slot, real folder) of folders in which a task's files are placed.
    folders: tuple[tuple[str, str], ...] = ()


class OpenView(msgspec.Struct, frozen=True):
    """A view that was tried and works."""

    parts: ViewParts
    user_attributes: bool
    has_peers: bool
    #: Descriptors of the namespaces to enter first, in order.
    namespaces: tuple[int, ...]
    #: Whether the last of these was made for this view.
    has_own: bool = False

    def close(self) -> None:
        """Close the namespace that was made for this view."""
        if self.has_own:
            os.close(self.namespaces[-1])

    @property
    def core(self) -> tuple[Sequence[str], Sequence[str], Sequence[tuple[str, str]], bool, bool]:
        """The view in the form of the arguments of ``_core.Pool``."""
        parts = self.parts
        return parts.overlays, parts.mounts, parts.folders, self.user_attributes, self.has_peers


def open_view(parts: ViewParts, root: Path, namespaces: Sequence[int] = ()) -> OpenView:
    """Try a view: first with the rights of this process, then in a user namespace.

    Args:
        root: A folder that does not exist yet, like that of a slot; the masks lie beside it.
        namespaces: Descriptors of namespaces to enter first.

    Raises:
        OSError: This user cannot have the view on this machine.
    """
    # A user who may mount needs no namespace; attributes of users are for root in a namespace only.
    for has_attributes in (False, True):
        found = OpenView(parts, has_attributes, not namespaces, tuple(namespaces))
        try:
            _core.try_view(found.core, str(root), found.namespaces)
            return found
        except OSError:
            if has_attributes and namespaces:
                raise
    try:
        own = _core.user_namespace()
    except OSError as error:
        raise OSError(error.errno, f"no user namespace for this user: {error.strerror}") from error
    found = OpenView(parts, True, False, (own,), has_own=True)
    try:
        _core.try_view(found.core, str(root), found.namespaces)
    except OSError:
        found.close()
        raise
    return found


def explain_missing_view(folder: Path, place: Path) -> str:
    """Explain why a task cannot see ``folder`` itself with the work directory in ``place``; empty: it can."""
    if is_below_folder(os.path.realpath(place), os.path.realpath(folder)):
        return "the work directory lies in it"
    # Named as a work directory, so that the sweep removes what a kill of the guard, too, leaves here.
    scratch = place / f"millrace-work-{os.geteuid()}-{os.urandom(8).hex()}"
    held, guard = -1, None
    try:
        if len(os.listdir("/proc/self/task")) == 1:  # the guard is a fork; in a job of MPI, its sweep comes later
            guard = _core.Watchdog(scratch)
        scratch.mkdir(mode=0o700)
        held = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_EX)
        (scratch / "spool").mkdir()  # from here on the sweep removes it when no process holds the lock
        (scratch / MASK.format(0)).mkdir()
        open_view(ViewParts((os.path.realpath(folder),)), scratch / "slot").close()
    except OSError as error:
        return (error.strerror or str(error)).partition(" (os error")[0]
    finally:
        if guard:
            guard.close()
        shutil.rmtree(scratch, ignore_errors=True)
        if held >= 0:
            os.close(held)
    return ""


def list_mount_points() -> list[str]:
    """Return all mount points that this process sees."""
    with open("/proc/self/mountinfo", errors="surrogateescape") as table:
        return [re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[4]) for line in table]


def is_below_folder(path: str, folder: str) -> bool:
    """Tell whether an absolute path is ``folder`` or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def can_relocate_files(use: ToolUse) -> bool:
    """Tell whether the arguments name every input and output file, so that tasks may have them at other paths."""
    inputs = {token.index for token in use.argv if isinstance(token, InputArg)}
    outputs = {token.index for token in use.argv if isinstance(token, OutputArg)}
    return all(item.stdin or k in inputs for k, item in enumerate(use.inputs)) and all(
        output.stdout or k in outputs for k, output in enumerate(use.outputs)
    )


def describe_folder_view(use: ToolUse, why: str, verify: float | None) -> str:
    """Describe the replacement for a view of the working folder itself, in words; empty: none is needed.

    Args:
        why: Why tasks cannot see the folder itself; empty: they can.
        verify: Share of the input that the user wants compared; None: the default.

    Raises:
        RefusedError: Tasks may see other files than the serial command, and no check would show it.
    """
    if not why:
        return ""
    if can_relocate_files(use):
        if not is_unknown_tool(use):
            return f"view: tasks work in the folder itself, with paths of their own for input and outputs ({why})"
        check = "" if verify == 0 else "; what is run again to compare works in the folder itself"
        return f"view: tasks work among links to what is in the folder ({why}){check}"
    if is_unknown_tool(use) and verify == 0:
        return f"view: tasks work among links to what is in the folder ({why}), which nothing is compared with"
    tool = os.path.basename(str(use.argv[0]))
    raise RefusedError(
        f"{tool}: tasks cannot be shown the working folder as it is here ({why}), and the command does not say where its "
        "input and outputs are, so they cannot lie elsewhere",
        "work in a folder on a disk of this machine, or where namespaces of users are allowed: millrace doctor says what a "
        "folder can have",
    )
