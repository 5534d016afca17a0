"""What the adapter of MUSCLE understands and refuses; no MUSCLE is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.adapters.muscle import ADAPTER
from millrace.core.errors import RefusedError
from millrace.core.tool_use import InputArg, OutputArg, ToolUse, UserCommand


@pytest.fixture
def families(tmp_path: Path) -> Path:
    """A working directory with a folder of three families and an empty folder for alignments."""
    (tmp_path / "families").mkdir()
    (tmp_path / "aln").mkdir()
    for name in ("b.faa", "a.faa", "c.faa"):
        (tmp_path / "families" / name).write_text(">x\nMK\n>y\nMR\n")
    return tmp_path


def understand(cwd: Path, text: str) -> ToolUse:
    return ADAPTER.understand_command(UserCommand(argv=tuple(text.split()), cwd=cwd, environ={}, exe=Path("/bin/true")))


def test_version_3_folder_to_folder(families: Path) -> None:
    use = understand(families, "muscle3 -in families/ -out aln/ -quiet")
    assert use.argv == ("muscle3", "-in", InputArg(index=0), "-out", OutputArg(index=0), "-quiet")
    assert (use.inputs[0].path, use.inputs[0].format) == ("families/", "files")
    assert [(out.name, out.path, out.layout) for out in use.outputs] == [
        ("out", "aln/{name}", "record"),
        ("stdout", "-", "file"),
    ][:1]
    assert use.cost.max_records == 1
    assert use.fatal_statuses == (1,)


def test_template_names_each_alignment(families: Path) -> None:
    use = understand(families, "muscle3 -IN families -out aln/{stem}.afa")
    assert (use.outputs[0].path, use.outputs[0].layout) == ("aln/{stem}.afa", "record")


@pytest.mark.parametrize("out", ["-out all.afa", ""])
def test_one_output_has_all_alignments_in_order(families: Path, out: str) -> None:
    use = understand(families, f"muscle3 -in families {out}")
    assert [(each.layout, each.join) for each in use.outputs] == [("file", "concat")]
    assert use.outputs[0].stdout == (not out)


def test_several_names_and_lists(families: Path) -> None:
    (families / "names").write_text("families/a.faa\nfamilies/b.faa\n")
    assert understand(families, "muscle3 -in names -out aln/").inputs[0].path == "names"
    assert understand(families, "muscle3 -in families/*.faa -out aln/").inputs[0].path == "families/*.faa"


def test_version_5_gets_one_thread_by_default(families: Path) -> None:
    use = understand(families, "muscle -align families -output aln/")
    assert use.argv[-2:] == ("-threads", "1")
    use = understand(families, "muscle -align families -output aln/ -threads 4")
    assert (use.threads, use.argv[-2:]) == (4, ("-threads", "4"))


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("muscle3 -in families/a.faa -out x", "one family"),
        ("muscle3 -out aln/", "no -in"),
        ("muscle3 -in families -maxhours 1", "stops by the clock"),
        ("muscle3 -profile -in1 a -in2 b", "works on two inputs"),
        ("muscle3 -in nowhere", "no such file"),
        ("muscle3 -in aln -out x", "no files in it"),
        ("muscle3 -in families -frobnicate 3", "-frobnicate is not known"),
        ("muscle3 -in families -out", "-out needs a value"),
        ("muscle3 -in families -out families/", "overwritten by its own result"),
        ("muscle -align families", "no -output"),
        ("muscle -super5 families -output aln/", "another alignment each time"),
        ("muscle -super5 families -output aln/ -threads 2", "another alignment each time"),
        ("muscle -align families -output aln/@.efa -stratified", "a file per replicate"),
        ("muscle -align families -output aln/ -randseed 0", "from the clock"),
        ("muscle -resample families -output aln/", "-resample is not known"),
    ],
)
def test_refused_by_name(families: Path, command: str, problem: str) -> None:
    with pytest.raises(RefusedError, match=problem) as caught:
        understand(families, command)
    assert caught.value.message[0].islower()
    assert not caught.value.message.endswith(".")
