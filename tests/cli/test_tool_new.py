"""`millrace tool new`: a first description of a tool, from its help text and a trial."""

from __future__ import annotations

import shlex
import shutil
import tomllib

import pytest
from shell import Shell

from millrace.extensions.check.description_draft import has_one_dash_names, parse_help_options

HELP = """mytool: looks at records
usage: mytool [options] QUERIES
  -d, --db FILE      what is searched
  -o, --out=<file>   where to write
  -p, --cpus INT     number of threads
  -q, --quiet        say nothing
  -h, --help         show this
"""

TOOL = f"""[ "$1" = --help ] && {{ echo {shlex.quote(HELP)}; exit 0; }}
[ "$1 $2 $3 $4 $5" = "-q --db nr.fa -o hits" ] || exit 2
grep -c . "$3" > /dev/null && cat "$6" > "$5"
"""


@pytest.mark.parametrize(
    ("line", "names", "takes_value"),
    [
        ("  -i, --in1      read1 input file name (string [=])", ("in1", "i"), True),
        ("  -m, --merge    merge each pair of reads", ("merge", "m"), False),
        ("  -i, --in, --infile={<file>,-} Multiple sequence input file", ("infile", "in", "i"), True),
        ("  --full-iter    Use full distance matrix", ("full-iter",), False),
        ("  -j, --threads int   number of CPUs", ("threads", "j"), True),
        ("  -o OUT, --out OUT  where to write", ("out", "o"), True),
        ("  -m {a,b}, --mode {a,b}", ("mode", "m"), True),
        (" -quiet to suppress reporting", ("quiet",), False),
        (" -evalue <Real>", ("evalue",), True),
    ],
)
def test_help_texts_of_many_styles_are_parsed(line: str, names: tuple[str, ...], takes_value: bool) -> None:
    (found,) = parse_help_options(line)
    assert (set(found.names), found.names[0], found.takes_value) == (set(names), names[0], takes_value)


def test_number_of_dashes_of_a_name_is_detected() -> None:
    assert has_one_dash_names("  -quiet  say nothing\n  -out FILE\n  -n  number") and not has_one_dash_names(
        "  -q, --quiet\n  --out FILE"
    )


def test_description_works_and_is_the_only_file_written(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(shell.root / "state"))
    shell.tool("mytool", TOOL)
    (shell.work / "nr.fa").write_text(">x\nMK\n")
    (shell.work / "hits").write_text("an earlier result\n")
    before = {path.name for path in shell.work.iterdir()}
    ended = shell.run("millrace tool new mine -- mytool -q --db nr.fa -o hits in.fa")
    assert ended.code == 0 and "then: millrace tool check -- mytool -q --db nr.fa -o hits in.fa" in ended.out, (
        ended.shown
    )
    text = (shell.work / "millrace-tools/mine.toml").read_text()
    use = tomllib.loads(text)["use"]
    assert (use["input"], use["output"]) == ([{"operand": 1}], [{"option": "out"}])
    assert (use["database"], use["threads"], use["flags"]) == ([{"option": "db"}], "cpus", "quiet help")
    assert text.count("??") >= 6
    assert (shell.work / "hits").read_text() == "an earlier result\n"
    assert {path.name for path in shell.work.iterdir()} - before == {"millrace-tools"}
    ended = shell.run("rm hits; millrace run -q -- mytool -q --db nr.fa -o hits in.fa && cmp hits in.fa")
    assert ended.code == 0, ended.shown
    again = shell.run("millrace tool new mine -- mytool -q --db nr.fa -o hits in.fa")
    assert again.code == 2 and "is there already" in again.err, again.shown


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("mine", "a name and a command are needed"),
        ("../mine -- copy in.fa", "a name and a command are needed"),
        ("mine -- segv in.fa", "the command ends with exit status"),
        ("mine -- nosuchtool in.fa", "nosuchtool: program not found"),
    ],
)
def test_failed_trial_leaves_no_file(shell: Shell, line: str, words: str) -> None:
    ended = shell.run(f"millrace tool new {line}")
    assert ended.code in (1, 2, 4) and words in ended.err and "Traceback" not in ended.err, ended.shown
    assert not (shell.work / "millrace-tools").exists()


@pytest.mark.parametrize(
    ("command", "tables"),
    [
        ("seqkit seq -r q.fa -o z.fa", ["[verb.seq]", "[[verb.seq.input]]", "operand = 1", 'option = "out-file"']),
        ("exonerate --model ungapped q.fa db.fa", ["[[use.input]]", "operand = 1", "[[use.database]]", "operand = 2"]),
        ("clustalo -i q.fa -o z.fa", ['option = "infile"', 'option = "outfile"', 'threads = "threads"']),
        ("fasttree -nt -out z.nwk q.fa", ['dashes = "one"', 'option = "out"', "operand = 1"]),
    ],
)
def test_real_tools_are_described(shell: Shell, command: str, tables: list[str]) -> None:
    if not shutil.which(command.split()[0]):
        pytest.skip(f"{command.split()[0]} is not installed")
    for name in ("q.fa", "db.fa"):
        (shell.work / name).write_text("".join(f">r{k}\n{'ACGT' * 9}{'ACGT'[k]}ACGGT\n" for k in range(4)))
    ended = shell.run(f"millrace tool new mine -- {command}")
    assert ended.code == 0, ended.shown
    text = (shell.work / "millrace-tools/mine.toml").read_text()
    assert [each for each in tables if each not in text] == [], text
