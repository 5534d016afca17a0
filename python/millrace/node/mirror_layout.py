"""The private working directory of a slot: a view of the user's own, with the task's files in it.

A tool must find every file where the serial command would find it: the arguments stay exactly as the user typed them,
relative paths included. So a slot's directory mirrors the user's working directory (and as many folders above it as
``../`` in the arguments reaches): every entry is a symbolic link to the real one, except the batch's input and the
outputs, which are real files of the task. Where a path cannot stay the same (an absolute path, a compressed input, an
input that the command also names elsewhere, to be read whole) the file lies in a private folder of the slot, and the
user's path is restored in the tool's output.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from millrace.adapters.adapter_base import EACH, expand_record_path
from millrace.core.record_formats import COMPRESSED, strip_compressed_suffix
from millrace.core.tool_use import ArgumentToken, DatabaseArg, InputArg, OutputArg, ScratchArg, ThreadsArg, ToolUse
from millrace.planning.folder_view import ViewParts

#: Placeholder of the slot's directory in arguments; a path cannot contain a NUL, so it is unique.
SLOT_MARK = b"\0slot\0"

#: Suffix of a link to the slot's directory, and that link: if the user entered the working directory
#: by a symbolic link, so does the tool.
ALIAS_SUFFIX = ".pwd"
ALIAS = SLOT_MARK + os.fsencode(ALIAS_SUFFIX)

#: Folder in a slot for files that cannot lie at the user's own path; also in ``millrace_core::slot``. Without a dot, so
#: that tools that cut a path at a dot keep it.
PRIVATE = "_millrace"

#: The scratch folder of a task in its slot (``ScratchArg``).
SCRATCH = f"{PRIVATE}/scratch"

#: The end of the path of a ``PreparedDatabase``.
DATABASE = "prepared/database"

#: Most entries of one folder that are all linked; in a larger folder, only entries that arguments name are linked.
MAX_LINKED_ENTRIES = 2000


class SlotPlace(msgspec.Struct, frozen=True):
    """Path of an input or output in a slot, and its text in the tool's arguments."""

    #: Relative to the slot's directory.
    path: str
    #: The argument's text; ``SLOT_MARK`` in it stands for the slot's directory.
    text: bytes
    #: The real path of the user's file that is seen there if nothing is placed; empty: none.
    real: str = ""


class SlotLayout(msgspec.Struct, frozen=True):
    """The layout that all slots share."""

    #: The real folder that a slot's directory stands for: the working directory or one above it.
    top: Path
    #: The working directory, relative to ``top``.
    directory: str
    inputs: tuple[SlotPlace, ...]
    outputs: tuple[SlotPlace, ...]
    #: Folders to make, in order, relative to the slot.
    folders: tuple[str, ...]
    #: (path relative to the slot, target) of every link.
    links: tuple[tuple[str, str], ...]
    #: (private text, the user's text), longest first.
    substitutions: tuple[tuple[bytes, bytes], ...] = msgspec.field(default=())
    #: The tool's ``PWD``; None: that of the user.
    pwd: bytes | None = None
    #: Overlays of the user's folders, in place of links; see ``millrace.node.slot_view``.
    parts: ViewParts | None = None
    #: Real paths in the overlays that the tool must not see.
    masked: tuple[str, ...] = ()
    #: (name, path) of further entries that the tool sees in the working directory.
    shown: tuple[tuple[str, str], ...] = ()

    @property
    def skeleton(self) -> list[str]:
        """Return the paths that stay in a slot from task to task."""
        return [*self.folders, *(path for path, _ in self.links)]

    def build_skeleton(self, slot: Path, other: SlotLayout | None = None) -> None:
        """Make the skeleton in the new folder ``slot``, and that of an ``other`` layout for the same slot."""
        slot.mkdir(parents=True)
        for folder in dict.fromkeys([*self.folders, *(other.folders if other else ())]):
            (slot / folder).mkdir()
        for path, target in self.links:
            (slot / path).symlink_to(target)
        if self.pwd == ALIAS:
            Path(f"{slot}{ALIAS_SUFFIX}").symlink_to(slot.name)


def lay_out_mirror(
    use: ToolUse, cwd: Path, hidden: frozenset[Path] = frozenset(), names: Mapping[str, str] | None = None, pwd: str = ""
) -> SlotLayout:  # fmt: skip
    """Choose the layout of links for a tool.

    Args:
        use: The tool's inputs, outputs and arguments.
        cwd: The user's working directory, absolute.
        hidden: Real paths that a tool must not see (the run directory).
        names: Further entries of the working directory, which replace existing ones: path by name.
        pwd: The user's ``PWD``.

    Returns:
        The layout. Reads folders; makes nothing.
    """
    literals = _list_literals(use)
    above = count_levels_above(use, cwd)
    top = cwd.parents[above - 1] if above else cwd
    directory = str(cwd.relative_to(top)) if above else ""
    placer = PathPlacer(cwd, top)
    inputs, outputs = _place_inputs(use, cwd, placer), _place_outputs(use, placer)
    if needs_private_folder(use):
        placer.add_private_folder()
    placed = [place.path for place in (*inputs, *outputs) if place.path]
    hides = {
        f"{top / place.path}{suffix}"
        for item, place in zip(use.inputs, inputs, strict=True) if place.path for suffix in item.hide
    }  # fmt: skip
    opened = _list_opened_folders(top, cwd, placed)
    own = {str(top / path) for path in placed if not path.startswith(PRIVATE)}
    own |= hides | list_record_outputs(use, cwd) | {str(path) for path in (*hidden, *opened)}
    relative = [str(folder.relative_to(top)) for folder in opened]
    folders = [*placer.folders, *(path for path in relative if path != ".")]
    links = []
    for folder, path in zip(opened, relative, strict=True):
        there = {name: os.path.join(folder, name) for name in _list_entries(folder, literals)}
        for name, target in {**there, **(names or {} if folder == cwd else {})}.items():
            if os.path.join(folder, name) not in own:
                links.append((os.path.normpath(os.path.join(path, name)), target))
    folders.sort(key=lambda path: path.count("/"))
    substitutions = [*placer.substitutions, (mark_private_path(directory), os.fsencode(cwd))]
    if directory:
        substitutions.append((SLOT_MARK, os.fsencode(top)))
    private = _choose_pwd(pwd, cwd, directory)
    if private == ALIAS:
        substitutions.append((ALIAS, os.fsencode(pwd)))
    substitutions.sort(key=lambda pair: -len(pair[0]))
    return SlotLayout(top, directory, inputs, outputs, tuple(folders), tuple(links), tuple(substitutions), private)


def lay_out_apart(use: ToolUse, cwd: Path) -> SlotLayout:
    """Choose the layout of a tool that runs in the user's own folder; only inputs and outputs have other paths."""
    placer = PathPlacer(cwd, cwd)
    inputs, outputs = _place_inputs(use, cwd, placer, apart=True), _place_outputs(use, placer, apart=True)
    if needs_private_folder(use):
        placer.add_private_folder()
    substitutions = tuple(sorted(placer.substitutions, key=lambda pair: -len(pair[0])))
    return SlotLayout(cwd, str(cwd), inputs, outputs, tuple(placer.folders), (), substitutions)


def _list_literals(use: ToolUse) -> list[str]:
    return [token for token in use.argv if isinstance(token, str)]


def count_levels_above(use: ToolUse, cwd: Path) -> int:
    """Return the number of folders above the working directory that the command's paths reach."""
    typed = [*(item.path for item in use.inputs), *(output.path for output in use.outputs)]
    return min(max(map(_count_levels_up, [*_list_literals(use), *typed]), default=0), len(cwd.parents))


def _choose_pwd(pwd: str, cwd: Path, directory: str) -> bytes | None:
    """Return the text of ``PWD`` in a slot; None if the user's ``PWD`` is not the working directory."""
    try:
        if not os.path.isabs(pwd) or not os.path.samefile(pwd, cwd):
            return None
    except OSError:
        return None
    # The parent of a link's target is not the parent of the link.
    return mark_private_path(directory) if directory or pwd == str(cwd) else ALIAS


def _place_inputs(use: ToolUse, cwd: Path, placer: PathPlacer, *, apart: bool = False) -> tuple[SlotPlace, ...]:
    return tuple(
        SlotPlace("", b"")
        if item.format == "files" or item.stdin
        else placer.place_path(
            item.path,
            f"in{k}",
            strip=item.packed is None,
            apart=apart or (item.packed is None and item.path.endswith(COMPRESSED)) or is_read_whole(use, k, cwd),
        )
        for k, item in enumerate(use.inputs)
    )


def _place_outputs(use: ToolUse, placer: PathPlacer, *, apart: bool = False) -> tuple[SlotPlace, ...]:
    return tuple(
        SlotPlace("", b"")
        if output.stdout
        else placer.place_path(
            output.path, f"out{k}", folder=output.layout == "directory", named=output.layout == "record", apart=apart
        )
        for k, output in enumerate(use.outputs)
    )


def list_own_paths(use: ToolUse, cwd: Path, mirror: SlotLayout, hidden: frozenset[Path] = frozenset()) -> list[str]:
    """Return real files and folders below linked folders that Millrace writes, not the tool."""
    shown = {os.path.normpath(mirror.top / folder) for folder in ("", mirror.directory, *mirror.folders)}
    found = {str(path) for path in hidden}
    for output in use.outputs:
        if output.stdout:
            continue
        path = os.path.normpath(cwd / output.path)
        # Where each record has a file of its own, they share the folder.
        folder = os.path.dirname(path) if output.layout == "record" else path
        if folder not in shown:
            found |= {folder, os.path.realpath(folder)}
    return sorted(found)


def list_record_outputs(use: ToolUse, cwd: Path) -> set[str]:
    """Return real paths of outputs that are one file a record: those of an earlier run must stay hidden in a slot."""
    files = [name for item in use.inputs if item.format == "files" for name in item.paths]
    if any(name.endswith(EACH) for name in files):  # inputs are not known yet: any existing file may be an output
        folders = {
            os.path.dirname(os.path.join(cwd, output.path)) for output in use.outputs if output.layout == "record"
        }
        return {
            os.path.normpath(os.path.join(folder, name))
            for folder in folders
            for name in _list_entries(Path(folder), [])
        }
    return {
        os.path.normpath(os.path.join(cwd, expand_record_path(output.path, file)))
        for output in use.outputs
        if output.layout == "record"
        for file in files
    }


class PathPlacer:
    """Chooser of the places of inputs and outputs, with the folders and substitutions that they need."""

    def __init__(self, cwd: Path, top: Path) -> None:
        self.cwd, self.top = cwd, top
        self.folders: list[str] = []
        self.substitutions: list[tuple[bytes, bytes]] = []

    def add_private_folder(self) -> None:
        """Add the folder in which all private files are, if it is not there."""
        if not self.folders:
            self.folders.append(PRIVATE)

    def place_path(
        self, typed: str, key: str, *, strip: bool = False, folder: bool = False, named: bool = False, apart: bool = False
    ) -> SlotPlace:  # fmt: skip
        """Choose the place of a file.

        Args:
            strip: Whether to drop the suffix of a compressed file that the tool gets unpacked.
            named: Whether each record has a file of its own: only the folder is then substituted.
            apart: Whether the file must not lie at the user's own path.
        """
        if not (apart or os.path.isabs(typed) or re.search(r"[^./][^/]*/+\.\.(/|$)", typed)):
            path = os.path.relpath(os.path.normpath(self.cwd / typed), self.top)
            return SlotPlace(path, os.fsencode(typed))
        name = os.path.basename(typed.rstrip("/")) or key
        if strip:
            name = strip_compressed_suffix(name)
        self.add_private_folder()
        self.folders.append(f"{PRIVATE}/{key}")
        path = f"{PRIVATE}/{key}/{name}"
        text = mark_private_path(path)
        if named:  # every record has a file of its own: they share only the folder
            self.substitutions.append((os.path.dirname(text), os.path.dirname(os.fsencode(typed)) or b"."))
            return SlotPlace(path, text)
        self.substitutions.append((text, os.fsencode(typed.rstrip("/") if folder else typed)))
        return SlotPlace(path, text + (b"/" if folder and typed.endswith("/") else b""))


def mark_private_path(relative: str) -> bytes:
    """Return the text in arguments for the path ``relative`` to a slot's directory."""
    return SLOT_MARK + (b"/" + os.fsencode(relative) if relative else b"")


def is_read_whole(use: ToolUse, index: int, cwd: Path) -> bool:
    """Tell whether an input that is cut is also named by an argument that reads all of it (all against all)."""
    if not any(isinstance(token, InputArg) and token.index == index for token in use.argv):
        return False  # a tool that finds its input without an argument finds the batch at the input's path
    path = os.path.realpath(cwd / use.inputs[index].path)
    words = [word for literal in _list_literals(use) for word in _extract_paths(literal)]
    return any(os.path.realpath(cwd / word) == path for word in words if word and "\0" not in word)


def _extract_paths(literal: str) -> tuple[str, str, str]:
    """Return the possible paths in an argument: all of it, the text after ``--option=``, and the text after ``-o``."""
    return literal, literal.partition("=")[2], literal[2:] if literal.startswith("-") else ""


def _count_levels_up(argument: str) -> int:
    """Return how many folders above the working directory the argument's path reaches (also after ``--option=``)."""
    found = re.search(r"(?:^|=)((?:\./)*(?:\.\./+)*\.\.)(?:/|$)", argument)
    return found.group(1).count("..") if found else 0


def _list_opened_folders(top: Path, cwd: Path, paths: list[str]) -> list[Path]:
    """Return the real folders that must be mirrored by a folder, not a link; parents first."""
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


def _list_entries(folder: Path, arguments: list[str]) -> list[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    if len(names) <= MAX_LINKED_ENTRIES:
        return sorted(names)
    words = {word for argument in arguments for word in re.split(r"[/=\s,]", argument)}
    stems = tuple(word for word in words if word and word not in (".", ".."))
    # A database is named by its prefix (nr for nr.pin), so an entry counts if a word begins it.
    return sorted(name for name in names if name.startswith(stems)) if stems else []


def render_argv(
    tokens: Sequence[ArgumentToken], use: ToolUse, mirror: SlotLayout, files: list[str], rendered: Mapping[int, bytes],
    database: bytes = b"",
) -> list[bytes]:  # fmt: skip
    """Render one task's arguments.

    Args:
        tokens: The arguments with their placeholders.
        files: The batch's files, for an input of format ``files``.
        rendered: Text of outputs that are named anew for every task, by index.
        database: Text of the database, if it is not the user's.
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
            case ScratchArg():
                argv.append(mark_private_path(SCRATCH))
    return argv


def has_scratch_folder(use: ToolUse) -> bool:
    """Tell whether the tool gets a folder for its own files."""
    return any(isinstance(token, ScratchArg) for token in use.argv)


def needs_private_folder(use: ToolUse) -> bool:
    """Tell whether tasks have private files besides inputs and outputs."""
    return bool(use.fragmented) or has_scratch_folder(use)
