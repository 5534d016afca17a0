"""Job files of HSP-Wrap: what each construct means, and refusals with line and column."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.core.errors import RefusedError
from millrace.core.record_formats import FORMATS
from millrace.extensions.workflow.hsp_grammar import HspParser, HspStatement, HspText
from millrace.extensions.workflow.hsp_wrap import HspReader, read_hsp_job
from millrace.extensions.workflow.workflow_description import parse_workflow

MACHINE = os.uname().machine


def read(text: str, cwd: Path) -> dict[str, Any]:
    found: dict[str, Any] = HspReader("job.hsp", cwd).read_values(text)["phase"]
    return found


def phase(more: str, args: str = "-u in out", exe: str = 'exe-file "tool";') -> str:
    return f'phase a {{ {exe} exe-args "{args}"; {more} }};'


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Files that job files name."""
    (tmp_path / "db").mkdir()
    for name in ("in", "db/nr.pin", "db/nr.phr", "db/keep.txt"):
        (tmp_path / name).touch()
    return tmp_path


TABLE = {"command": ["tool", "-u", "in", "out"], "input": [], "output": [], "shared": []}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (phase('stream "in";'), {"input": ["in"]}),
        (phase('stream "in" { };'), {"input": ["in"]}),
        (phase('stream "in" { input; format fasta; };'), {"input": ["in:fasta"]}),
        (phase('stream "out" { output; };'), {"output": ["out"]}),
        (phase('stream "out" { output; format fasta; };'), {"output": ["out"]}),
        (
            phase('stream "out" { path "x"; };'),
            {"command": ["tool", "-u", "in", "x"], "input": ["x"]},
        ),
        (
            phase('stream "q" { path "x"; };', "--in=q -q=qq q=q"),
            {"command": ["tool", "--in=x", "-q=qq", "q=x"], "input": ["x"]},
        ),
        (phase('file "in";'), {"shared": ["in"]}),
        (phase('file "db/*";'), {"shared": ["db/keep.txt", "db/nr.phr", "db/nr.pin"]}),
        (phase('file "in" { path "db/keep.txt"; };'), {"command": ["tool", "-u", "db/keep.txt", "out"], "shared": ["db/keep.txt"]}),
        (
            phase('file "x.p?*" { path "db/nr.p?*"; };', "-db x y x.pin --db=x.phr"),
            {"command": ["tool", "-db", "db/nr", "y", "db/nr.pin", "--db=db/nr.phr"], "shared": ["db/nr.phr", "db/nr.pin"]},
        ),
        (phase('file "y/*" { path "./db/*.txt"; };'.replace("y/*", "y/*.txt"), "y/keep.txt y"),
         {"command": ["tool", "./db/keep.txt", "./db"], "shared": ["./db/keep.txt"]}),
        (phase("", "'a b' \\\"c d\\\" e"), {"command": ["tool", "a b", "c d", "e"]}),
        (phase(f'arch {MACHINE} {{ exe-file "x"; }}; arch vax {{ exe-file "y"; }};'),
         {"command": ["x", "-u", "in", "out"], "arch": {MACHINE: {"exe": "x"}, "vax": {"exe": "y"}}}),
        (phase('arch vax { exe-file "y"; };'), {"command": ["y", "-u", "in", "out"], "arch": {"vax": {"exe": "y"}, MACHINE: {"exe": "tool"}}}),
        (phase('arch vax { exe-args "other"; };'), {"arch": {MACHINE: {"exe": "tool"}}}),
        ("phase a { exe tool\n args -u in 'out'\n}", {}),
        ("phase 'a' { exe = tool; args = '-u in out' // x\n /* y\n */ stream in z } // end", {"input": ["z"]}),
        ('phase a { exe tool; args "-u in out"\n stream read out { type output } }'.replace("read ", ""), {"output": ["out"]}),
        ("master\n{\nbcast-chunk-size\n1M\n}\nphase\na\n{\nexe-file\ntool\nexe-args\n\"-u in out\"\n}", {}),
    ],
)  # fmt: skip
def test_statement_means_this_value(text: str, wanted: dict[str, Any], files: Path) -> None:
    assert read(text, files)["a"] == {**TABLE, **wanted}
    parse_workflow(HspReader("job.hsp", files).read_values(text), "job.hsp")


def test_known_tool_needs_no_streams_and_threads_may_differ(files: Path) -> None:
    text = f"""phase search {{
      arch vax {{ exe-file "vax/blastp"; exe-args "-num_threads 4 -query q -db db/nr"; }};
      arch {MACHINE} {{ exe-file "blastp"; exe-args "-query q -db db/nr"; }};
      stream "q" {{ path "in"; }}; file "db/nr"; }};"""
    assert read(text, files)["search"] == {
        "command": ["vax/blastp", "-num_threads", "4", "-query", "in", "-db", "db/nr"],
        "arch": {"vax": {"exe": "vax/blastp"}, MACHINE: {"exe": "blastp"}},
    }


def test_job_is_read_for_the_machine_where_it_was_typed(files: Path) -> None:
    text = phase('arch vax { exe-args "other"; }; arch pdp { exe-file "x"; };')
    found = HspReader("job.hsp", files, "pdp").read_values(text)["phase"]["a"]
    assert found == {**TABLE, "command": ["x", "-u", "in", "out"], "arch": {"pdp": {"exe": "x"}}}


def test_phases_are_sorted_by_what_they_depend_on(files: Path) -> None:
    depends = {"c": "depends-on phase b; depends-on phase a;", "d": "", "b": "depends-on a", "a": ""}
    text = "".join(phase(more).replace("phase a {", f"phase {name} {{", 1) for name, more in depends.items())
    found = read(text, files)
    assert list(found) == ["d", "a", "b", "c"]
    assert [found[name].get("after") for name in "dabc"] == [None, None, ["a"], ["b", "a"]]


def test_file_of_another_phase_need_not_be_there(files: Path) -> None:
    text = phase('stream "out" { output; path "made/x.fa"; };') + phase('file "made/*.fa";').replace(
        "phase a", "phase b"
    )
    assert read(text, files)["b"]["shared"] == ["made/x.fa"]


def test_settings_without_effect_are_said_once(files: Path) -> None:
    text = "master { bcast-chunk-size 16k; };" + "".join(
        phase('stream "in" { prefetch-ratio 0.5; }; stream "out" { output; prefetch-ratio 2; };').replace(
            "a {", f"{name} {{", 1
        )
        for name in "ab"
    )
    _, notes = read_hsp_job(text.encode(), "job.hsp", files)
    assert [note.partition(" has no")[0] for note in notes] == ["bcast-chunk-size", "prefetch-ratio"]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('phase a {\n  stream "x {\n}', "2:10", "unexpected '\"'"),
        ("phase a {\n  /* x\n}", "2:3", "unexpected '/'"),
        ("phase a { exe x; args y;", "1:25", "unexpected the end"),
        ("phase a { exe x; args y; };\n};", "2:1", "unexpected '}'"),
        ("phase a;", "1:8", "unexpected ';'"),
        ("phase { exe x; args y; };", "1:7", "phase has a value"),
        ('phase "a b" { };', "1:7", "phase a b: not a name"),
        ("phase done { };", "1:7", "phase done: not a name"),
        ('"phase" a { };', "1:1", "a statement begins with one of master, phase"),
        ('phase a { exe-file "x" "y"; };', "1:24", "end exe-file with ;"),
        ('phase a { exe-file "x" { };', "1:24", "end exe-file with ;"),
        ('phase a { exe-args -a=b; };', "1:22", "values with blanks or signs stand in quotes"),
        ('phase a { exe-file; };', "1:19", "exe-file has a value"),
        ('phase a { exe-file ""; };', "1:20", "an empty value"),
        ('phase a { exe-file "x"; exe "y"; };', "1:25", "exe-file is there twice"),
        ("phase a { \x00 };", "1:11", "unexpected '\\x00'"),
        ("phase a {\n  strxam x; }", "2:3", "did you mean 'stream'?"),
        ("Phasse a {}", "1:1", "unknown key 'Phasse'"),
        ("phasse a {}", "1:1", "did you mean 'phase'?"),
        ("", "1:1", "no phase"),
        ("# nothing\n", "1:1", "no phase"),
        ("phase a { exe x }", "1:1", "no exe-args"),
        ("phase a { args x }", "1:1", "no exe-file"),
        ('phase a { exe x; args "a \'b" }', "1:18", "No closing quotation"),
        ("phase a { exe x; args y\n stream z { format fsta } }", "2:13", "unknown record format 'fsta'"),
        ("phase a { exe x; args y\n stream z in { type sideways } }", "2:2", "one name and one direction"),
        ("phase a { exe x; args y\n stream z { input; output; } }", "2:2", "one name and one direction"),
        ("phase a { exe x; args y\n stream y; stream y }", "2:12", "stream y is there twice"),
        ("phase a { exe x; args y\n stream z { path w; }; }", "2:2", "stream z is not in exe-args"),
        ("phase a { exe blastp; args y\n stream z; }", "2:2", "stream z is not in exe-args"),
        ("phase a { exe x; args y\n stream y { prefetch-ratio 1M; }; }", "2:28", "'1M' is not a number"),
        ("phase a { exe x; args y\n file 'none/*' }", "2:2", "none/*: no files there"),
        ("phase a { exe x; args y\n file none }", "2:2", "none: no files there"),
        ("phase a { exe x; args y\n file 'z' { path 'db/*' } }", "2:2", "its wildcards are not those of its path db/*"),
        ("phase a {\n arch b { exe x; args y }\n arch c { exe x; args z } }", "1:1", f"no arch for this machine, {MACHINE}"),
        ("phase a {\n arch b { exe x; args y }; arch b { }; }", "2:28", "arch b is there twice"),
        ("phase a { exe x; args y }\nphase a { exe x; args y }", "2:1", "there twice"),
        ("phase a { exe x; args y;\n depends-on phase b; }", "2:2", "no phase b"),
        ("phase a { exe x; args y;\n depends-on phase a; }", "2:2", "depend on each other: a"),
        ("phase a { exe x; args y; depends-on b; };\nphase b { exe x; args y; depends-on a; };", "1:26", "depend on each other: a, b"),
        ("master { bcast-chunk 1M }", "1:10", "did you mean 'bcast-chunk-size'?"),
        ("master { bcast-chunk-size 1.5M }", "1:27", "'1.5M' is not a size"),
        ("master { };\nmaster { };", "2:1", "master is there twice"),
    ],
)  # fmt: skip
def test_invalid_job_is_refused_with_line_and_column(text: str, place: str, words: str, files: Path) -> None:
    with pytest.raises(RefusedError) as caught:
        read(text, files)
    assert str(caught.value).startswith(f"job.hsp:{place}: ")
    assert words in str(caught.value)


# Jobs that are drawn

WORDS = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,6}", fullmatch=True).filter(lambda text: text != "phase")
STRINGS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)
BLANKS = st.sampled_from([" ", "\n", "\t", " # it's; {\n", "\r\n", "  "])
#: A statement: key, values, statements in its block (None: it has none).
Drawn = tuple[str, tuple[str, ...], Any]


def make_statement(
    key: str, value: st.SearchStrategy[Any] | None = None, block: st.SearchStrategy[Any] | None = None
) -> st.SearchStrategy[Drawn]:
    values = st.just(()) if value is None else st.tuples(value)
    return st.tuples(st.just(key), values, st.none() if block is None else block)


def make_block(single: Sequence[Any], repeated: Sequence[Any] = ()) -> st.SearchStrategy[list[Drawn]]:
    """Statements in any order, those of ``single`` at most once."""
    parts = [st.lists(each, max_size=1) for each in single] + [st.lists(each, max_size=2) for each in repeated]
    return st.tuples(*parts).map(lambda found: [each for part in found for each in part]).flatmap(st.permutations)


PROGRAM = (make_statement("exe-file", STRINGS), make_statement("exe-args", STRINGS))
STREAM = make_block(
    [make_statement("path", STRINGS), st.sampled_from([("input", (), None), ("output", (), None)]),
     make_statement("format", st.sampled_from([name for name in FORMATS if name.isalnum()])), make_statement("prefetch-ratio", st.sampled_from(["1", "0.25"]))]
)  # fmt: skip
PHASE = make_block(
    PROGRAM,
    [
        make_statement("depends-on", WORDS).map(lambda each: (each[0], ("phase", *each[1]), None)),
        make_statement("arch", WORDS, make_block(PROGRAM)),
        make_statement("stream", STRINGS, st.none() | STREAM),
        make_statement("file", STRINGS, st.none() | make_block([make_statement("path", STRINGS)])),
    ],
)
JOB = make_block(
    [
        make_statement(
            "master", None, make_block([make_statement("bcast-chunk-size", st.sampled_from(["4", "16K", "1m"]))])
        )
    ],
    [make_statement("phase", WORDS, PHASE)],
)


def render(statements: list[Drawn], draw: Any) -> str:
    """The text of statements as the grammar has it, with blanks and comments between."""
    found = []
    for key, values, block in statements:
        words = [key]
        for number, value in enumerate(values):
            is_plain = key in ("phase", "arch", "format", "prefetch-ratio", "bcast-chunk-size", "depends-on")
            quoted = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
            words.append(value if is_plain and (number == 0 or draw(st.booleans())) else quoted)
        if block is not None:
            words.append("{" + draw(BLANKS) + render(block, draw) + "}")
        found.append(draw(BLANKS).join(words) + draw(st.sampled_from(["", " "])) + ";" + draw(BLANKS))
    return "".join(found)


def simplify(statements: Sequence[HspStatement]) -> list[Drawn]:
    return [(each.key, each.values, simplify(each.inner)) for each in statements]


def without_none(statements: list[Drawn]) -> list[Drawn]:
    return [(key, values, without_none(block or [])) for key, values, block in statements]


@settings(max_examples=30)
@given(st.data())
def test_drawn_job_is_read_as_it_was_written(data: st.DataObject) -> None:
    job = data.draw(JOB)
    text = render(job, data.draw)
    assert simplify(HspParser(HspText("job.hsp", text)).parse()) == without_none(job)


#: Pieces of job files, so that drawn bytes come further than their first word.
PIECES = [*(b'phase a { exe-file "x"; exe-args "in"; stream "in" { path "y"; }; file "*"; };'.split()), b"\n", b'"', b"#", b"{", b"}", b";", b"\xff", b"\0", b"arch", b"depends-on", b"master", b"output;", b"format", b"'"]  # fmt: skip


@given(st.binary(max_size=60) | st.lists(st.sampled_from(PIECES) | st.binary(max_size=2), max_size=30).map(b" ".join))
def test_drawn_bytes_are_read_or_refused_with_line_and_column(content: bytes) -> None:
    try:
        values, _ = read_hsp_job(content, "job.hsp", Path(__file__).parent)
    except RefusedError as error:
        assert re.match(r"job\.hsp:[1-9]\d*:[1-9]\d*: ", str(error))
        assert error.hint
    else:
        parse_workflow(values, "job.hsp")
