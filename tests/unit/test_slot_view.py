"""Which folders of the user's have overlays, and where a task's files lie in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.core.tool_use import InputArg, InputUse, OutputArg, OutputUse, ToolUse
from millrace.node import slot_view
from millrace.planning import folder_view


def a_use(source: str, dest: str, *more: str) -> ToolUse:
    return ToolUse(
        adapter="generic", argv=("tool", InputArg(index=0), OutputArg(index=0), *more),
        inputs=(InputUse(path=source, format="lines"),), outputs=(OutputUse(name="out", path=dest),),
    )  # fmt: skip


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    for name in ("proj/sub/deeper", "other"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("proj/in", "proj/sub/in", "other/in"):
        (tmp_path / name).write_text(name)
    return tmp_path / "proj"


def test_overlays_are_as_few_as_hold_all_files(cwd: Path) -> None:
    layout = slot_view.lay_out_overlays(a_use("sub/in", "out"), cwd)
    assert layout.parts and layout.parts.overlays == (str(cwd),)
    assert (layout.inputs[0].path, layout.outputs[0].path) == ("upper-0/sub/in", "upper-0/out")
    assert layout.parts.folders == (("upper-0/sub", str(cwd / "sub")),)
    above = slot_view.lay_out_overlays(a_use("../other/in", "out"), cwd)
    assert above.parts and above.parts.overlays == (str(cwd.parent),), "the folder above is named"
    beside = slot_view.lay_out_overlays(a_use(str(cwd.parent / "other/in"), "out"), cwd)
    assert beside.parts and set(beside.parts.overlays) == {str(cwd), str(cwd.parent / "other")}
    assert beside.inputs[0].text == bytes(cwd.parent / "other/in"), "its text stays"


def test_input_behind_a_link_lies_where_the_link_leads(cwd: Path) -> None:
    (cwd / "link").symlink_to("../other/in")
    layout = slot_view.lay_out_overlays(a_use("link", "out"), cwd)
    assert layout.parts and layout.parts.overlays[1].endswith("/other") and layout.inputs[0].path == "upper-1/in"


@pytest.mark.parametrize("more", ["in", "./in", "--all=in", "whole"])
def test_input_read_whole_has_its_batches_elsewhere(cwd: Path, more: str) -> None:
    (cwd / "whole").symlink_to("in")
    layout = slot_view.lay_out_overlays(a_use("in", "out", more), cwd)
    assert layout.inputs[0].path == "_millrace/in0/in"


def test_device_output_keeps_its_name(cwd: Path) -> None:
    assert slot_view.lay_out_overlays(a_use("in", "/dev/null"), cwd).outputs[0].path == "_millrace/out0/null"


def test_mounts_below_overlays_are_bound_again(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = ["/", str(cwd / "sub"), str(cwd / "sub/deeper"), str(cwd.parent / "other"), "/proc"]
    monkeypatch.setattr(slot_view, "list_mount_points", lambda: points)
    layout = slot_view.lay_out_overlays(a_use("in", "out"), cwd)
    assert layout.parts and layout.parts.mounts == (str(cwd / "sub"),), "with what is mounted in it"
    layout = slot_view.lay_out_overlays(a_use("sub/in", "out"), cwd)
    assert layout.parts and layout.parts.overlays == (str(cwd), str(cwd / "sub")), "an input lies there"
    assert layout.inputs[0].path == "upper-1/in" and layout.parts.mounts == (str(cwd / "sub/deeper"),)


def test_masks_hide_outputs_and_show_names(cwd: Path, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    layout = slot_view.lay_out_overlays(a_use("in", "sub/out"), cwd, frozenset({cwd / "run"}), {"copy": "/elsewhere"})
    slot_view.build_masks(layout, tmp_path / "work")
    mask = tmp_path / "work" / folder_view.MASK.format(0)
    assert (mask / "run").is_char_device() and (mask / "sub/out").is_char_device()
    assert (mask / "copy").is_symlink() and (mask / "sub").stat().st_mtime == (cwd / "sub").stat().st_mtime


def test_escaped_names_of_mount_points_are_decoded() -> None:
    assert "/proc" in folder_view.list_mount_points()
