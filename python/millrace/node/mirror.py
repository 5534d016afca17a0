"""The private working directory of a slot: a view of the user's own, with the task's files in it.

A tool must find everything where the serial command would have found it: the arguments stay letter for letter
what the user typed, relative paths included. So a slot's directory mirrors the user's working directory (and as
many folders above it as ``../`` in the arguments reaches): every entry is a symbolic link to the real one, except
the batch's input and the outputs, which are real files of the task's own. Where a path cannot keep its text (an
absolute path, a compressed input, an input that the command also names elsewhere, to be read whole) the file lies in a
folder of the slot's own, and the user's text is put back wherever the tool prints it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from millrace.formats import COMPRESSED, unpacked_name
from millrace.model import DatabaseArg, InputArg, OutputArg, ThreadsArg, Token, ToolUse
from millrace.plan.folder_view import Parts
from millrace.tools.base import EACH, record_path

#: Text in arguments that stands for the slot's own directory; no path can hold a NUL, so no clash.
SLOT_MARK = b"\0slot\0"

#: What a link to the slot's directory has after the name of that, and the link: where the user came to the working directory
#: by a link, the tool does, too.
ALIAS_SUFFIX = ".pwd"
ALIAS = SLOT_MARK + os.fsencode(ALIAS_SUFFIX)

#: Folder in a slot for files that cannot lie at the user's own path; `millrace_core::slot` knows it, too. No dot: what is cut off
#: a path at one should not hide it.
PRIVATE = "_millrace"

#: Entries of one folder that are linked; a folder with more is linked only where an argument names an entry.
MOST_ENTRIES = 2000


class Place(msgspec.Struct, frozen=True):
    """Where an input or output lies in a slot, and what stands for it in the tool's arguments."""

    #: Relative to the slot's directory.
    path: str
    #: The argument's text; `SLOT_MARK` in it stands for the slot's directory.
    text: bytes


class Mirror(msgspec.Struct, frozen=True):
    """The layout that all slots share."""

    #: The real folder that a slot's directory stands for: the working directory or one above it.
    top: Path
    #: The working directory, relative to ``top``.
    directory: str
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    #: Folders to make, in order, relative to the slot.
    folders: tuple[str, ...]
    #: (path relative to the slot, target) of every link.
    links: tuple[tuple[str, str], ...]
    #: (private text, the user's text), longest first.
    substitutions: tuple[tuple[bytes, bytes], ...] = msgspec.field(default=())
    #: What the tool finds in ``PWD``; None: what the user has there.
    pwd: bytes | None = None
    #: What the tool sees of the user's folders where no links show them; see `millrace.node.overlay`.
    parts: Parts | None = None
    #: Real paths in these that it must not see.
    masked: tuple[str, ...] = ()
    #: (name, path) of what it is to see in the working directory besides.
    shown: tuple[tuple[str, str], ...] = ()

    @property
    def skeleton(self) -> list[str]:
        """Everything that stays in a slot from task to task."""
        return [*self.folders, *(path for path, _ in self.links)]

    def build(self, slot: Path, other: Mirror | None = None) -> None:
        """Make the skeleton in the new folder ``slot``, and that of an ``other`` layout for the same slot."""
        slot.mkdir(parents=True)
        for folder in dict.fromkeys([*self.folders, *(other.folders if other else ())]):
            (slot / folder).mkdir()
        for path, target in self.links:
            (slot / path).symlink_to(target)
        if self.pwd == ALIAS:
            Path(f"{slot}{ALIAS_SUFFIX}").symlink_to(slot.name)


def lay_out(
    use: ToolUse,
    cwd: Path,
    hidden: frozenset[Path] = frozenset(),
    names: Mapping[str, str] | None = None,
    pwd: str = "",
) -> Mirror:
    """Decide where everything lies.

    Args:
        use: The tool's inputs, outputs and arguments.
        cwd: The user's working directory, absolute.
        hidden: Real paths that a tool must not see (the run directory).
        names: What is to be seen in the working directory besides, or in the place of what is there: path by name.
        pwd: What the user has in ``PWD``.

    Returns:
        The layout. Reads folders; makes nothing.
    """
    literals = _literals(use)
    above = levels_above(use, cwd)
    top = cwd.parents[above - 1] if above else cwd
    directory = str(cwd.relative_to(top)) if above else ""
    placer = Placer(cwd, top)
    inputs, outputs = _inputs(use, cwd, placer), _outputs(use, placer)
    if use.fragmented and not placer.folders:
        placer.folders.append(PRIVATE)
    placed = [place.path for place in (*inputs, *outputs) if place.path]
    hides = {
        f"{top / place.path}{suffix}"
        for item, place in zip(use.inputs, inputs, strict=True) if place.path for suffix in item.hide
    }  # fmt: skip
    opened = _opened(top, cwd, placed)
    own = {str(top / path) for path in placed if not path.startswith(PRIVATE)}
    own |= hides | record_outputs(use, cwd) | {str(path) for path in (*hidden, *opened)}
    relative = [str(folder.relative_to(top)) for folder in opened]
    folders = [*placer.folders, *(path for path in relative if path != ".")]
    links = []
    for folder, path in zip(opened, relative, strict=True):
        there = {name: os.path.join(folder, name) for name in _entries(folder, literals)}
        for name, target in {**there, **(names or {} if folder == cwd else {})}.items():
            if os.path.join(folder, name) not in own:
                links.append((os.path.normpath(os.path.join(path, name)), target))
    folders.sort(key=lambda path: path.count("/"))
    substitutions = [*placer.substitutions, (private_text(directory), os.fsencode(cwd))]
    if directory:
        substitutions.append((SLOT_MARK, os.fsencode(top)))
    private = _pwd(pwd, cwd, directory)
    if private == ALIAS:
        substitutions.append((ALIAS, os.fsencode(pwd)))
    substitutions.sort(key=lambda pair: -len(pair[0]))
    return Mirror(top, directory, inputs, outputs, tuple(folders), tuple(links), tuple(substitutions), private)


def lay_out_apart(use: ToolUse, cwd: Path) -> Mirror:
    """The layout of a tool that works in the user's own folder, and has other paths for its input and outputs alone."""
    placer = Placer(cwd, cwd)
    inputs, outputs = _inputs(use, cwd, placer, apart=True), _outputs(use, placer, apart=True)
    if use.fragmented and not placer.folders:
        placer.folders.append(PRIVATE)
    substitutions = tuple(sorted(placer.substitutions, key=lambda pair: -len(pair[0])))
    return Mirror(cwd, str(cwd), inputs, outputs, tuple(placer.folders), (), substitutions)


def _literals(use: ToolUse) -> list[str]:
    return [token for token in use.argv if isinstance(token, str)]


def levels_above(use: ToolUse, cwd: Path) -> int:
    """How many folders above the working directory the command's paths reach."""
    typed = [*(item.path for item in use.inputs), *(output.path for output in use.outputs)]
    return min(max(map(_levels_up, [*_literals(use), *typed]), default=0), len(cwd.parents))


def _pwd(pwd: str, cwd: Path, directory: str) -> bytes | None:
    """What stands for ``PWD`` in a slot; None if it is not the working directory: a text like any other."""
    try:
        if not os.path.isabs(pwd) or not os.path.samefile(pwd, cwd):
            return None
    except OSError:
        return None
    # Above a folder that a link leads to is not what is above the link.
    return private_text(directory) if directory or pwd == str(cwd) else ALIAS


def _inputs(use: ToolUse, cwd: Path, placer: Placer, *, apart: bool = False) -> tuple[Place, ...]:
    return tuple(
        Place("", b"")
        if item.format == "files" or item.stdin
        else placer.place(
            item.path,
            f"in{k}",
            strip=item.packed is None,
            apart=apart or (item.packed is None and item.path.endswith(COMPRESSED)) or is_read_whole(use, k, cwd),
        )
        for k, item in enumerate(use.inputs)
    )


def _outputs(use: ToolUse, placer: Placer, *, apart: bool = False) -> tuple[Place, ...]:
    return tuple(
        Place("", b"")
        if output.stdout
        else placer.place(
            output.path, f"out{k}", folder=output.layout == "directory", named=output.layout == "record", apart=apart
        )
        for k, output in enumerate(use.outputs)
    )


def written_by_us(use: ToolUse, cwd: Path, mirror: Mirror, hidden: frozenset[Path] = frozenset()) -> list[str]:
    """Real files and folders below linked folders that Millrace writes, not the tool."""
    shown = {os.path.normpath(mirror.top / folder) for folder in ("", mirror.directory, *mirror.folders)}
    found = {str(path) for path in hidden}
    for output in use.outputs:
        if output.stdout:
            continue
        path = os.path.normpath(cwd / output.path)
        # Where each record has a file of its own, the folder is what they share.
        folder = os.path.dirname(path) if output.layout == "record" else path
        if folder not in shown:
            found |= {folder, os.path.realpath(folder)}
    return sorted(found)


def record_outputs(use: ToolUse, cwd: Path) -> set[str]:
    """Real paths of outputs that are one file a record: an earlier run's must not show through in a slot."""
    files = [name for item in use.inputs if item.format == "files" for name in item.path.split("\0")]
    if any(name.endswith(EACH) for name in files):  # not known yet: whatever is there may be theirs
        folders = {
            os.path.dirname(os.path.join(cwd, output.path)) for output in use.outputs if output.layout == "record"
        }
        return {
            os.path.normpath(os.path.join(folder, name)) for folder in folders for name in _entries(Path(folder), [])
        }
    return {
        os.path.normpath(os.path.join(cwd, record_path(output.path, file)))
        for output in use.outputs
        if output.layout == "record"
        for file in files
    }


class Placer:
    """Gives every input and output its place, and remembers what that needs."""

    def __init__(self, cwd: Path, top: Path) -> None:
        self.cwd, self.top = cwd, top
        self.folders: list[str] = []
        self.substitutions: list[tuple[bytes, bytes]] = []

    def place(
        self, typed: str, key: str, *, strip: bool = False, folder: bool = False, named: bool = False, apart: bool = False
    ) -> Place:  # fmt: skip
        """``strip``: without the ending of what is unpacked; ``apart``: never at the user's own path."""
        if not (apart or os.path.isabs(typed) or re.search(r"[^./][^/]*/+\.\.(/|$)", typed)):
            path = os.path.relpath(os.path.normpath(self.cwd / typed), self.top)
            return Place(path, os.fsencode(typed))
        name = os.path.basename(typed.rstrip("/")) or key
        if strip:
            name = unpacked_name(name)
        if not self.folders:
            self.folders.append(PRIVATE)
        self.folders.append(f"{PRIVATE}/{key}")
        path = f"{PRIVATE}/{key}/{name}"
        text = private_text(path)
        if named:  # every record has a name of its own: the folder is what they share
            self.substitutions.append((os.path.dirname(text), os.path.dirname(os.fsencode(typed)) or b"."))
            return Place(path, text)
        self.substitutions.append((text, os.fsencode(typed.rstrip("/") if folder else typed)))
        return Place(path, text + (b"/" if folder and typed.endswith("/") else b""))


def private_text(relative: str) -> bytes:
    """What stands in arguments for the path ``relative`` to a slot's directory."""
    return SLOT_MARK + (b"/" + os.fsencode(relative) if relative else b"")


def is_read_whole(use: ToolUse, index: int, cwd: Path) -> bool:
    """Whether an input that is cut is named once more, by an argument at which the tool reads all of it (all against all)."""
    if not any(isinstance(token, InputArg) and token.index == index for token in use.argv):
        return False  # a tool that finds its input by itself finds the batch at the input's path
    path = os.path.realpath(cwd / use.inputs[index].path)
    words = [word for literal in _literals(use) for word in _paths_in(literal)]
    return any(os.path.realpath(cwd / word) == path for word in words if word and "\0" not in word)


def _paths_in(literal: str) -> tuple[str, str, str]:
    """What may be a path in an argument: all of it, what follows ``--option=``, and what follows ``-o``."""
    return literal, literal.partition("=")[2], literal[2:] if literal.startswith("-") else ""


def _levels_up(argument: str) -> int:
    """How many folders above the working directory the argument's path reaches (also after ``--option=``)."""
    found = re.search(r"(?:^|=)((?:\./)*(?:\.\./+)*\.\.)(?:/|$)", argument)
    return found.group(1).count("..") if found else 0


def _opened(top: Path, cwd: Path, paths: list[str]) -> list[Path]:
    """Real folders whose mirror must be a folder of its own, not a link; parents first."""
    found = {top}
    folder = cwd
    while folder != top:
        found.add(folder)
        folder = folder.parent
    for path in paths:
        if path.startswith(PRIVATE):
            continue
        parent = (top / path).parent
        while parent != top and top in parent.parents:
            found.add(parent)
            parent = parent.parent
    return sorted(found, key=lambda folder: len(folder.parts))


def _entries(folder: Path, arguments: list[str]) -> list[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    if len(names) <= MOST_ENTRIES:
        return sorted(names)
    words = {word for argument in arguments for word in re.split(r"[/=\s,]", argument)}
    stems = tuple(word for word in words if word and word not in (".", ".."))
    # A database is named by its prefix (nr for nr.pin), so an entry counts if a word begins it.
    return sorted(name for name in names if name.startswith(stems)) if stems else []


def render(
    tokens: Sequence[Token], use: ToolUse, mirror: Mirror, files: list[str], rendered: Mapping[int, bytes],
    database: bytes = b"",
) -> list[bytes]:  # fmt: skip
    """Write one task's arguments.

    Args:
        tokens: The arguments with their places.
        files: The batch's files, for an input of format ``files``.
        rendered: Text of outputs that are named anew for every task, by index.
        database: Text of the database, where it is not the user's.
    """
    argv: list[bytes] = []
    for token in tokens:
        match token:
            case str():
                argv.append(os.fsencode(token))
            case InputArg(index=index, prefix=prefix) if use.inputs[index].format == "files":
                argv.extend(os.fsencode(prefix + name) for name in files)
            case InputArg(index=index, prefix=prefix):
                argv.append(os.fsencode(prefix) + mirror.inputs[index].text)
            case OutputArg(index=index, prefix=prefix, cut=cut):
                text = rendered.get(index) or mirror.outputs[index].text
                argv.append(os.fsencode(prefix) + text.removesuffix(os.fsencode(cut)))
            case DatabaseArg(prefix=prefix):
                argv.append(os.fsencode(prefix) + database)
            case ThreadsArg():
                argv.append(b"%d" % use.threads)
    return argv
