"""What the generic adapter makes of a command and of --input, --output and --shared."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.adapters.registry import find_adapter
from millrace.core.errors import RefusedError
from millrace.core.tool_use import InputArg, InputUse, OutputArg, ToolUse, UserCommand


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    for name in ("q.fa", "r.fq", "db.bin"):
        (tmp_path / name).write_text("@x\nMK\n+\nII\n" if name == "r.fq" else ">x\nMK\n")
    (tmp_path / "db.dat").write_bytes(bytes(range(1, 100)))
    return tmp_path


def understand(cwd: Path, text: str, **more: object) -> ToolUse:
    argv = tuple(text.split())
    command = UserCommand(argv=argv, cwd=cwd, environ={}, exe=Path("/bin/true"), **more)  # type: ignore[arg-type]
    return find_adapter(argv[0]).understand_command(command)


def test_filter_from_stdin_to_stdout(cwd: Path) -> None:
    use = understand(cwd, "./myfilter -x", format="fasta", stdin_is_data=True)
    assert use.inputs == (InputUse(path="-", format="fasta", stdin=True),)
    assert [(out.name, out.stdout, out.join) for out in use.outputs] == [("stdout", True, "concat")]
    assert use.argv == ("./myfilter", "-x")
    assert "one after another" in use.notes[0]


def test_per_record_output_name_may_be_shortened(cwd: Path) -> None:
    """In the arguments alone: the tool adds the ending."""
    (cwd / "in").mkdir()
    (cwd / "in" / "a.fa").write_text(">x\nMK\n")
    outputs = ("out/{stem}.tree", "out/{stem}.log")
    use = understand(cwd, "mytool in --prefix=out/{stem} {stem} out", inputs=("in",), outputs=outputs)
    assert use.argv[2:] == (OutputArg(index=0, prefix="--prefix=", cut=".tree"), "{stem}", "out")
    assert [out.path for out in use.outputs] == [*outputs, "-"]


def test_named_files_are_recognised_in_the_arguments(cwd: Path) -> None:
    use = understand(
        cwd,
        "mytool -i q.fa --mate=r.fq -o out.txt --log=sub/out.txt of=x",
        inputs=("q.fa", "r.fq:fastq"),
        outputs=("out.txt", "sub/out.txt", "own.tsv", "x"),
        shared=("db.bin",),
    )
    assert use.argv == (
        "mytool",
        "-i",
        InputArg(index=0),
        InputArg(index=1, prefix="--mate="),
        "-o",
        OutputArg(index=0),
        OutputArg(index=1, prefix="--log="),
        OutputArg(index=3, prefix="of="),
    )
    assert [each.format for each in use.inputs] == ["fasta", "fastq"]
    assert [out.name for out in use.outputs] == ["out.txt", "sub-out.txt", "own.tsv", "x", "stdout"]
    assert use.databases == (cwd / "db.bin",)
    assert any("own.tsv is not in the arguments" in note for note in use.notes)
    assert any("2 inputs advance together" in note for note in use.notes)


def test_input_not_in_the_arguments_is_placed_at_its_own_path(cwd: Path) -> None:
    use = understand(cwd, "mytool", inputs=("q.fa",))
    assert not any(isinstance(token, InputArg) for token in use.argv)
    assert not use.inputs[0].stdin
    assert any("at that relative path" in note for note in use.notes)


def test_one_file_per_record(cwd: Path) -> None:
    (cwd / "in").mkdir()
    (cwd / "in" / "a").write_text("x")
    use = understand(cwd, "mytool in res/{name}", inputs=("in",), outputs=("res/{name}",))
    assert (use.inputs[0].format, use.outputs[0].layout, use.cost.max_records) == ("files", "record", 1)


@pytest.mark.parametrize(
    ("command", "more", "problem"),
    [
        ("mytool -i q.fa", {}, "no input is named"),
        ("sort q.fa", {"inputs": ("q.fa",)}, "orders or compares the whole input"),
        ("/usr/bin/wc -l", {"stdin_is_data": True}, "counts or numbers"),
        ("mytool nothere", {"inputs": ("nothere",)}, "no such file"),
        ("mytool q.fa", {"inputs": ("./q.fa",)}, "spell it 'q.fa'"),
        ("mytool q.fa", {"inputs": ("q.fa:fsta",)}, "unknown record format 'fsta'"),
        ("mytool q.fa -o q.fa", {"inputs": ("q.fa",), "outputs": ("q.fa",)}, "both input and output"),
        ("mytool q.fa o", {"inputs": ("q.fa",), "outputs": ("o", "o")}, "given twice"),
        ("mytool q.fa", {"inputs": ("q.fa",), "outputs": ("/abs/o",)}, "is not in the arguments"),
        ("mytool q.fa", {"inputs": ("q.fa",), "shared": ("nodb",)}, "no such file"),
        (
            "mytool q.fa o/{stem}",
            {"inputs": ("q.fa",), "outputs": ("o/{stem}",)},
            "no input is a set of files",
        ),
        ("mytool", {"inputs": ("-:fasta",)}, "nothing comes in"),
        ("mytool", {"inputs": ("q.fa",), "stdin_is_data": True}, "data comes in on standard input"),
        ("mytool", {"stdin_is_data": True}, "its format cannot be told"),
        ("mytool db.dat", {"inputs": ("db.dat",)}, "its format cannot be told"),
    ],
)
def test_refused_by_name(cwd: Path, command: str, more: dict[str, object], problem: str) -> None:
    with pytest.raises(RefusedError, match=problem) as caught:
        understand(cwd, command, **more)
    assert caught.value.hint or "no such file" in problem


def test_stream_names_are_unique(cwd: Path) -> None:
    outputs = ("a/x", "b/x", "stdout", "b x/x")
    use = understand(cwd, "mytool q.fa", inputs=("q.fa",), outputs=outputs)
    names = [out.name for out in use.outputs]
    assert len(set(names)) == 5
    assert names[:2] == ["x", "b-x"]
