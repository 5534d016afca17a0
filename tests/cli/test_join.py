"""``--join``: what a program writes once a start stands once in the output, which is then the serial program's."""

from __future__ import annotations

import pytest
from shell import Shell

NAMES = "sed -n 's/^>//p' \"$1\""
#: What a program may write around its results; ``$1`` is the input.
FRAMED = {
    "header": f"echo name; {NAMES}",
    "header:2": f"echo a; echo b; {NAMES}",
    "header:^#": f"echo '# by framed'; echo '#'; {NAMES}",
    "footer": f"{NAMES}; printf end",
    "footer:^-- ": f"{NAMES}; echo '-- done'; echo '-- bye'",
    r"totals:^# (\d+) names": f"{NAMES}; echo '#' $(grep -c '>' $1) names",
    "csv": f"""printf '"na\\nme",x\\n'; {NAMES} | sed 's/$/,"1\\n2"/'""",
    "sam": rf"""printf '@HD\tVN:1.6\n@PG\tID:f\tCL:%s\n' "framed $*"; {NAMES} | sed 's/$/\t4/'""",
    "jsonl": f"""{NAMES} | sed 's/.*/{{"name": "&"}}/'""",
    "xml:names": f"""printf '<?xml version="1.0"?>\\n<doc>\\n  <names>\\n'
                     {NAMES} | sed 's/.*/    <name>&<\\/name>/'; printf '  </names>\\n</doc>'""",
}
MORE = ">r1\nMKV\n>r2\nMAA\n>r3\nMLL\n>r4\nM\n>r5\nMM\n"


@pytest.mark.parametrize("how", FRAMED)
def test_output_is_the_serial_programs(shell: Shell, how: str) -> None:
    shell.tool("framed", FRAMED[how])
    (shell.work / "in.fa").write_text(MORE)
    ended = shell.run(
        "set -e; printf '>r1\\nM\\n' > one.fa; : > none.fa; for f in in one none; do "
        f"millrace run -q --batch 2 --format fasta --input $f.fa --join '{how}' -- framed $f.fa > out; "
        "framed $f.fa > serial; cmp out serial; done"
    )
    assert ended.code == 0, ended.shown


def test_several_outputs_in_a_job_file(shell: Shell) -> None:
    shell.tool(
        "several", f'{{ {FRAMED["header"]}; }} > "$2"; {{ {FRAMED["sam"]}; echo end; }} > $3; {FRAMED["xml:names"]}'
    )
    (shell.work / "j.toml").write_text(
        'command = "several in.fa a=b h.sam"\ninput = "in.fa"\noutput = ["a=b", "h.sam"]\nbatch = 1\nslots = 2\n'
        'join = ["a=b=header:^name$", "h.sam=footer:^end$", "h.sam=header:^@", "-=xml:names"]\n'
    )
    ended = shell.run(
        "set -e; several in.fa a=b h.sam > serial; mv a=b serial.a; mv h.sam serial.h; millrace run -q j.toml > out; "
        "cmp out serial; cmp a=b serial.a; cmp h.sam serial.h; millrace plan j.toml"
    )
    assert ended.code == 0, ended.shown
    assert "joined by: header:^@ and footer:^end$" in ended.out, ended.shown


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        (f"echo '# mytool 1.0'; echo '# db 20'; {NAMES}", "--join header:2 "),
        (f"{NAMES}; echo '# done'; echo '# 20 s'", "--join footer:2 "),
    ],
)
def test_hint_for_a_frame_of_several_lines_is_exact(shell: Shell, body: str, hint: str) -> None:
    """The join that the hint names gives the serial bytes."""
    shell.tool("framed", body)
    (shell.work / "in.fa").write_text(MORE)
    run = "millrace run --fresh --batch 1 --input in.fa"
    for given in ("", hint.partition(":")[0]):  # nothing, and one line: what was asked before is not asked again
        first = shell.run(f"{run} {given} -- framed in.fa")
        assert first.code == 5 and hint in first.err, first.shown
    ended = shell.run(f"set -e; {run} {hint} -- framed in.fa > out; framed in.fa > serial; cmp out serial")
    assert ended.code == 0, ended.shown


@pytest.mark.parametrize(
    ("how", "body", "code", "says"),
    [
        ("header:2", f"echo same; head -1 $1; {NAMES}", 5, ": cannot join text output: the header differs between batches at its line 2"),
        ("footer:^total", f"{NAMES}; echo total $(wc -c < $1)", 5, "the footer differs between batches at its line 1: 'total 8' and 'total 10'"),
        ("jsonl", "echo '['; echo ']'", 4, "a line is no JSON object: '['"),
        ("xml:names", f"echo '<names/>'; {NAMES}; echo '<names/>'", 4, "a batch has several <names>"),
    ],
)  # fmt: skip
def test_unlike_batches_end_the_run(shell: Shell, how: str, body: str, code: int, says: str) -> None:
    shell.tool("unlike", f"{{ {body}; }} > $2")
    (shell.work / "in.fa").write_text(">r1\nMKV\n>r22\nMAAA\n")
    ended = shell.run(
        f"millrace run --batch 1 --verify 0 --input in.fa --output out --join '{how}' -- unlike in.fa out"
    )
    assert ended.code == code, ended.shown
    assert says in ended.err, ended.shown


def test_resume_compares_the_join(shell: Shell) -> None:
    run = "millrace run --keep-run-dir --batch 1 --input in.fa --output o"
    shell.tool("framed", f"{{ {FRAMED['header']}; }} > $2")
    ended = shell.run(f"{run} --join header -- framed in.fa o; {run} --join 'header:^name$' -- framed in.fa o")
    assert ended.code == 2, ended.shown
    assert "how o is joined: was header, now header:^name$" in ended.err, ended.shown
