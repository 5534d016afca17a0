"""The view that a tool has of the user's working directory."""

from __future__ import annotations

import os
from pathlib import Path

from millrace.core.tool_use import InputArg, InputUse, OutputArg, OutputUse, ToolUse
from millrace.node import mirror_layout


def a_use(source: str, dest: str) -> ToolUse:
    return ToolUse(
        adapter="generic",
        argv=("tool", "-i", InputArg(index=0), "-o", OutputArg(index=0), "-d", "db"),
        inputs=(InputUse(path=source, format="fasta"),),
        outputs=(OutputUse(name="out", path=dest),),
    )


def built(use: ToolUse, cwd: Path, slot: Path) -> tuple[mirror_layout.SlotLayout, list[bytes]]:
    layout = mirror_layout.lay_out_mirror(use, cwd)
    layout.build_skeleton(slot)
    return layout, mirror_layout.render_argv(use.argv, use, layout, [], {})


def test_relative_paths_keep_their_text_and_are_not_links(tmp_path: Path) -> None:
    cwd = tmp_path / "cwd"
    (cwd / "sub").mkdir(parents=True)
    for name in ("in.fa", "db", "sub/other"):
        (cwd / name).write_text(name)
    layout, argv = built(a_use("in.fa", "sub/out"), cwd, tmp_path / "slot")
    assert argv == [b"tool", b"-i", b"in.fa", b"-o", b"sub/out", b"-d", b"db"]
    slot = tmp_path / "slot" / layout.directory
    assert not (slot / "in.fa").exists(), "the batch comes here"
    assert (slot / "db").read_text() == "db" and (slot / "sub/other").read_text() == "sub/other"
    # What the tool writes beside its output is not written into the user's folder.
    (slot / "sub" / "dropped").write_text("")
    assert not (cwd / "sub" / "dropped").exists()


def test_paths_above_the_working_directory_are_mirrored_too(tmp_path: Path) -> None:
    cwd = tmp_path / "a" / "b"
    cwd.mkdir(parents=True)
    (tmp_path / "a" / "in.fa").write_text("x")
    layout, argv = built(a_use("../in.fa", "out"), cwd, tmp_path / "slot")
    assert argv[2] == b"../in.fa" and layout.directory == "b"
    assert layout.inputs[0].path == "in.fa" and layout.outputs[0].path == "b/out"


def test_absolute_path_is_in_the_slot_and_is_restored(tmp_path: Path) -> None:
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    layout, argv = built(a_use(str(tmp_path / "in.fa"), "out"), cwd, tmp_path / "slot")
    assert argv[2] == mirror_layout.SLOT_MARK + b"/_millrace/in0/in.fa"
    assert (argv[2], os.fsencode(tmp_path / "in.fa")) in layout.substitutions


def test_skeleton_lists_all_created_paths(tmp_path: Path) -> None:
    cwd = tmp_path / "cwd"
    (cwd / "sub").mkdir(parents=True)
    (cwd / "db").write_text("")
    layout, _ = built(a_use("sub/in.fa", "out"), cwd, tmp_path / "slot")
    made = {str(path.relative_to(tmp_path / "slot")) for path in (tmp_path / "slot").rglob("*")}
    assert made == {os.path.normpath(name) for name in layout.skeleton}


def test_hidden_folders_are_not_seen(tmp_path: Path) -> None:
    (tmp_path / "cwd" / "out.millrace").mkdir(parents=True)
    layout = mirror_layout.lay_out_mirror(
        a_use("in.fa", "out"), tmp_path / "cwd", frozenset({tmp_path / "cwd" / "out.millrace"})
    )
    assert not layout.links
