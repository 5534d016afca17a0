"""A tool that Millrace does not know is run again on parts of its input, cut elsewhere, and the bytes are compared."""

from __future__ import annotations

import random
import re
import shlex
import shutil
import sys
from dataclasses import dataclass

import pytest
from parameter_choice import again
from shell import Shell

#: Records of `table`, and of a batch.
N, BATCH = 300, 12


def table() -> str:
    """A line a record: name, number, letters; numbers and letters come again and again, names do not."""
    drawn = random.Random(7)
    rows = [f"r{k}\t{drawn.randrange(40)}\t{''.join(drawn.choices('acgt', k=12))}\n" for k in range(N)]
    return "".join(rows)


def fasta() -> str:
    drawn = random.Random(8)
    return "".join(f">s{k} of {N}\n{''.join(drawn.choices('ACGT', k=drawn.randrange(20, 90)))}\n" for k in range(N))


@pytest.fixture
def filled(shell: Shell) -> Shell:
    (shell.work / "in.tsv").write_text(table())
    (shell.work / "in.fa").write_text(fasta())
    (shell.work / "in.jsonl").write_text("".join(f'{{"n": {k}, "name": "r{k}"}}\n' for k in range(N)))
    return shell


@dataclass(frozen=True)
class Planted:
    """A script (``tool IN OUT``) whose output depends on where its input is cut, and what must be said of it."""

    name: str
    body: str
    says: str


PLANTED = (
    Planted("header", '{ echo "name,n,letters"; tr "\\t" , < $1; } > $2', "--join csv"),
    Planted("sam", '{ printf "@HD\\tVN:1.6\\n"; cat $1; } > $2', "--join sam"),
    Planted("footer", '{ cat $1; echo "# done"; } > $2', "--join footer"),
    Planted("frame", '{ echo "<hits>"; cat $1; echo "</hits>"; } > $2', "--join xml:hits"),
    Planted("numbers", "awk '{print NR, $1}' $1 > $2", "numbers that run on"),
    Planted("sum", "awk '{s += $2; print $1, s}' $1 > $2", "a running sum"),
    Planted("total", "awk '{s += $2; print $1} END {print \"sum\", s}' $1 > $2", "a total"),
    Planted("duplicates", "awk '!seen[$2]++' $1 > $2", "state carried from record to record"),
    Planted("sorted", "sort -k2,2n $1 > $2", "sorts, or reorders"),
    Planted(
        "trained", "awk 'NR == FNR {s += $2; n++; next} {print $1, ($2 * n > s ? \"high\" : \"low\")}' $1 $1 > $2",
        "learnt from the whole input",
    ),
    Planted("first records", "awk 'NR <= 9 {s += $2} {print $1, $2 + s}' $1 > $2", "statistics of all records"),
    Planted("process", "sed s/$/.$$/ $1 > $2", "a process number"),
    Planted("scratch", "sed s:^:$(mktemp -u)/: $1 > $2", "random numbers"),
    Planted("random", "{ cat $1; od -An -N8 -tx8 /dev/urandom; } > $2", "random numbers, a date"),
    Planted("dated", "{ cat $1; date +%s.%N; echo $$; } > $2", "random numbers, a date"),
    Planted("previous", "awk '{print $1, before; before = $2}' $1 > $2", "state carried from record to record"),
)  # fmt: skip

LARGE = "millrace run --slots 1 --batch 20 --verify 1 --format lines --"

RUN = f"millrace run --slots 2 --batch {BATCH} --input in.tsv:lines --output out.tsv"


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_output_that_depends_on_the_cut_is_detected(filled: Shell, planted: Planted) -> None:
    filled.tool("tool", planted.body)
    ended = filled.run(f"{RUN} -- tool in.tsv out.tsv")
    assert ended.code == 5, ended.shown
    assert "verification failed: tool gave other bytes for records " in ended.err, ended.shown
    assert planted.says in ended.err, ended.shown
    assert "out.tsv: first in line" in ended.err and "committed: " in ended.err and "run again: " in ended.err
    assert not (filled.work / "out.tsv").exists(), "nothing looks finished"


#: What a script leaves for the next record at record {k} alone, or from there on.
LEFT_BEHIND = {
    "a line": 'mark {{print mark; mark = 0}} {{print}} $1 == "{k}" {{mark = $1}}',
    "a case": 'next_one {{$0 = toupper($0); next_one = 0}} {{print}} $1 == "{k}" {{next_one = 1}}',
    "a setting": '$1 == "{k}" {{OFS = ";"}} {{print $1, $2}}',
    "an order": '$1 == "{k}" {{held = $0; next}} {{print}} held {{print held; held = 0}} END {{if (held) print held}}',
    "a gap": 'skipped {{skipped = 0; next}} {{print}} $1 == "{k}" {{skipped = 1}}',
    "a sum": 'summed {{$2 += summed; summed = 0}} {{print $1, $2}} $1 == "{k}" {{summed = $2 + 1}}',
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("left", LEFT_BEHIND)
def test_verify_all_detects_state_left_at_any_border(filled: Shell, left: str, seed: int) -> None:
    border = random.Random(f"{left} {seed}").randrange(1, N // BATCH) * BATCH
    filled.tool("tool", f"awk '{LEFT_BEHIND[left].format(k=f'r{border - 1}')}' $1 > $2")
    ended = filled.run(f"{RUN} --verify 1 -- tool in.tsv out.tsv")
    assert ended.code == 5, ended.shown
    found = re.search(r"gave other bytes for records (\d+) to (\d+) ", ended.err)
    assert found and int(found[1]) <= border < int(found[2]), ended.shown
    assert not (filled.work / "out.tsv").exists(), "nothing looks finished"


#: What gives serial bytes as long as the input stays as it is: the first record, or any, must be the least.
ORDERED = {
    "sorted": "sort -t r -k 2,2n $1 > $2",
    "highest so far": "awk '{n = substr($1, 2) + 0; if (n >= high) high = n; print $1, high}' $1 > $2",
}


@pytest.mark.parametrize("body", ORDERED.values(), ids=ORDERED)
def test_dependence_on_the_order_is_detected_where_verification_is_asked_for(filled: Shell, body: str) -> None:
    """The input is in order, so only the opposite order shows it."""
    filled.tool("tool", body)
    ended = filled.run(f"{RUN} --verify 0.2 -- tool in.tsv out.tsv")
    assert ended.code == 5 and "run again in the opposite order" in ended.err, ended.shown
    assert "which may not be the serial tool's" in ended.err and not (filled.work / "out.tsv").exists(), ended.shown
    assert filled.run(f"{RUN} --fresh -- tool in.tsv out.tsv; tool in.tsv all; cmp out.tsv all").code == 0


def test_last_line_without_an_end_passes_full_verification(filled: Shell) -> None:
    (filled.work / "in.tsv").write_text(table().removesuffix("\n"))
    ended = filled.run(f"{RUN} --verify 1 -- cp in.tsv out.tsv && cmp in.tsv out.tsv")
    assert ended.code == 0 and f"checked on {N} of {N} records" in ended.err, ended.shown


SOUND = (
    ("cat", "lines", "cat in.tsv"),
    ("sed", "lines", "sed s/a/AA/g in.tsv"),
    ("grep", "lines", "grep a in.tsv"),
    ("awk", "lines", "awk '{print $3, $1}' in.tsv"),
    ("jq", "lines", "jq -c .n+1 in.jsonl"),
    ("cat", "lines", "cat in.tsv in.tsv:2"),
    ("seqkit", "fasta", "seqkit seq --reverse --complement --seq-type dna in.fa"),
    ("awk", "fasta", "awk '/^>/ {print $1, \"renamed\"; next} {print}' in.fa"),
    ("true", "fasta", "true in.fa"),
)
#: Filters that look no different from these.
ALIKE = (
    ("python3", "lines", "python3 -c 'import sys; [print(hash(int(line.split()[1]))) for line in sys.stdin]' < in.tsv"),
    ("seqkit", "fasta", "seqkit fx2tab in.fa"),
    ("tr", "lines", "tr a-z A-Z < in.tsv"),
    ("cut", "lines", "cut -f 1,3 in.tsv"),
    ("rev", "lines", "rev in.tsv"),
    ("fold", "lines", "fold -w 10 in.tsv"),
    ("awk", "lines", "awk '$2 == 7' in.tsv"),
    ("perl", "lines", "perl -pe 's/(.)\\t/$1$1\\t/' in.tsv"),
    ("seqtk", "fasta", "seqtk seq -l 30 in.fa"),
)
FILTERS = [
    *(pytest.param(*each, id=f"{k}-{each[0]}") for k, each in enumerate(SOUND)),
    *(pytest.param(*each, id=f"alike-{k}-{each[0]}", marks=pytest.mark.slow) for k, each in enumerate(ALIKE)),
]


#: Takes a tenth of a second of CPU time to start, and leaves out names that came before.
SLOW_START = """
import sys, time
while time.process_time() < 0.1:
    pass
sys.stdout.writelines(dict.fromkeys(line.partition("|")[2] for line in sys.stdin))
"""


@pytest.mark.slow
@pytest.mark.parametrize("batch", [again(1), 3])
def test_slow_start_with_small_batches_checks_more_records(filled: Shell, batch: int) -> None:
    """A tool that drops duplicates differs only across several batches."""
    (filled.work / "slow.py").write_text(SLOW_START)
    (filled.work / "some.tsv").write_text("".join(f"r{k}|{k % 7}\n" for k in range(40)))
    ended = filled.run(f"millrace run --slots 2 --format lines --batch {batch} -- python3 slow.py < some.tsv")
    assert ended.code == 5 and not ended.out, ended.shown
    assert "for records 1 to 12 when they were run again" in ended.err and "duplicates left out" in ended.err


@pytest.mark.parametrize(("tool", "form", "line"), FILTERS)
def test_exact_filters_pass_verification(filled: Shell, tool: str, form: str, line: str) -> None:
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    name = next(name for name in ("in.tsv", "in.fa", "in.jsonl") if name in line)
    if line.endswith(":2"):  # two that advance together
        line = line.removesuffix(":2").replace(" in.tsv in.tsv", " in.tsv in.jsonl")
        line, given = line.replace("cat", "paste", 1), "--input in.tsv:lines --input in.jsonl:lines"
    else:
        given = "" if "<" in line else f"--input {name}:{form}"
    serial = filled.run(line)
    ended = filled.run(f"millrace run --slots 2 --batch {BATCH} --format {form} {given} -- {line}")
    assert ended.code == serial.code == 0 and ended.out == serial.out, ended.shown
    assert "is not known to millrace: checked on" in ended.err and f"of {N} records cut elsewhere" in ended.err


def test_repeated_command_reports_the_same_difference(filled: Shell) -> None:
    filled.tool("tool", 'echo $(head -c 3 $1) $(wc -l < $1) >> "$COUNT"; { echo head; cat $1; } > $2')
    first = filled.run(f"{RUN} -- tool in.tsv out.tsv")
    again = filled.run(f"{RUN} -- tool in.tsv out.tsv")
    assert (again.code, again.err) == (5, first.err) and "--join header" in again.err, again.shown
    ran = (filled.root / "count").read_text().splitlines()
    assert ran.count(f"r0 {BATCH}") == 2 and ran.count(f"r0 {2 * BATCH}") == 1, (
        "a batch, again as it is, and two as one"
    )
    assert not (filled.work / "out.tsv").exists()
    let = filled.run(f"{RUN} --verify 0 -- tool in.tsv out.tsv")
    assert let.code == 0 and "tool is not known to millrace: not checked (--verify 0)" in let.err, let.shown
    assert (filled.work / "out.tsv").read_text().count("head\n") == N / BATCH


def test_inexact_tool_is_stopped_after_a_few_batches(filled: Shell) -> None:
    """More of the input never comes, and its end comes after the run's."""
    filled.tool("tool", "echo head; cat")
    few = 'head -n 40 in.tsv; until [ -e "$MARK/ended" ]; do sleep 0.05; done'
    run = "millrace run --slots 1 --batch 1 --format lines -- tool"
    ended = filled.run(f"bash -c '{{ {few}; }} | {{ {run}; code=$?; touch \"$MARK/ended\"; exit $code; }}'")
    assert (ended.code, ended.out) == (5, "") and "--join header" in ended.err, ended.shown


def test_nothing_is_written_before_the_start_is_verified(filled: Shell) -> None:
    filled.tool("all", f'until [ $(wc -l < "$COUNT") -ge {N // BATCH} ]; do sleep 0.02; done')
    # One that looks again waits for all; a second one must leave a slot for them.
    waits = f'if [ $(wc -l < got) != {2 * BATCH} ]; then echo >> "$COUNT"; elif mkdir "$COUNT.waits"; then all; fi'
    filled.tool("tool", f"cat > got; {{ {waits}; }} 2> /dev/null; echo head; cat got")
    run = f"millrace run --slots 2 --batch {BATCH} --format lines -- tool < in.tsv"
    ended = filled.run(run)
    assert (ended.code, ended.out) == (5, "") and "--join header" in ended.err, ended.shown
    again = filled.run(run)
    assert (again.code, again.out) == (5, ""), again.shown
    let = filled.run(run.replace("-- ", "--verify 0 -- "))
    assert let.code == 0 and let.out.count("head\n") == N // BATCH, let.shown


#: Fails on records 102 and 105 together, and on neither alone.
TOGETHER = 'if grep -q "^r101\t" $1 && grep -q "^r104\t" $1; then {}; fi; cp $1 $2'


def test_tool_that_fails_only_on_joined_records_is_refused(filled: Shell) -> None:
    """As one that wants its input sorted, or every row as long as the first."""
    filled.tool("tool", TOGETHER.format("exit 7"))
    for _ in range(2):  # nothing of the first run counts for the second
        ended = filled.run(f"{RUN} -- tool in.tsv out.tsv")
        assert ended.code == 5, ended.shown
        assert "tool fails on records 97-108 together, and on no part of them: exit status 7" in ended.err
        assert not (filled.work / "out.tsv").exists() and not filled.run_dirs()


def test_tool_that_fails_on_the_only_batch_is_refused(filled: Shell) -> None:
    """The input ends only after parts of its one batch are done."""
    filled.tool("tool", 'got=$(cat); [ $(echo "$got" | wc -l) -le 100 ] || exit 7; touch "$MARK/part"; echo "$got"')
    all_of_it = 'cat in.tsv; until [ -e "$MARK/part" ]; do sleep 0.05; done'
    run = f"millrace run --slots 2 --batch {N} --verify 1 --format lines -- tool"
    ended = filled.run(f"{{ {all_of_it}; }} | {run}")
    assert (ended.code, ended.out) == (5, ""), ended.shown
    assert f"tool fails on records 1-{N} together, and on no part of them: exit status 7" in ended.err


def test_tool_that_fails_for_a_while_is_accepted(filled: Shell) -> None:
    """Its first two attempts at a batch fail; later it is done, in parts and as a whole."""
    filled.tool("tool", TOGETHER.format('echo >> "$COUNT"; [ $(wc -l < "$COUNT") -gt 2 ] || exit 7'))
    ended = filled.run(f"{RUN} -- tool in.tsv out.tsv")
    assert ended.code == 0 and (filled.work / "out.tsv").read_text() == table(), ended.shown
    assert "all bytes equal" in ended.err
    assert int(filled.run('wc -l < "$COUNT"').out) >= 3, "it was run on all of them again"


def test_failing_records_are_quarantined_alone(filled: Shell) -> None:
    """The records beside them in the batch are done."""
    filled.tool("tool", 'if grep -q "^r101\t" $1; then exit 7; fi; cp $1 $2')
    ended = filled.run(f"{RUN} -- tool in.tsv out.tsv")
    assert ended.code == 3 and "quarantined record 102" in ended.err, ended.shown
    assert (filled.work / "out.tsv").read_text() == "".join(
        line for line in table().splitlines(True) if "r101\t" not in line
    )


def test_output_link_is_emptied_and_not_removed(filled: Shell) -> None:
    filled.tool("tool", "{ echo head; cat $1; } > $2")
    ended = filled.run(f"touch kept; ln -s kept out.tsv; {RUN} -- tool in.tsv out.tsv")
    assert ended.code == 5
    assert (filled.work / "out.tsv").is_symlink() and (filled.work / "kept").read_bytes() == b""


#: Millrace, for which a run of any length is short.
WHOLE = """
from millrace.scheduler import verification_stretches
verification_stretches.MAX_WHOLE_CPU_SECONDS = verification_stretches.MAX_WHOLE_SECONDS = 1e6
from millrace.cli import main
main()
"""


def test_short_run_is_verified_completely(filled: Shell) -> None:
    """What only all of the input together shows: no part of it gives other bytes at other boundaries."""
    filled.tool("millrace", f'exec {shlex.quote(sys.executable)} -c {shlex.quote(WHOLE)} "$@"')
    filled.tool("tool", f"awk -v all=$([ $(wc -l < $1) = {N} ] && echo yes || echo no) '{{print $1, all}}' $1 > $2")
    ended = filled.run(f"{RUN} -- tool in.tsv out.tsv")
    assert ended.code == 5 and f"for records 1 to {N} when they were run again" in ended.err, ended.shown
    assert not (filled.work / "out.tsv").exists()


@pytest.mark.parametrize("name", ["side.txt", "out of it.txt"])
def test_written_file_without_output_option_ends_the_run(filled: Shell, name: str) -> None:
    """The command names it; the message says which --output to add."""
    filled.tool("tool", 'cut -f1 "$1" > "$3"')
    ended = filled.run(f"millrace run -q --slots 2 --format lines --input in.tsv -- tool in.tsv -o '{name}'")
    assert ended.code == 4 and f"tool writes {name}, which is no output of this run" in ended.err, ended.shown
    assert f"--output {name}" in ended.err
    named = filled.run(f"millrace run -q --format lines --input in.tsv --output '{name}' -- tool in.tsv -o '{name}'")
    assert named.code == 0, named.shown
    assert filled.run(f"cut -f1 in.tsv | cmp - '{name}'").code == 0


def test_failing_tool_leaves_no_empty_output(filled: Shell) -> None:
    """An empty output would look like a search without hits."""
    ended = filled.run(f"{RUN} -- sh -c 'exit 3' in.tsv out.tsv")
    assert ended.code == 4 and not (filled.work / "out.tsv").exists(), ended.shown


def test_difference_at_the_end_alone_is_detected(filled: Shell) -> None:
    filled.tool("tool", f"awk '/^r{N - 2}\\t/ {{late = 1}} {{print $1, late ? NR : 0}}' $1 > $2")
    ended = filled.run(f"{RUN} -- tool in.tsv out.tsv")
    assert ended.code == 5 and f"to {N} when they were run again" in ended.err, ended.shown


@pytest.mark.slow
def test_difference_far_behind_is_detected(filled: Shell) -> None:
    filled.tool("tool", 'while read -r line; do head -c 300000 /dev/zero | tr "\\0" x; echo; done')
    equal = filled.run(f"head -60 in.tsv > some; {LARGE} tool < some | wc -c")
    assert (equal.code, int(equal.out)) == (0, 60 * 300_001), equal.shown
    assert "all bytes equal" in equal.err
    filled.tool("late", "tool; date +%N")
    other = filled.run(f"{LARGE} late < some > out")
    assert other.code == 5 and "late gave other bytes" in other.err, other.shown


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("", "cat is not known to millrace: checked on"),
        ("--verify 1", f"checked on {N} of {N} records cut elsewhere, all bytes equal"),
        ("--verify 0", "cat is not known to millrace: not checked (--verify 0)"),
        ("--batch 1000", "all of the input was one task, which is the serial run itself"),
        ("--batch 1", "checked on"),
        ("-q", ""),
    ],
)
def test_verification_message_is_exact(filled: Shell, options: str, says: str) -> None:
    ended = filled.run(f"millrace run --batch {BATCH} {options} --format lines -- cat < in.tsv")
    assert ended.code == 0 and ended.out == table(), ended.shown
    assert says in ended.err if says else not ended.err, ended.shown


def test_a_folder_of_files_is_compared_by_name(filled: Shell) -> None:
    filled.tool("tool", 'for f in "$@"; do { head -1 "$f"; echo $#; } > "out/$(basename "$f")"; done')
    prepare = "mkdir in out; for k in 1 2 3 4 5 6 7 8; do echo $k > in/$k; done"
    run = "millrace run --slots 1 --batch 2 --input in --output out/ -- tool in"
    ended = filled.run(f"{prepare}; {run}")
    # How many are looked at in one go depends on how long the tool took.
    assert ended.code == 5 and re.search(r"    committed: 2\n    run again: [1-8]\n", ended.err), ended.shown
    assert not list((filled.work / "out").iterdir())


def test_job_file_and_environment_set_the_verified_share(filled: Shell) -> None:
    job = 'command = ["cat"]\\nformat = "lines"\\nbatch = 12\\nverify = 1.0\\n'
    ended = filled.run(f"printf '{job}' > job.toml; millrace run job.toml < in.tsv")
    assert f"checked on {N} of {N} records" in ended.err, ended.shown
    ended = filled.run("MILLRACE_RUN_VERIFY=0 millrace run --fresh job.toml < in.tsv")
    assert "not checked (--verify 0)" in ended.err, ended.shown


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("blastp"), reason="BLAST+ is not installed")
def test_untested_version_is_verified_and_reported(filled: Shell) -> None:
    drawn = random.Random(3)
    proteins = [f">p{k}\n{''.join(drawn.choices('ARNDCQEGHILKMFPSTWYV', k=80))}\n" for k in range(40)]
    (filled.work / "db.faa").write_text("".join(proteins))
    assert filled.run("makeblastdb -in db.faa -dbtype prot -out db").code == 0
    search = "millrace run --batch 4 --slots 2 {} -- blastp -query db.faa -db db -outfmt 6 -out hits"
    known = filled.run(search.format(""))
    assert known.code == 0 and "never tested" not in known.err and "records cut elsewhere" not in known.err, known.shown
    filled.tool("blastp", f'[ "$1" = -version ] && echo "blastp: 2.12.01+" || exec {shutil.which("blastp")} "$@"')
    new = filled.run(search.format("--fresh"))
    assert new.code == 0, new.shown
    assert new.err.count("blastp: 2.12.01+ was never tested with millrace (but 2.12.0+, ") == 1, new.shown
    assert "blastp: 2.12.01+ was never tested with millrace: checked on" in new.err, new.shown
    assert "checked on" not in filled.run(search.format("--fresh --verify 0")).err


@pytest.mark.parametrize(
    "line",
    [
        "awk '/r200/ {exit} {print}' in.tsv", "awk '/r200/ {on = 1} on' in.tsv", "awk '$2 in s {next} {s[$2]; print}' in.tsv",
        "sed '/r200/,$d' in.tsv", "sed -f late.sed in.tsv", "sed -e '/r200/q' in.tsv", "sed 200d in.tsv", "awk 'NR < 200' in.tsv",
        "perl -ne 'last if /r200/; print' in.tsv", "perl -n late.pl in.tsv", "perl -e 'while (<>) { print if $. < 200 }' in.tsv",
        "jq -c 'if .n > 200 then halt else . end' in.jsonl", "sed -z s/a/b/ in.tsv", "perl -0pe 1 in.tsv", "awk -v RS=a 1 in.tsv",
    ],
)  # fmt: skip
def test_uncertain_script_is_refused_without_independent(filled: Shell, line: str) -> None:
    (filled.work / "late.sed").write_text("/r200/q\n")
    (filled.work / "late.pl").write_text("last if /r200/; print;\n")
    ended = filled.run(f"millrace run --input {line.split()[-1]}:lines --verify 1 -- {line}")
    assert ended.code == 2 and "--independent" in ended.err, ended.shown
    assert not filled.run_dirs() and not ended.out


@pytest.mark.parametrize("line", ["awk '/r200/ {on = 1} on'", "sed '/r200/,$d'", "perl -ne 'last if /r200/; print'"])
def test_wrong_independent_is_detected_by_verification(filled: Shell, line: str) -> None:
    given = f"--independent --input in.tsv:lines --slots 2 --batch {BATCH} --verify 1"
    compared = filled.run(f"millrace run {given} -- {line} in.tsv")
    assert compared.code == 5 and "verification failed" in compared.err, compared.shown


@pytest.mark.parametrize(
    "line",
    [
        "awk '/^>/ {name = $1; next} {print name, length($0)}' in.fa",
        'awk \'BEGIN { RS = ">"; ORS = "" } $1 { print $1 }\' in.fa',
        "awk '{n = split($0, part, \"A\"); print n}' in.fa",
    ],
)
def test_independent_script_is_run_and_verified(filled: Shell, line: str) -> None:
    ended = filled.run(f"millrace run --independent --slots 2 --batch {BATCH} --input in.fa:fasta -- {line}")
    assert ended.code == 0 and ended.out == filled.run(line).out, ended.shown
    assert "treats each record by itself, as said with --independent: checked on" in ended.err, ended.shown


@pytest.mark.parametrize("line", ["sed -z s/r/R/", "perl -0pe s/r/R/"])
def test_records_that_end_with_nul_need_independent(filled: Shell, line: str) -> None:
    (filled.work / "in.nul").write_text(table().replace("\n", "\0"))
    serial = filled.run(f"{line} in.nul")
    assert filled.run(f"millrace run --input in.nul:nul -- {line} in.nul").code == 2
    assert filled.run("millrace run --input in.nul:nul -- sed s/r/R/ in.nul").code == 2
    ended = filled.run(f"millrace run --independent --slots 2 --batch {BATCH} --input in.nul:nul -- {line} in.nul")
    assert ended.code == serial.code == 0 and ended.out == serial.out, ended.shown


@pytest.mark.parametrize("at", [1050, 1150])
def test_state_after_any_border_is_detected_by_full_check(shell: Shell, at: int) -> None:
    shell.tool("keep", f'exec {sys.executable} -c "$KEEP"')
    keep = "import sys; found = 0\nfor line in sys.stdin: found |= line == 'on\\n'; print(found, line, end='')"
    (shell.work / "in.txt").write_text("".join("on\n" if each == at else f"line {each}\n" for each in range(1, 1501)))
    ended = shell.run(
        f"KEEP={shlex.quote(keep)} millrace run --slots 2 --batch 100 --verify 1 --format lines -- keep < in.txt"
    )
    assert ended.code == 5 and "gave other bytes" in ended.err, ended.shown
