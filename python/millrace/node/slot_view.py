"""Choice of the best available view of the user's folders for the slots of a node."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from millrace.model import ToolUse
from millrace.node import overlay
from millrace.node.mirror import SlotLayout, lay_out_apart, lay_out_mirror
from millrace.plan.doubts import is_unknown_tool
from millrace.plan.folder_view import MASK, OpenView, can_relocate_files, open_view


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
        hidden, names, pwd: As for ``millrace.node.mirror.lay_out_mirror``.
        namespaces: Descriptors of the namespaces in which the tools are started.
        mounted: Paths of mounts in these.
    """
    if not use.warm:  # a forked tool would need a new view while it runs
        for spread in (True, False):
            layout = overlay.lay_out_overlays(use, cwd, hidden, names, spread=spread, mounted=mounted)
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
        overlay.build_masks(layout, work)
        return open_view(layout.parts, work / "slot-trial", namespaces)
    except OSError:
        for mask in work.glob(MASK.format("*")):
            shutil.rmtree(mask, ignore_errors=True)
        return None
