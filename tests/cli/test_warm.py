"""Tools that stay warm: started once, forked for each task where they first touch their input (docs/warm.md)."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from exact_cases import MILLRACE, Case, differing, serially
from parameter_choice import again, some
from shell import Ended, Shell

N = 12
FASTA = "".join(f">r{k}\n{'M' * (k + 1)}\n" for k in range(N))
WANT = "".join(f"r{k}\t{k + 1}\n" for k in range(N))

#: A tool in which BEFORE and AFTER stand for what a test has it do before and after it opens its input.
TOOL = """
import os, subprocess, sys
place, out = sys.argv[1], sys.argv[2]
word = ""
BEFORE
text = open(place).read()
if "out_file" not in globals():
    out_file = open(out, "w")
AFTER
for record in text.split(">")[1:]:
    name, sequence = record.split()
    print(name, str(len(sequence)) + word, sep="\\t", file=out_file)
"""

#: Real tools whose start takes long beside a record.
REAL = [
    Case("blastp", "blastp -query q.faa -db prot -outfmt 6 -evalue 1e-3 -out out"),
    Case("blastp-report", "blastp -query q.faa -db prot -outfmt 0 -evalue 1e-3", outputs=(), stdout=True),
    Case("obabel", "obabel ligands.mol2 -O out.sdf", ("out.sdf",)),
    Case("hmmscan", "hmmscan -o out --tblout t p.hmm q.faa", ("out", "t")),
    Case("hmmsearch", "hmmsearch -o out --tblout t p.hmm prot.faa", ("out", "t")),
]


def python(shell: Shell, before: str = "", after: str = "", more: str = "") -> str:
    """A tool of its own; the words of a run of it."""
    (shell.work / "tool.py").write_text(TOOL.replace("BEFORE", before).replace("AFTER", after))
    (shell.work / "q.fa").write_text(FASTA)
    options = f"--slots 1 --batch 1 --verify 0 --input q.fa --output out.txt {more}"
    return f"millrace run --warm {options} -- {shlex.quote(MILLRACE[0])} tool.py q.fa out.txt"


def n_warm(ended: Ended) -> int:
    """Tasks that ran in forks and were not compared."""
    found = re.search(r"warm: (\d+) tasks? in forks of", ended.err)
    return int(found[1]) if found else 0


def written(shell: Shell) -> str:
    return (shell.work / "out.txt").read_text()


@pytest.mark.parametrize("case", some(REAL, REAL[0], *REAL[2:4]), ids=lambda case: case.name)
def test_output_of_a_warm_tool_is_the_serial_tools(case: Case, bench_of: Path, shell: Shell) -> None:
    shutil.rmtree(shell.work)
    words, serial = serially(case, bench_of, shell.work)
    for slots in (2, 1):
        options = f"--warm --slots {slots} --batch 1 --fragments 1"
        ended = shell.run(f"millrace run {options} -- {shlex.join(words)}" + (" > stdout" if case.stdout else ""))
        assert ended.code == 0, ended.shown
        assert not differing(case, shell.work, serial), ended.shown
        # Of two slots one tries it first, and the other may do all the rest meanwhile.
        assert n_warm(ended) or slots == 2 or "cannot stay warm" in ended.err, ended.shown
        for name in serial:
            (shell.work / name).unlink()
    if case.name != "hmmsearch":  # whose profiles are no long input
        assert n_warm(ended), ended.shown


def test_script_is_forked_for_each_task_not_compared(shell: Shell) -> None:
    """The first tasks are started in full and compared."""
    ended = shell.run(python(shell))
    assert ended.code == 0 and n_warm(ended) == N - 3, ended.shown
    assert written(shell) == WANT


@pytest.mark.parametrize(
    "before",
    some(
        [
            "os.stat(place)", "os.lstat(place)", "os.access(place, os.R_OK)", "os.path.realpath(place)",
            "os.open(place, os.O_RDONLY)", "os.stat('./' + place)", "os.stat(os.path.abspath(place))",
            "os.stat(place, dir_fd=os.open('.', os.O_RDONLY))", "os.path.getsize(place)",
        ],
        "os.stat(place)", "os.access(place, os.R_OK)", "os.path.realpath(place)", "os.open(place, os.O_RDONLY)",
    ),
)  # fmt: skip
def test_tool_is_held_at_its_first_input_access(shell: Shell, before: str) -> None:
    # Where the size that is read is that of another record, lines differ.
    before += "\nword = str(os.path.getsize(place))"
    ended = shell.run(python(shell, before))
    assert ended.code == 0 and n_warm(ended) == N - 3, ended.shown
    assert written(shell) == "".join(f"r{k}\t{k + 1}{len(f'>r{k}') + k + 3}\n" for k in range(N))


def test_too_few_tasks_for_forking_are_reported(shell: Shell) -> None:
    ended = shell.run(python(shell).replace("--batch 1 ", f"--batch {N} "))
    assert ended.code == 0 and "warm: no task ran in a fork alone" in ended.err, ended.shown
    assert written(shell) == WANT


def test_each_fork_has_its_own_files(shell: Shell) -> None:
    (shell.work / "db").write_text("one two six")
    before = "db = os.open('db', os.O_RDONLY); os.read(db, 4); out_file = open(out, 'w+'); err = os.dup(2)"
    after = "word = os.read(db, 3).decode() + str(os.fstat(out_file.fileno()).st_size); os.write(err, b'well')"
    ended = shell.run(python(shell, before, after))
    assert ended.code == 0 and n_warm(ended) == N - 3, ended.shown
    assert written(shell) == "".join(f"r{k}\t{k + 1}two0\n" for k in range(N))


def test_file_output_before_the_input_is_in_each_output(shell: Shell) -> None:
    before = "out_file = open(out, 'w'); print('# head', file=out_file, flush=True); print('to', 'nobody', flush=True)"
    ended = shell.run(python(shell, before, more="--join header"))
    assert ended.code == 0 and n_warm(ended) == N - 3, ended.shown
    assert written(shell) == "# head\n" + WANT


def test_stdout_written_before_the_input_is_in_each_output(shell: Shell) -> None:
    line = python(shell, "print('# head', flush=True); out_file = sys.stdout", more="--join header")
    ended = shell.run(line.replace("--output out.txt", "").replace(" q.fa out.txt", " q.fa -") + " > out.txt")
    assert ended.code == 0 and n_warm(ended) == N - 3, ended.shown
    assert written(shell) == "# head\n" + WANT


def test_child_of_a_fork_is_unaware_of_it(shell: Shell) -> None:
    after = (
        "shown = subprocess.run(['env'], capture_output=True, text=True).stdout\n"
        "word = str('MILLRACE_WARM' in shown) + str([line for line in shown.splitlines() if 'PRELOAD' in line])"
    )
    ended = shell.run(f"export LD_PRELOAD=libm.so.6; {python(shell, after=after)}")
    assert ended.code == 0 and n_warm(ended) == N - 3, ended.shown
    assert written(shell) == "".join(f"r{k}\t{k + 1}False['LD_PRELOAD=libm.so.6']\n" for k in range(N))


@pytest.mark.parametrize(
    ("before", "words"),
    [
        again("import socket; kept = socket.socketpair()", "it has a socket open"),
        again("kept = os.pipe()", "it has a pipe open"),
        again("import select; kept = select.epoll()", "it has something special open"),
        ("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()", "it has 2 threads"),
        ("import mmap; kept = mmap.mmap(-1, 10)", "it writes to memory that it shares"),
        again("kept = open(os.environ['COUNT'], 'w')", "/count before it reads its input"),
        ("open('left', 'w').close()", "it makes left before it reads its input"),
        again("kept = [open('tool.py'), open('tool.py')]", "it has one file open twice"),
        again("place, out = os.path.abspath(place), os.path.abspath(out); os.chdir('/')", "it goes to another folder"),
        ("kept = subprocess.Popen(['cat'], stdin=subprocess.PIPE)", "a program that it has started is still there"),
        (
            "r, kept = os.pipe(); subprocess.run(f'cat <&{r} > /dev/null 2>&1 &', shell=True, pass_fds=[r])",
            "a program that it has started is still there",
        ),
    ],
)  # fmt: skip
def test_unforkable_tool_is_reported_and_started_per_task(shell: Shell, before: str, words: str) -> None:
    ended = shell.run(python(shell, before))
    assert ended.code == 0 and n_warm(ended) == 0, ended.shown
    assert words in ended.err and ended.err.count("cannot stay warm") == (2 if "warning " in ended.err else 1), (
        ended.shown
    )
    assert written(shell) == WANT


@pytest.mark.parametrize(
    "word", ["os.getpid()", "os.urandom(8).hex()", "__import__('time').time_ns()", "__import__('random').random()"]
)
def test_state_from_before_the_fork_is_detected(shell: Shell, word: str) -> None:
    """A word drawn at random before the fork would be the same in every task."""
    ended = shell.run(python(shell, f"word = str({word})"))
    assert ended.code == 0 and n_warm(ended) == 0, ended.shown
    assert "it gave other bytes when it was warm: out.txt, line 1" in ended.err, ended.shown
    # As by itself: another word in each line.
    words = [line.split("\t")[1] for line in written(shell).splitlines()]
    assert len(set(words)) == N, words


def test_child_that_reads_the_input_early_is_detected(shell: Shell) -> None:
    """It would find no input before the fork, and the comparison shows that."""
    before = "word = subprocess.run(['wc', '-c', place], capture_output=True, text=True).stdout.split(' ')[0]"
    ended = shell.run(python(shell, before))
    assert ended.code == 0 and n_warm(ended) == 0 and "it gave other bytes when it was warm" in ended.err, ended.shown
    assert written(shell) == "".join(f"r{k}\t{k + 1}{len(f'>r{k}') + k + 3}\n" for k in range(N))


def test_helpers_that_exit_before_the_input_are_accepted(shell: Shell) -> None:
    ended = shell.run(
        python(shell, "word = subprocess.run(['echo', '-n', 'x'], capture_output=True, text=True).stdout")
    )
    assert ended.code == 0 and n_warm(ended) == N - 3, ended.shown
    assert written(shell) == WANT.replace("\n", "x\n")


STATIC = r"""
#include <stdio.h>
int main(int n, char **words)
{
    FILE *in = fopen(words[1], "r"), *out = fopen(words[2], "w");
    char name[64], sequence[64];
    while (in && fscanf(in, ">%63s %63s ", name, sequence) == 2) {
        int length = 0;
        while (sequence[length]) length++;
        fprintf(out, "%s\t%d\n", name, length);
    }
    return in ? 0 : 1;
}
"""


@pytest.mark.parametrize(("how", "expected"), [("-static", 0), ("", N - 3)])
def test_static_program_is_not_forked(shell: Shell, how: str, expected: int) -> None:
    (shell.work / "tool.c").write_text(STATIC)
    python(shell)
    words = "--warm --slots 1 --batch 1 --verify 0 --input q.fa --output out.txt"
    ended = shell.run(f"gcc {how} tool.c -o tool && millrace run {words} -- ./tool q.fa out.txt")
    assert ended.code == 0 and n_warm(ended) == expected, ended.shown
    assert ("nothing was heard of it" in ended.err) == (not expected), ended.shown
    assert written(shell) == WANT


def test_script_that_starts_children_is_not_forked(shell: Shell) -> None:
    python(shell)
    words = "--warm --slots 1 --batch 1 --verify 0 --input q.fa --output out.txt"
    ended = shell.run(f"millrace run {words} -- tee2 q.fa out.txt")
    assert ended.code == 0 and "nothing was heard of it" in ended.err, ended.shown
    assert written(shell) == FASTA


@pytest.mark.slow
def test_late_difference_of_a_fork_ends_the_run(shell: Shell) -> None:
    """Results were kept before it, and none of them is written."""
    # A file that grows from task to task, of which a warm tool knows how it began.
    before = "n = os.path.getsize(os.environ['COUNT']) if os.path.exists(os.environ['COUNT']) else 0"
    after = "word = '-' * (n > 20); open(os.environ['COUNT'], 'a').write('.')"
    line = python(shell, before, after)
    (shell.work / "q.fa").write_text("".join(f">r{k}\nM\n" for k in range(60)))
    ended = shell.run(line)
    assert ended.code == 5, ended.shown
    assert "gave other bytes for records 50 to 50 in a fork" in ended.err, ended.shown
    assert not (shell.work / "out.txt").exists() and not shell.run_dirs(), ended.shown
    (shell.root / "count").unlink()
    ended = shell.run(line.replace("--warm", ""))
    assert ended.code == 0, ended.shown
    assert written(shell) == "".join(f"r{k}\t1{'-' * (k > 20)}\n" for k in range(60))


def test_failing_record_fails_in_a_fork_as_well(shell: Shell) -> None:
    ended = shell.run(python(shell, after="if '>r7\\n' in text: sys.exit('cannot do r7')", more="--retries 0"))
    assert ended.code == 3 and "cannot do r7" in ended.err, ended.shown
    assert n_warm(ended) == N - 4, ended.shown
    assert written(shell) == WANT.replace("r7\t8\n", "")


def test_tool_that_fails_only_in_forks_is_started_per_task(shell: Shell) -> None:
    ended = shell.run(python(shell, "me = os.getpid()", "if os.getpid() != me: sys.exit(1)"))
    assert ended.code == 0 and n_warm(ended) == 0, ended.shown
    assert "tasks failed warm that ran well otherwise" in ended.err, ended.shown
    assert written(shell) == WANT


def test_fork_over_its_time_limit_runs_again_unforked(shell: Shell) -> None:
    before, after = "me = os.getpid()", "if os.getpid() != me: os.read(os.pipe()[0], 1)"
    line = python(shell, before, after, "--record-timeout 20")
    (shell.work / "q.fa").write_text(">r0\nM\n")
    ended = shell.run(line)
    assert ended.code == 0, ended.shown
    assert written(shell) == "r0\t1\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("millrace run --warm --format fasta -- copy < in.fa > out.txt", "it reads its standard input"),
        ("mkdir d && cp in.fa d && millrace run --warm --input d --output 'o/{stem}' -- tee2 d 'o/{stem}' && cp o/in out.txt", "files of other names"),
    ],
)  # fmt: skip
def test_useless_forking_is_reported_at_the_start(shell: Shell, line: str, words: str) -> None:
    ended = shell.run(f"mkdir -p o && {line}")
    assert ended.code == 0 and "cannot stay warm" in ended.err and words in ended.err, ended.shown
    assert written(shell) == (shell.work / "in.fa").read_text()


def test_plan_reports_a_warm_run(shell: Shell) -> None:
    ended = shell.run(python(shell).replace("millrace run", "millrace plan"))
    assert ended.code == 0 and "warm: one process a slot starts" in ended.out + ended.err, ended.shown


def test_long_lived_programs_are_not_forked(shell: Shell) -> None:
    ended = shell.run("millrace run --warm --records --input in.fa --output out.txt -- copy")
    assert ended.code == 2 and "--warm with --records" in ended.err, ended.shown
