"""Inputs with a header: each part begins with it, so programs that need it give the serial bytes."""

from __future__ import annotations

import gzip
import json
import shlex
import sys
from collections.abc import Callable

import pytest
from exact_cases import make_table, make_variants
from parameter_choice import again
from shell import Shell

TWICE = """import csv, sys
with open(sys.argv[1]) as table, open(sys.argv[2], "w") as out:
    rows = csv.DictReader(table, delimiter="\\t")
    found = csv.DictWriter(out, [*rows.fieldnames, "twice"], delimiter="\\t", lineterminator="\\n")
    found.writeheader()
    found.writerows({**row, "twice": 2 * int(row["value"])} for row in rows)
"""
#: What is given to ``millrace run``, and the command.
ALIKE = [
    ("--input v.vcf", "bcftools +fill-tags --no-version v.vcf -- -t AF"),
    ("--input v.vcf", r"bcftools query -H -f '%POS\n' v.vcf"),
    ("--input v.vcf", "grep -v '^##' v.vcf"),
    ("--input v.vcf --warm", "awk -F'\\t' '/^#/ || $6 > 50' v.vcf"),
    ("--input v.vcf", "sed /^#/d v.vcf"),
    ("--format vcf", "bcftools view --no-version -G - < v.vcf"),
    ("--input v.vcf --join concat", r"bcftools query -f '#%CHROM\n' v.vcf"),
    ("--input t.csv:csv+header --join csv", "csvgrep -c kind -m k3 t.csv"),
    ("--input t.csv:csv+header --join csv", "csvcut -c kind,id t.csv"),
    ("--input t.csv:lines+header", "mlr --icsv --ojsonl cat t.csv"),
    ("--input t.tsv:lines+header --join header", "mlr --tsv put '$z = $id . \"x\"' t.tsv"),
    ("--independent --input t.tsv:lines+header", "sed 1d t.tsv"),
    ("--independent --input t.tsv:lines", "awk 'NR == FNR { ids[$1]; next } $1 in ids' ids t.tsv"),
    (
        "--independent --input t.tsv:lines+header --join header",
        "awk 'NR == FNR { ids[$1]; next } FNR == 1 || $1 in ids' ids t.tsv",
    ),
    ("--independent --input t.tsv:lines+header --join header", "perl -ne 'print if $. == 1 || /7/' t.tsv"),
    (
        "--independent --input t.tsv:lines+header",
        "awk -F'\\t' 'NR == 1 { for (k = 1; k <= NF; k++) at[$k] = k; next } { print $at[\"value\"] }' t.tsv",
    ),
]
#: `csvcut` goes the same way, as slowly.
SLOW_TO_START = "csvgrep"


#: Prints the title of each spectrum, its number of peaks, and the charge that stands above all of them.
SPECTRA = """import sys
charge, title, peaks = None, None, 0
for line in open(sys.argv[1], encoding="utf-8-sig"):
    key, _, value = line.strip().partition("=")
    if key == "CHARGE" and title is None:
        charge = value
    elif key == "BEGIN IONS":
        title, peaks = "none", 0
    elif key == "TITLE":
        title = value
    elif key == "END IONS":
        print(title, peaks, charge)
    elif key[:1].isdigit():
        peaks += 1
"""


@pytest.fixture
def tables(shell: Shell) -> Shell:
    make_variants(shell.work / "v.vcf")
    make_table(shell.work / "t.csv")
    (shell.work / "ids").write_text("".join(f"{k}\n" for k in range(0, 300, 7)))
    (shell.work / "t.tsv").write_text("id\tvalue\n" + "".join(f"{k}\t{3 * k}\n" for k in range(300)))
    return shell


@pytest.mark.parametrize(
    ("options", "line"),
    [again(*each) if each[1].startswith(SLOW_TO_START) else each for each in ALIKE],
    ids=[line[:30] for _, line in ALIKE],
)
def test_parts_with_the_header_write_serial_bytes(tables: Shell, options: str, line: str) -> None:
    serial = tables.run(line)
    assert serial.code == 0 and serial.out, serial.shown
    for batch in ("150", "45") if not line.startswith("csv") else ("150",):
        ended = tables.run(f"millrace run --slots 2 --batch {batch} {options} -- {line}")
        assert (ended.code, ended.out) == (0, serial.out), ended.shown
        assert "all bytes equal" in ended.err, ended.shown


def test_a_script_that_reads_and_writes_names_of_columns(tables: Shell) -> None:
    (tables.work / "twice.py").write_text(TWICE)
    line = f"{shlex.quote(sys.executable)} twice.py t.tsv"
    assert tables.run(f"{line} serial").code == 0
    given = "--input t.tsv:lines+header --output out --join header"
    ended = tables.run(f"millrace run --slots 2 --batch 40 {given} -- {line} out")
    assert ended.code == 0, ended.shown
    assert (tables.work / "out").read_bytes() == (tables.work / "serial").read_bytes()


def test_header_reading_script_is_refused_with_a_hint(tables: Shell) -> None:
    """As it is typed it is refused, as the first line may be a record; what the hint says gives the serial bytes."""
    for line, given in (
        ("awk 'NR == 1 || $2 > 300' t.tsv", "--input t.tsv:lines+header"),
        ("sed '1!s/7/x/' < t.tsv", "--format lines+header"),
        ("awk 'NR == 1 || /k3/' t.csv", "--input t.csv:csv+header"),
    ):
        serial = tables.run(line)
        refused = tables.run(f"millrace run {given} -- {line}")
        assert refused.code == 2 and "name a format with a header, too" in refused.err, refused.shown
        ended = tables.run(f"millrace run --independent --slots 2 --batch 90 {given} --join header -- {line}")
        assert (ended.code, ended.out) == (0, serial.out), ended.shown


def test_a_packed_file_and_one_without_records(tables: Shell) -> None:
    text = (tables.work / "v.vcf").read_bytes()
    (tables.work / "p.vcf.gz").write_bytes(gzip.compress(text))
    (tables.work / "none.vcf").write_bytes(text[: text.index(b"\n1\t") + 1])
    for name in ("p.vcf.gz", "none.vcf"):
        serial = tables.run(f"bcftools view --no-version -i 'QUAL>50' {name}")
        ended = tables.run(f"millrace run --slots 2 --batch 50 -- bcftools view --no-version -i 'QUAL>50' {name}")
        assert serial.code == 0 and (ended.code, ended.out) == (0, serial.out), ended.shown


@pytest.mark.parametrize(
    ("name", "pack", "tool"), [("v.vcf", bytes, "cat"), ("v.vcf.gz", gzip.compress, "sh -c 'zcat $1' x")]
)
def test_progress_does_not_count_repeated_headers(
    tables: Shell, name: str, pack: Callable[[bytes], bytes], tool: str
) -> None:
    """A header may be longer than all records together, and goes with each batch; a packed file has fewer bytes."""
    lines = (tables.work / "v.vcf").read_text().splitlines(keepends=True)
    lines[1:1] = [f"##note={'x' * 90}\n"] * 1000
    (tables.work / name).write_bytes(pack("".join(lines).encode()))
    ended = tables.run(f"millrace run --progress json --slots 2 --batch 50 --verify 0 --input {name} -- {tool} {name}")
    assert ended.code == 0 and ended.out == "".join(lines), ended.shown
    told = [json.loads(line) for line in ended.err.splitlines() if line.startswith("{")]
    last = [each for each in told if each["event"] == "progress"][-1]
    assert (last["records_done"], last["bytes_done"]) == (400, last["bytes_total"])


JOB = r"""
[phase.pass]
command = "bcftools view --no-version -i 'QUAL>50' -o pass.vcf v.vcf"
batch = 20
[phase.tags]
command = "bcftools +fill-tags --no-version -o tags.vcf pass.vcf -- -t AF"
input = "pass.vcf"
output = "tags.vcf"
batch = 15
[phase.rows]
command = "bcftools query -f '%CHROM %POS %AF\n' -o rows tags.vcf"
"""


def test_phases_forward_the_header(tables: Shell) -> None:
    (tables.work / "job.toml").write_text(JOB)
    for place, line in (("s", "cd s"), (".", "millrace run job.toml")):
        (tables.work / "s").mkdir(exist_ok=True)
        (tables.work / "s" / "v.vcf").write_bytes((tables.work / "v.vcf").read_bytes())
        steps = [each.split('"')[1] for each in JOB.splitlines() if each.startswith("command")]
        ended = tables.run(" && ".join([line, *steps]) if place == "s" else line)
        assert ended.code == 0, ended.shown
    for name in ("pass.vcf", "tags.vcf", "rows"):
        found = (tables.work / name).read_bytes()
        assert found and found == (tables.work / "s" / name).read_bytes(), name


def test_failing_variant_is_quarantined_by_name(tables: Shell) -> None:
    """Each part on the way down to it is a whole VCF, and so is what is kept of it."""
    lines = (tables.work / "v.vcf").read_text().splitlines(keepends=True)
    head = [line for line in lines if line.startswith("#")]
    bad = len(head) + 122
    lines[bad] = lines[bad].replace("\tPASS\t", "\tBAD\t")
    (tables.work / "v.vcf").write_text("".join(lines))
    tables.tool(
        "strict", f'test "$(grep -c "^#" "$1")" = {len(head)} || exit 9; grep BAD "$1" >&2 && exit 7; exec cat "$1"'
    )
    ended = tables.run("millrace run --slots 2 --batch 64 --input v.vcf -- strict v.vcf")
    assert ended.code == 3, ended.shown
    assert ended.out == "".join(lines[:bad] + lines[bad + 1 :])
    assert "record 123" in ended.err and f"{lines[bad].split()[0]}" in ended.err, ended.shown
    (kept,) = tables.work.glob("*.millrace/quarantine/*/v.vcf")
    assert kept.read_text() == "".join([*head, lines[bad]])


def test_a_line_of_the_header_among_the_variants_ends_the_run(tables: Shell) -> None:
    lines = (tables.work / "v.vcf").read_text().splitlines(keepends=True)
    lines.insert(200, "##late\n")
    (tables.work / "v.vcf").write_text("".join(lines))
    ended = tables.run("millrace run --slots 2 --batch 20 --input v.vcf -- cat v.vcf")
    assert ended.code == 1 and "v.vcf:201: a line of the header stands behind" in ended.err, ended.shown
    assert tables.run("millrace run --slots 2 --batch 20 --input v.vcf:lines -- sed /^#/d v.vcf").code == 0


def test_run_resumes_with_the_same_header_alone(tables: Shell) -> None:
    """The header is part of each batch's checksum."""
    tables.tool(
        "wait", f'if grep -q rs399 "$1"; then until [ -e {tables.root}/go ]; do sleep 0.05; done; fi; cp "$1" "$2"'
    )
    run = "millrace run --slots 2 --batch 50 --verify 0 --input v.vcf --output out.vcf -- wait v.vcf out.vcf"
    text = (tables.work / "v.vcf").read_text()
    first = tables.run(
        f"{run.replace(' --slots', ' --progress json --slots')} 2> said & "
        "until grep -q '\"records_done\": *350' said; do sleep 0.05; done; kill -9 $!"
    )
    assert first.code == 0, first.shown
    (tables.root / "go").touch()

    (tables.work / "v.vcf").write_text(text.replace("length=1000000", "length=1000001"))
    ended = tables.run(run)
    assert ended.code == 2 and "--fresh" in ended.err, ended.shown
    (tables.work / "v.vcf").write_text(text)
    ended = tables.run(run)
    assert ended.code == 0 and (tables.work / "out.vcf").read_text() == text, ended.shown


@pytest.mark.parametrize("at", [149, 150, 170])
def test_changed_columns_end_the_run(tables: Shell, at: int) -> None:
    """Serially a blank line and other names stand there: between two batches, or within one."""
    line = f"mlr --csv put 'if ($id == {at}) {{unset $kind}}' t.csv"
    assert "\n\nid," in tables.run(line).out
    ended = tables.run(f"millrace run --slots 2 --batch 50 --verify 0 --input t.csv:csv+header --join csv -- {line}")
    assert ended.code == 5 and ("columns change" in ended.err or "header" in ended.err), ended.shown


def test_line_reading_phases_read_variants_as_lines(tables: Shell) -> None:
    (tables.work / "upper.py").write_text("def upper(lines):\n    for line in lines:\n        yield line.upper()\n")
    (tables.work / "job.toml").write_text(
        '[phase.cut]\nfilter = "cut -f 1-5"\ninput = "v.vcf"\noutput = "five"\n'
        '[phase.upper]\npython = "upper.py:upper"\ninput = "v.vcf"\noutput = "upper"\n'
    )
    ended = tables.run("millrace run job.toml")
    assert ended.code == 0, ended.shown
    assert (tables.work / "five").read_text() == tables.run("cut -f 1-5 v.vcf").out
    assert (tables.work / "upper").read_text() == (tables.work / "v.vcf").read_text().upper()


def test_a_description_needs_no_word_of_the_header(tables: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tables.root / "state"))
    (tables.work / "millrace-tools").mkdir()
    (tables.work / "millrace-tools" / "tee2.toml").write_text(
        'programs = ["tee2"]\n[use]\n[[use.input]]\noperand = 1\nformat = "vcf"\n[[use.output]]\noperand = 2\n'
    )
    ended = tables.run(
        "millrace tool allow millrace-tools/tee2.toml && millrace run --slots 2 --batch 50 -- tee2 v.vcf out"
    )
    assert ended.code == 0, ended.shown
    assert (tables.work / "out").read_bytes() == (tables.work / "v.vcf").read_bytes()


def test_map_refuses_a_file_with_header_except_as_lines(tables: Shell) -> None:
    code = "import millrace; print(len(list(millrace.map(len, 'v.vcf{}'))))"
    python = shlex.quote(sys.executable)
    ended = tables.run(f'{python} -c "{code.format("")}"')
    assert ended.code and "v.vcf:lines" in ended.err, ended.shown
    assert tables.run(f'{python} -c "{code.format(":lines")}"').out == "408\n"


@pytest.mark.parametrize(
    ("options", "line", "why"),
    [
        ("--input v.vcf", "bcftools +fill-tags v.vcf -- -t AF", "writes the time and its command"),
        ("--input v.vcf:lines", "bcftools view --no-version v.vcf", "say that it is VCF"),
        ("--input v.vcf", "bcftools csq --no-version v.vcf", "beside each other"),
        ("--input t.csv:csv+header", "csvgrep -c kind -m k3 t.csv", "--join csv"),
        ("--input t.csv:csv", "mlr --icsv --ojsonl cat t.csv", "csv+header"),
        ("--input t.csv:csv+header --join csv", "csvsort -c kind t.csv", "orders or compares"),
        ("--input v.vcf", "awk 'NR > 3' v.vcf", "count lines"),
        ("--input v.vcf", "bcftools +prune -w 3bp v.vcf", "beside each other"),
        ("--input t.csv:csv+header", "mlr --icsvlite --ojsonl cat t.csv", "takes a blank line for the end of a table"),
        ("--input t.csv:csv+header", "mlr --icsv --ojson cat t.csv", "--ojsonl"),
        ("--input t.csv:csv", "mlr -N --csv put 'if ($1 > 9) {unset $2}' t.csv", "does not show where they change"),
        ("--input t.csv:csv+header --join csv", "csvcut -q _ -c id t.csv", "reads quotes otherwise"),
        ("--input t.csv:csv", "csvformat -K 1 t.csv", "leaves out the first lines"),
        ("--input t.csv:csv+header --join csv", "csvgrep -l -c kind -m k3 t.csv", "counts or numbers"),
        ("--input v.vcf --records", "cat", "is not sent"),
        ("--input run.mzML.gz", "cat run.mzML.gz", "msconvert --mgf run.mzML.gz"),
    ],
)
def test_refused_before_the_start(tables: Shell, options: str, line: str, why: str) -> None:
    (tables.work / "run.mzML.gz").write_bytes(gzip.compress(b"<?xml version='1.0'?>\n<indexedmzML>\n"))
    ended = tables.run(f"millrace run {options} -- {line}")
    assert ended.code == 2 and why in ended.err, ended.shown


@pytest.mark.parametrize(
    "above", ["", "\n", "# made here\nCOM=all\nCHARGE=2+ and 3+\n\n", "\ufeff", "\ufeffCHARGE=2+ and 3+\n"]
)
def test_spectra_have_what_stands_above_the_first(shell: Shell, above: str) -> None:
    spectra = [
        f"BEGIN IONS\nTITLE=scan {k}\nPEPMASS={300 + k}.25\n"
        + "".join(f"{100 + n}.5 {n}\n" for n in range(k % 9))
        + "END IONS\n\n"
        for k in range(200)
    ]
    (shell.work / "run.mgf").write_text(above + "".join(spectra), encoding="utf-8")
    shell.tool("titles", f"exec {shlex.quote(sys.executable)} -c {shlex.quote(SPECTRA)} $1")
    ended = shell.run(
        "titles run.mgf > serial; millrace run --slots 2 --batch 7 --input run.mgf -- titles run.mgf > ours"
    )
    assert ended.code == 0 and "200 records" in ended.err, ended.shown
    assert (
        shell.run("cmp serial ours; tail -1 ours").out
        == f"scan 199 {199 % 9} {'2+ and 3+' if 'CHARGE' in above else None}\n"
    )
