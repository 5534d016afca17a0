"""How tasks can see the user's working folder on this machine: as it is, or by what stands for it.

As it is, by an overlay that is mounted at its own path in a mount namespace of each task. Whether that can be done is no
matter of version numbers: it is tried, over the folder itself.
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
from millrace.errors import RefusedError
from millrace.model import InputArg, OutputArg, ToolUse
from millrace.plan.doubts import is_unknown

#: What lies beside the slots, by the number of an overlay: a layer that hides entries of the folder, or shows others.
MASK = "mask-{}"

#: Folders in which nothing but devices and processes is found.
DEVICES = ("/dev", "/proc", "/sys")


class Parts(msgspec.Struct, frozen=True):
    """What a view is made of; see ``View`` in ``crates/millrace-core/src/slot/view.rs``."""

    #: Folders with an overlay, real and absolute; outer ones before inner ones.
    overlays: tuple[str, ...]
    #: Mounts below them.
    mounts: tuple[str, ...] = ()
    #: (path in a slot, real folder) of folders in which a task's files are placed.
    folders: tuple[tuple[str, str], ...] = ()


class OpenView(msgspec.Struct, frozen=True):
    """A view that was tried, and works."""

    parts: Parts
    user_attributes: bool
    has_peers: bool
    #: Descriptors of the namespaces to be entered before it, in order.
    namespaces: tuple[int, ...]
    #: Whether the last of these was made for it.
    has_own: bool = False

    def close(self) -> None:
        """Let go what was made for it."""
        if self.has_own:
            os.close(self.namespaces[-1])

    @property
    def core(self) -> tuple[Sequence[str], Sequence[str], Sequence[tuple[str, str]], bool, bool]:
        """As `_core.Pool` takes it."""
        parts = self.parts
        return parts.overlays, parts.mounts, parts.folders, self.user_attributes, self.has_peers


def open_view(parts: Parts, root: Path, namespaces: Sequence[int] = (), seen: Sequence[str] = ()) -> OpenView:
    """Try a view in whatever way this machine lets this user have it.

    Args:
        root: A folder that is not there yet, like that of a slot; the masks lie beside it.
        namespaces: To be entered before it.
        seen: Files that have to be there in it.

    Raises:
        OSError: It cannot be had.
    """
    # Who may mount does; attributes of users are for those who are root in a namespace alone.
    for has_attributes in (False, True):
        found = OpenView(parts, has_attributes, not namespaces, tuple(namespaces))
        try:
            _core.try_view(found.core, str(root), found.namespaces, seen)
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
        _core.try_view(found.core, str(root), found.namespaces, seen)
    except OSError:
        found.close()
        raise
    return found


def why_not(folder: Path, place: Path) -> str:
    """Why a task cannot see ``folder`` as it is if the work directory is in ``place``, in words; empty: it can."""
    if is_below(os.path.realpath(place), os.path.realpath(folder)):
        return "the work directory lies in it"
    # By the name of a work directory: what a kill leaves there is swept as such.
    scratch = place / f"millrace-work-{os.geteuid()}-{os.urandom(8).hex()}"
    held = -1
    try:
        scratch.mkdir(mode=0o700)
        held = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_EX)
        (scratch / "spool").mkdir()  # from here on it is dead when nobody holds it
        (scratch / MASK.format(0)).mkdir()
        open_view(Parts((os.path.realpath(folder),)), scratch / "slot").close()
    except OSError as error:
        return (error.strerror or str(error)).partition(" (os error")[0]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if held >= 0:
            os.close(held)
    return ""


def mount_points() -> list[str]:
    """All that is mounted, as this process sees it."""
    with open("/proc/self/mountinfo", errors="surrogateescape") as table:
        return [re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[4]) for line in table]


def is_below(path: str, folder: str) -> bool:
    """Whether an absolute path is ``folder`` or leads below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def can_lie_apart(use: ToolUse) -> bool:
    """Whether the arguments say where each input and output is that is a file: then it may be elsewhere."""
    inputs = {token.index for token in use.argv if isinstance(token, InputArg)}
    outputs = {token.index for token in use.argv if isinstance(token, OutputArg)}
    return all(item.stdin or k in inputs for k, item in enumerate(use.inputs)) and all(
        output.stdout or k in outputs for k, output in enumerate(use.outputs)
    )


def described(use: ToolUse, why: str, verify: float | None) -> str:
    """What tasks see of the working folder where they cannot see it as it is, in words; empty: they can.

    Args:
        why: Why not.
        verify: How much of the input is compared, if the user says so.

    Raises:
        RefusedError: They may see something else than the command by itself, and nothing would show it.
    """
    if not why:
        return ""
    if can_lie_apart(use):
        if not is_unknown(use):
            return f"view: tasks work in the folder itself, with paths of their own for input and outputs ({why})"
        check = "" if verify == 0 else "; what is run again to compare works in the folder itself"
        return f"view: tasks work among links to what is in the folder ({why}){check}"
    if is_unknown(use) and verify == 0:
        return f"view: tasks work among links to what is in the folder ({why}), which nothing is compared with"
    tool = os.path.basename(str(use.argv[0]))
    raise RefusedError(
        f"{tool}: tasks cannot be shown the working folder as it is here ({why}), and the command does not say where its "
        "input and outputs are, so they cannot lie elsewhere",
        "work in a folder on a disk of this machine, or where namespaces of users are allowed: millrace doctor says what a "
        "folder can have",
    )
