"""Job files of HSP-Wrap, one for each construct of the grammar, run with real tools: the bytes of the serial command."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import LONGEST_SECONDS, take, wait_until
from session_resources import once
from shell import Shell

from millrace.extensions.workflow.hsp_grammar import GRAMMAR, HspParser, HspStatement, HspText

MACHINE = os.uname().machine
SEARCH = "blastp -query queries.faa -db targets -outfmt 6 -evalue 1e-3 -out serial"


@dataclass(frozen=True)
class JobCase:
    """A job that writes ``result``, and a serial line that writes ``serial``; both perhaps further files."""

    job: str
    serial: str = SEARCH
    line: str = "millrace run job.hsp"
    says: tuple[str, ...] = ()


def case(name: str, job: str, **more: Any) -> Any:
    return pytest.param(JobCase(job.replace("MACHINE", MACHINE), **more), id=name)


def read_example() -> str:
    """Read the job on the page of workflows, with files that are here."""
    page = (Path(__file__).parents[2] / "docs" / "workflows.md").read_text()
    text = page.partition("## Job files of HSP-Wrap")[2].partition("```text\n")[2].partition("```")[0]
    assert "/data/swissprot.*" in text
    found = text.replace("x86_64 ", "MACHINE ").replace("/data/swissprot", "./targets").replace("hits.tsv", "result")
    return found.replace("-outfmt 6", "-outfmt 6 -evalue 1e-3")


# fmt: off
CASES = [
    # The shape of the thesis: an input, an output, a glob of database files, two architectures.
    case("thesis_shape", """\
# BLAST on two kinds of nodes.
master {
  bcast-chunk-size 1M;
};
phase search {
  arch MACHINE { exe-file "blastp"; exe-args "-query input -db targets -outfmt 6 -evalue 1e-3 -out output"; };
  arch k1om { exe-file "mic/blastp"; exe-args "-query input -db targets -outfmt 6 -evalue 1e-3 -out output -num_threads 4"; };
  stream "input" { path "queries.faa"; format fasta; prefetch-ratio 0.5; };
  stream "output" { output; path "result"; prefetch-ratio 2; };
  file "targets.*";
};
""", says=("bcast-chunk-size has no effect", "prefetch-ratio has no effect")),
    case("names_are_paths_from_standard_input", """\
phase search {
  exe-file "blastp"; exe-args "-query queries.faa -db targets -outfmt 6 -evalue 1e-3 -out result";
  stream "queries.faa"; stream "result" { output; };
};""", line="millrace run - < job.hsp"),
    case("free_form_with_comments_without_a_command", """\
phase # the name is
  select # this
{
  exe-file
    "grep"
  ; exe-args
    "-v name3 pairs.txt"; # all of it
  stream "pairs.txt" { input; format lines; }; depends-on
    phase
    copy
  ;
}
; phase copy { exe-file "cp"; exe-args "names.txt copied"; stream "names.txt"; stream "copied"
  { output; }; };""", serial="grep -v name3 pairs.txt > serial", line="millrace run < job.hsp > result"),
    case("quoted_argument_through_a_pipe", """\
phase search {
  exe-file "blastp"; exe-args "-query in -db targets -outfmt '6 qseqid sseqid' -out=out";
  stream "in" { path "queries.faa"; }; stream "out" { output; path "result"; };
};""", serial="blastp -query queries.faa -db targets -outfmt '6 qseqid sseqid' -out serial", line="cat job.hsp | millrace run"),
    case("as_in_the_docs_under_another_name", read_example()),
    case("arguments_for_the_phase_programs_by_architecture", """\
phase select {
  exe-args "-v name3 pairs.txt"; arch k1om { exe-file "mic/grep"; }; arch MACHINE { exe-file "grep"; };
  stream "pairs.txt" { format lines; };
};""", serial="grep -v name3 pairs.txt > serial", line="millrace run job.hsp > result"),
    case("other_arguments_on_another_architecture", """\
phase select {
  exe-file "grep"; arch k1om { exe-args "name3 pairs.txt"; }; arch MACHINE { exe-args "-v name3 pairs.txt"; };
  stream "pairs.txt" { format lines; };
};""", serial="grep -v name3 pairs.txt > serial", line="millrace run - < job.hsp > result",
         says=(f"arch k1om: its exe-args are not those of {MACHINE}", "nodes of k1om are refused")),
    case("program_for_all_other_architectures", """\
phase select {
  exe-file "grep"; exe-args "-v name3 pairs.txt"; arch k1om { exe-file "mic/grep"; };
  stream "pairs.txt" { format lines; };
};""", serial="grep -v name3 pairs.txt > serial", line="millrace run job.hsp > result"),
    case("two_inputs_of_a_tool_to_standard_output", """\
phase pairs {
  exe-file "paste"; exe-args "-d : left right";
  stream "left" { path "names.txt"; format lines; }; stream "right" { path "sizes.txt"; format lines; };
};""", serial="paste -d : names.txt sizes.txt > serial", line="millrace run job.hsp > result"),
    case("two_outputs", """\
phase split {
  exe-file "halves"; exe-args "in result result2";
  stream "in" { path "pairs.txt"; format lines; }; stream "result" { output; }; stream "result2" { output; };
};""", serial="halves pairs.txt serial serial2"),
    case("shared_file_with_a_path", """\
phase select {
  exe-file "grep"; exe-args "-F -f wanted lines";
  stream "lines" { path "pairs.txt"; format lines; }; file "wanted" { path "lists/keep.txt"; };
};""", serial="grep -F -f lists/keep.txt pairs.txt > serial", line="mv job.hsp search.conf; millrace run search.conf > result"),
    case("glob_of_shared_files_by_their_names", """\
phase select {
  exe-file "grep"; exe-args "-F -f lists/keep.txt -f lists/more.txt pairs.txt";
  stream "pairs.txt" { format lines; }; file "lists/*.txt";
};""", serial="grep -F -f lists/keep.txt -f lists/more.txt pairs.txt > serial", line="millrace run job.hsp > result"),
    case("glob_of_shared_files_one_to_one", """\
phase select {
  exe-file "grep"; exe-args "-F -f keep -f more lines";
  stream "lines" { path "pairs.txt"; format lines; }; file "*" { path "lists/*.txt"; };
};""", serial="grep -F -f lists/keep.txt -f lists/more.txt pairs.txt > serial", line="millrace run job.hsp > result"),
    case("phases_in_the_order_of_their_dependencies", """\
phase count { depends-on phase search; exe-file "cut"; exe-args "-f 1,2 hits"; stream "hits" { path "hits.tsv"; format lines; }; };
phase search {
  exe-file "blastp"; exe-args "-query queries.faa -db targets -outfmt 6 -evalue 1e-3 -out hits.tsv";
  stream "queries.faa"; stream "hits.tsv" { output; };
};""", serial=f"{SEARCH}.tsv; cut -f 1,2 serial.tsv > serial; rm serial.tsv", line="millrace run job.hsp > result"),
    case("further_spellings", """\
master { bcast-chunk-size = 1M }
phase "search"
{
    arch "MACHINE" { exe "blastp"; args "-query queries -db targets -outfmt 6 -evalue 1e-3 -out output" }
    /* by lines */ stream queries in { path = "queries.faa"
        format = "fasta" } // the queries
    stream "output" { type output; path result }
    file targets.p*
}
""", says=("bcast-chunk-size has no effect",)),
]
# fmt: on


@pytest.fixture
def filled(shell: Shell, data: Path, session_folder: Path) -> Shell:
    """A folder with queries, a small database, tables and lists."""
    if not shutil.which("blastp"):
        pytest.skip("missing: blastp")

    def make(folder: Path) -> None:
        take(data / "proteins_db.faa", folder / "targets.faa", 60)
        take(data / "proteins_db.faa", folder / "queries.faa", 3)
        subprocess.run(["makeblastdb", "-in", "targets.faa", "-dbtype", "prot", "-out", "targets"],
                       cwd=folder, check=True, capture_output=True)  # fmt: skip
        (folder / "names.txt").write_text("".join(f"name{k}\n" for k in range(40)))
        (folder / "sizes.txt").write_text("".join(f"{k * k}\n" for k in range(40)))
        (folder / "pairs.txt").write_text("".join(f"name{k}\t{k * k}\n" for k in range(40)))
        (folder / "lists").mkdir()
        (folder / "lists" / "keep.txt").write_text("name1\nname30\n")
        (folder / "lists" / "more.txt").write_text("name2\n")

    shutil.copytree(once(session_folder / "hsp", make), shell.work, dirs_exist_ok=True)
    shell.tool("halves", 'cut -f 1 "$1" > "$2"; cut -f 2 "$1" > "$3"')
    return shell


@pytest.mark.parametrize("tried", CASES)
def test_hsp_job_writes_the_serial_bytes(filled: Shell, tried: JobCase) -> None:
    (filled.work / "job.hsp").write_text(tried.job)
    assert filled.run(tried.serial).code == 0
    done = filled.run(tried.line)
    assert done.code == 0, done.shown
    wanted = sorted(filled.work.glob("serial*"))
    assert wanted and wanted[0].stat().st_size
    for path in wanted:
        assert (filled.work / path.name.replace("serial", "result")).read_bytes() == path.read_bytes(), path.name
    for words in tried.says:
        assert done.err.count(words) == 1, done.shown
    assert filled.run_dirs() == []


def list_forms(statements: Iterable[HspStatement], block: str = "") -> Iterator[tuple[str, str, bool]]:
    """Yield each statement with the block in which it stands, and whether it has a block of its own."""
    for each in statements:
        yield block, each.key, bool(each.inner)
        yield from list_forms(each.inner, each.key)


def test_every_statement_of_the_grammar_is_run() -> None:
    jobs = [tried.values[0].job for tried in CASES]
    found = {form for job in jobs for form in list_forms(HspParser(HspText("", job)).parse())}
    assert {(block, key) for block, key, _ in found} == {
        (block, key) for block, keys in GRAMMAR.items() for key in keys
    }
    either = {key for rules in GRAMMAR.values() for key, rule in rules.items() if rule.block == "may"}
    assert either == {"stream", "file"}
    assert {("phase", key, inner) for key in either for inner in (False, True)} <= found


@pytest.mark.parametrize(("line", "words"), [
    ("millrace run job.hsp", "millrace: job.hsp:2:3: unknown key 'exe-fil'"),
    ("millrace plan - < job.hsp", "millrace: standard input:2:3: unknown key 'exe-fil'"),
    ("millrace run < job.hsp", "a command stands after --"),
    ("printf 'phase a {\\n exe-args \"\\377\";' | millrace run -", "standard input:2:12: byte 0xff is not UTF-8"),
    ("head -c 2000000 /dev/zero | millrace run", "larger than 1048576 bytes"),
    ("mv job.hsp search.conf; millrace run search.conf", "millrace: search.conf:2:3: unknown key 'exe-fil'"),
    ("millrace run queries.faa", "a command stands after --"),
    ("millrace run nothing.conf", "write -- before the tool's command"),
    ("millrace run < queries.faa", "standard input:1:1: unknown key '>"),
    ("millrace run - < /dev/null", "standard input:1:1: no phase"),
    ("millrace run < /dev/null", "no command"),
    ("true | millrace run", "no command"),
    ("millrace run 0<&-", "no command"),
    ("millrace run --slots 2 -- < job.hsp", "no command"),
    ("millrace run none.hsp", "none.hsp: No such file or directory"),
    ("millrace slurm -N 2 -t 1:00:00 - < good.hsp", "cannot be read again when the job begins"),
    ("millrace pbs -N 2 -t 1:00:00 < good.hsp", "write it to a file, and name that"),
    ("millrace run - -- blastp < good.hsp", "a command beside phases"),
])  # fmt: skip
def test_refused_job_says_where_and_why(filled: Shell, line: str, words: str) -> None:
    (filled.work / "job.hsp").write_text('phase a {\n  exe-fil "x";\n};\n')
    (filled.work / "good.hsp").write_text(
        'phase a { exe-file "cut"; exe-args "-f 1 pairs.txt"; stream "pairs.txt" { format lines; }; };'
    )
    done = filled.run(line)
    assert (done.code, done.out) == (2, ""), done.shown
    assert words in done.err and "Traceback" not in done.err, done.shown
    assert filled.run_dirs() == []


def test_plan_of_a_job_on_standard_input_names_its_folder(filled: Shell) -> None:
    (filled.work / "job.hsp").write_text(CASES[1].values[0].job)
    shown = [
        filled.run(line) for line in ("millrace plan - < job.hsp", "millrace plan < job.hsp", "millrace plan job.hsp")
    ]
    assert [done.code for done in shown] == [0, 0, 0], shown[0].shown
    assert shown[0].out == shown[1].out and "[search] blastp -query queries.faa" in shown[0].out
    assert "/job.millrace" in shown[2].out and "/job.millrace" not in shown[0].out


def test_waiting_for_a_job_on_standard_input_is_said(filled: Shell) -> None:
    (filled.work / "job.hsp").write_text(CASES[1].values[0].job)
    done = filled.run("mkfifo pipe; (until grep -q waiting said; do sleep 0.05; done; cat job.hsp) > pipe & touch said; "
                      "millrace plan < pipe 2> said; code=$?; cat said >&2; exit $code")  # fmt: skip
    assert done.code == 0 and "waiting for a job file of HSP-Wrap" in done.err, done.shown


@pytest.mark.skipif(MACHINE != "x86_64" or not shutil.which("setarch"), reason="only an x86_64 can be an i686 too")
def test_program_and_arguments_are_those_of_the_machine(shell: Shell) -> None:
    for name in ("wide", "narrow"):
        shell.tool(name, f'sed "s/^>/>{name} $3 /" "$1" > "$2"')
    (shell.work / "job.hsp").write_text("""phase mark {
      arch x86_64 { exe-file "wide"; exe-args "in.fa out x"; }; arch i686 { exe-file "narrow"; exe-args "in.fa out y"; };
      stream "in.fa"; stream "out" { output; };
    };""")
    for machine, before in (("x86_64", ">wide x "), ("i686", ">narrow y ")):
        done = shell.run(f"rm -f out; setarch {machine} millrace run job.hsp")
        assert done.code == 0, done.shown
        assert (shell.work / "out").read_text() == (shell.work / "in.fa").read_text().replace(">", before)


#: Notes each record that it has seen, and waits at the third one.
STEP = """
sed -n 's/^>//p' "$1" >> {log}
while grep -q r3 "$1" && [ ! -e {go} ]; do : > {held}; sleep 0.05; done
sed 's/^>/>seen /' "$1" > "$2"
"""
HELD = """phase step {
  exe-file "step"; exe-args "in out"; stream "in" { path "in.fa"; format fasta; }; stream "out" { output; path "NAME"; };
};"""


def test_killed_job_of_standard_input_resumes_by_the_same_bytes(shell: Shell) -> None:
    """Other bytes begin another job."""
    log, go, held = (shell.root / name for name in ("log", "go", "held"))
    shell.tool("step", STEP.format(log=log, go=go, held=held))
    job = shell.work / "job"
    job.write_text(HELD.replace("NAME", "result"))
    environ = {**os.environ, "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}", "MARK": str(shell.root)}
    words = [
        sys.executable,
        "-m",
        "millrace",
        "run",
        "--slots",
        "1",
        "--batch",
        "1",
        "--sync",
        "0",
        "--verify",
        "0",
        "-",
    ]
    with job.open() as content:
        process = subprocess.Popen(words, cwd=shell.work, env=environ, stdin=content, stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    try:
        assert wait_until(held.exists, process)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(LONGEST_SECONDS)
    [folder] = shell.run_dirs()
    go.touch()
    done = shell.run(f"millrace plan < job; {' '.join(words[3:]).replace('run', 'millrace run', 1)} < job")
    assert done.code == 0 and f"{folder} (exists: the job would resume)" in done.out, done.shown
    assert (shell.work / "result").read_text() == (shell.work / "in.fa").read_text().replace(">", ">seen ")
    assert log.read_text().split().count("r1") == 1
    other = shell.run("sed s/result/other/ job | millrace run --keep-run-dir")
    assert other.code == 0 and shell.run_dirs() != [folder], other.shown
    assert (shell.work / "other").read_bytes() == (shell.work / "result").read_bytes()
