"""Choice and layout of a slot's view of the user's folders: overlays if possible, else links.

An overlay is mounted over the working directory, at its own path, for each task; the task writes into an upper layer
of the slot (``upper-0``), and its input lies there at the path of the user's. A folder elsewhere in which an input or
output lies has an overlay of its own. So arguments stay as the user typed them; only files that cannot lie at the
user's path (a device, an input that is also read whole) have another one, as in ``millrace.node.mirror_layout``.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from millrace.core.record_formats import COMPRESSED
from millrace.core.tool_use import InputUse, OutputUse, ToolUse
from millrace.node.mirror_layout import (
    PathPlacer,
    SlotLayout,
    SlotPlace,
    count_levels_above,
    is_read_whole,
    lay_out_apart,
    lay_out_mirror,
    list_record_outputs,
    needs_private_folder,
)
from millrace.planning.folder_view import (
    DEVICES,
    MASK,
    OpenView,
    ViewParts,
    can_relocate_files,
    is_below_folder,
    list_mount_points,
    open_view,
)
from millrace.planning.program_lookup import is_unknown_tool

#: Folder of a slot with the upper layer of an overlay, by number; as in ``crates/millrace-core/src/slot/view.rs``.
UPPER = "upper-{}"


class OverlayFolders:
    """The folders with an overlay, and the paths that lie in them.

    Args:
        folders: Real folders that must have an overlay, or lie in one.
        mounted: Real paths of mounts that this process does not see.
    """

    def __init__(self, folders: Sequence[str], mounted: Sequence[str] = ()) -> None:
        self._points = [*(point for point in list_mount_points() if point != "/"), *mounted]
        self.folders: list[str] = []
        for folder in sorted(folders, key=len):
            if self._find_holder(folder) is None:
                self.folders.append(folder)

    def _find_holder(self, path: str) -> str | None:
        """Return the overlay that shows ``path``, with no other mount in between; None: there is none."""
        found = [folder for folder in self.folders if is_below_folder(path, folder)]
        between = (
            point
            for point in self._points
            if found and is_below_folder(path, point) and is_below_folder(point, found[-1])
        )
        return found[-1] if found and all(point == found[-1] for point in between) else None

    def find_place(self, path: str) -> tuple[int, str] | None:
        """Return the number of the overlay that shows a real path, and the path in it; None: there is none."""
        holder = self._find_holder(os.path.dirname(path))
        return (self.folders.index(holder), os.path.relpath(path, holder)) if holder is not None else None

    def list_hidden_mounts(self) -> list[str]:
        """Return the mounts below the overlays, which overlays do not show."""
        found: list[str] = []
        for point in sorted(set(self._points), key=len):
            around = [each for each in (*self.folders, *found) if each != point and is_below_folder(point, each)]
            is_shown = point in self.folders or not around or max(around, key=len) in found
            if not is_shown and os.path.lexists(point):
                found.append(point)
        return found


def _list_masked_paths(
    use: ToolUse, cwd: Path, hidden: frozenset[Path], inputs: Sequence[str], outputs: Sequence[str]
) -> set[str]:
    """List what a tool must not see: outputs, hidden paths, and the files that lie beside inputs."""
    found = {path for path in outputs if path} | list_record_outputs(use, cwd)
    found |= {os.path.realpath(path) for path in hidden}
    for item, path in zip(use.inputs, inputs, strict=True):
        if path:
            found |= {f"{each}{suffix}" for suffix in item.hide for each in (path, _resolve_folder(cwd, item.path))}
    return found


def lay_out_overlays(
    use: ToolUse, cwd: Path, hidden: frozenset[Path] = frozenset(), names: Mapping[str, str] | None = None, *,
    spread: bool = True, mounted: Sequence[str] = (),
) -> SlotLayout:  # fmt: skip
    """Choose the layout of overlays for a tool.

    Args:
        hidden: Real paths that a tool must not see (the run directory).
        names: Further entries of the working directory, which replace existing ones: path by name.
        spread: Whether other folders than the working directory may have overlays.
        mounted: Paths of mounts that only the tools see (copies of databases).

    Returns:
        The layout. Reads folders; makes nothing.
    """
    home = os.path.realpath(cwd)
    inputs = [_find_input_path(item, k, use, cwd, names or {}) for k, item in enumerate(use.inputs)]
    outputs = [_find_output_path(output, cwd) for output in use.outputs]
    above = count_levels_above(use, cwd)
    wanted = {home}
    if spread:
        wanted |= {_find_nearest_folder(os.path.dirname(path)) for path in (*inputs, *outputs) if path}
        top = str(Path(home).parents[above - 1]) if above else "/"
        wanted |= {top} - {"/"}
    overlays = OverlayFolders(sorted(wanted), [os.path.realpath(path) for path in mounted])
    placer = PathPlacer(cwd, cwd)
    taken: set[tuple[int, str]] = set()
    placed_inputs = tuple(
        SlotPlace("", b"") if item.format == "files" or item.stdin
        else _place_in_overlay(overlays, inputs[k], item.path, taken)
        or placer.place_path(item.path, f"in{k}", strip=item.packed is None, apart=True)
        for k, item in enumerate(use.inputs)
    )  # fmt: skip
    placed_outputs = tuple(
        SlotPlace("", b"") if output.stdout
        else _place_in_overlay(overlays, outputs[k], output.path, taken)
        or placer.place_path(output.path, f"out{k}", folder=output.layout == "directory", named=output.layout == "record", apart=True)
        for k, output in enumerate(use.outputs)
    )  # fmt: skip
    if needs_private_folder(use):
        placer.add_private_folder()
    masked = _list_masked_paths(use, cwd, hidden, inputs, outputs)
    folders = _list_upper_folders(overlays, [*placed_inputs, *placed_outputs])
    return SlotLayout(
        top=cwd, directory=str(cwd), inputs=placed_inputs, outputs=placed_outputs, folders=tuple(placer.folders), links=(),
        substitutions=tuple(sorted(placer.substitutions, key=lambda pair: -len(pair[0]))),
        parts=ViewParts(tuple(overlays.folders), tuple(overlays.list_hidden_mounts()), folders),
        masked=tuple(_select_outermost(masked)), shown=tuple(sorted((names or {}).items())),
    )  # fmt: skip


def _resolve_folder(cwd: Path, typed: str) -> str:
    """Return the path of a file with links to folders resolved; the file itself may be a link."""
    path = os.path.join(cwd, typed.rstrip("/"))
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _find_input_path(item: InputUse, index: int, use: ToolUse, cwd: Path, names: Mapping[str, str]) -> str:
    """Return the real path at which a task finds its part of an input; empty: it cannot lie at its own path."""
    if item.format == "files" or item.stdin or (item.packed is None and item.path.endswith(COMPRESSED)):
        return ""
    if is_read_whole(use, index, cwd):
        return ""
    path = _resolve_folder(cwd, item.path)
    if item.path in names or not os.path.lexists(path):
        return path if os.path.isdir(os.path.dirname(path)) else ""
    real = os.path.realpath(path)
    if any(os.path.realpath(cwd / each) == real for each in use.databases):
        return ""
    return real if _is_regular_file(real) else ""


def _find_output_path(output: OutputUse, cwd: Path) -> str:
    """Return the real path at which a task writes an output; empty: it cannot lie at its own path."""
    if output.stdout:
        return ""
    path = _resolve_folder(cwd, output.path)
    return (
        path
        if not os.path.lexists(path) or os.path.islink(path) or os.path.isdir(path) or _is_regular_file(path)
        else ""
    )


def _is_regular_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode) and not any(is_below_folder(path, folder) for folder in DEVICES[1:])
    except OSError:
        return False


def _find_nearest_folder(folder: str) -> str:
    """Return the folder, or the nearest existing one above it."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def _place_in_overlay(overlays: OverlayFolders, path: str, typed: str, taken: set[tuple[int, str]]) -> SlotPlace | None:
    """Return the place of a file at the user's own path; None: it cannot lie there."""
    place = overlays.find_place(path) if path else None
    if not place or place in taken:
        return None
    taken.add(place)
    return SlotPlace(os.path.join(UPPER.format(place[0]), place[1]), os.fsencode(typed), path)


def _list_upper_folders(overlays: OverlayFolders, places: Sequence[SlotPlace]) -> tuple[tuple[str, str], ...]:
    """Return folders of the upper layers that hold files, with the user's folders; outer ones before inner ones."""
    found = set[tuple[str, str]]()
    for number, folder in enumerate(overlays.folders):
        upper = UPPER.format(number)
        for place in places:
            inner = os.path.dirname(place.path)
            while inner.startswith(f"{upper}/"):
                found.add((inner, os.path.join(folder, os.path.relpath(inner, upper))))
                inner = os.path.dirname(inner)
    return tuple(sorted(found))


def _select_outermost(paths: set[str]) -> list[str]:
    """Return the paths that lie below no other one."""
    found: list[str] = []
    for path in sorted(paths):
        if not found or not is_below_folder(path, found[-1]):
            found.append(path)
    return found


def build_masks(layout: SlotLayout, work: Path) -> list[Path]:
    """Make the layers that hide paths from a tool and show it further entries; return their paths.

    Raises:
        OSError: They cannot be made.
    """
    assert layout.parts
    overlays = OverlayFolders(layout.parts.overlays)
    masks = [work / MASK.format(number) for number in range(len(overlays.folders))]
    made: dict[str, str] = {}
    for mask, folder in zip(masks, overlays.folders, strict=True):
        mask.mkdir()
        made[str(mask)] = folder
    for path in layout.masked:
        if place := _make_mask_path(overlays, masks, path, made):
            os.mknod(place, stat.S_IFCHR, os.makedev(0, 0))
    for name, target in layout.shown:
        if (place := _make_mask_path(overlays, masks, _resolve_folder(layout.top, name), made)) and not os.path.lexists(
            place
        ):
            os.symlink(target, place)
    for place in sorted(made, key=len, reverse=True):
        about = os.stat(made[place])
        os.chmod(place, stat.S_IMODE(about.st_mode))
        os.utime(place, ns=(about.st_atime_ns, about.st_mtime_ns))
    return masks


def _make_mask_path(overlays: OverlayFolders, masks: Sequence[Path], path: str, made: dict[str, str]) -> str:
    """Return the path in a mask, and make its parents as far as the user has them; empty: no mask holds it."""
    place = overlays.find_place(path)
    if not place or not os.path.isdir(os.path.dirname(path)):
        return ""
    number, inner = place
    folder = str(masks[number])
    for name in inner.split("/")[:-1]:
        real, folder = os.path.join(made[folder], name), os.path.join(folder, name)
        if folder not in made:
            os.mkdir(folder)
            made[folder] = real
    return os.path.join(folder, inner.rpartition("/")[2])


class SlotView(msgspec.Struct, frozen=True):
    """The view that the tools of a node have of the user's folders."""

    layout: SlotLayout
    #: The open overlays; None: the view is made of links.
    opened: OpenView | None = None
    #: The layout of verification tasks, in the user's own folder, where other tasks see links.
    apart: SlotLayout | None = None

    def close(self) -> None:
        """Close the descriptors, of which the pool has copies."""
        if self.opened:
            self.opened.close()


def choose_view(
    use: ToolUse, cwd: Path, work: Path, hidden: frozenset[Path], names: Mapping[str, str] | None, pwd: str,
    namespaces: Sequence[int], mounted: Sequence[str] = (),
) -> SlotView:  # fmt: skip
    """Choose the best view that this machine allows.

    Args:
        work: The work directory, which holds the slots.
        hidden, names, pwd: As for ``millrace.node.mirror_layout.lay_out_mirror``.
        namespaces: Descriptors of the namespaces in which the tools are started.
        mounted: Paths of mounts in these.
    """
    if not use.warm:  # a forked tool would need a new view while it runs
        for spread in (True, False):
            layout = lay_out_overlays(use, cwd, hidden, names, spread=spread, mounted=mounted)
            if opened := _try_overlays(layout, work, namespaces):
                return SlotView(layout, opened)
    can_be_apart = can_relocate_files(use) and not names
    if can_be_apart and not is_unknown_tool(use):
        return SlotView(lay_out_apart(use, cwd))
    apart = lay_out_apart(use, cwd) if can_be_apart else None
    return SlotView(lay_out_mirror(use, cwd, hidden, names, pwd), apart=apart)


def _try_overlays(layout: SlotLayout, work: Path, namespaces: Sequence[int]) -> OpenView | None:
    assert layout.parts
    try:
        build_masks(layout, work)
        return open_view(layout.parts, work / "slot-trial", namespaces)
    except OSError:
        for mask in work.glob(MASK.format("*")):
            shutil.rmtree(mask, ignore_errors=True)
        return None
