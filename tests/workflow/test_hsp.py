"""Job files of HSP-Wrap: read as they stand, refused with line and column."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from harness import take
from shell import Shell

from millrace.core.errors import RefusedError
from millrace.extensions.workflow.hsp_wrap import HspReader

#: One stream in, one out, the database as a glob, two architectures.
BLAST = """\
# A search on a hybrid machine.
master { bcast-chunk-size 1M }

phase "search"
{
    arch "x86_64"  { exe "blastp";      args "-query input -db targets -outfmt 6 -out result" }
    arch "aarch64" { exe "arm/blastp";  args "-query input -db targets -outfmt 6 -out result" }
    stream "input"  { type input;  path "queries.faa"; format "fasta"; prefetch-ratio 0.5; }
    stream "result" { type output; path "hits.tsv" }
    file "targets.p*"
}
"""


def values(text: str, cwd: Path) -> dict[str, object]:
    found: dict[str, object] = HspReader("job.hsp", cwd).read_values(text)["phase"]
    return found


def test_hsp_blast_job_equals_a_toml_job(tmp_path: Path) -> None:
    (tmp_path / "targets.pin").touch()
    reader = HspReader("job.hsp", tmp_path)
    assert reader.read_values(BLAST) == {
        "phase": {
            "search": {
                "command": ["blastp", "-query", "queries.faa", "-db", "targets", "-outfmt", "6", "-out", "hits.tsv"]
                if os.uname().machine != "aarch64"
                else ["arm/blastp", "-query", "queries.faa", "-db", "targets", "-outfmt", "6", "-out", "hits.tsv"],
                "arch": {"x86_64": {"exe": "blastp"}, "aarch64": {"exe": "arm/blastp"}},
            }
        }
    }
    assert [note.partition(" has no")[0] for note in reader.notes] == ["master: bcast-chunk-size", "prefetch-ratio"]


def test_optional_punctuation_is_accepted(tmp_path: Path) -> None:
    bare = "phase a { exe cat\n args '-u x'\n stream x in { path in.fa\n format fasta } stream out y {} }"
    full = 'phase "a" {\n exe = "cat"; args = "-u x"; /* both */\n stream "x" in { path = "in.fa"; format = "fasta"; };\n stream out "y" { } // end\n}\n'
    assert (
        values(bare, tmp_path)
        == values(full, tmp_path)
        == {"a": {"command": ["cat", "-u", "in.fa"], "input": ["in.fa:fasta"], "output": ["y"], "shared": []}}
    )


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('phase a {\n  stream "x {\n}', "2:10", "unexpected '\"'"),
        ("phase a { exe x; args y;", "1:25", "unexpected the end"),
        ("phase a {\n  strxam x; }", "2:3", "did you mean 'stream'?"),
        ("phasse a {}", "1:1", "did you mean 'phase'?"),
        ("", "1:1", "no phase"),
        ("phase a { exe x }", "1:1", "no args"),
        ("phase a { args x }", "1:1", "no exe"),
        ('phase a { exe x; args "a \'b" }', "1:18", "No closing quotation"),
        ("phase a { exe x; args y\n stream z { format fsta } }", "2:13", "unknown record format 'fsta'"),
        ("phase a { exe x; args y\n stream z in { type sideways } }", "2:2", "one name and one direction"),
        ("phase a { exe x; args y\n file 'none/*' }", "2:2", "none/*: no files there"),
        ("phase a { arch b { exe x; args y }\n arch c { exe x; args z } }", "2:18", "other args"),
        ("phase a { exe x; args y }\nphase a { exe x; args y }", "2:1", "there twice"),
        ("master { bcast-chunk 1M }", "1:10", "did you mean 'bcast-chunk-size'?"),
    ],
)  # fmt: skip
def test_invalid_job_is_refused_with_line_and_column(text: str, place: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as caught:
        values(text, tmp_path)
    assert str(caught.value).startswith(f"job.hsp:{place}: ")
    assert words in str(caught.value)


def test_a_job_of_two_phases_runs(shell: Shell) -> None:
    (shell.work / "job.hsp").write_text(
        """phase first { exe tee2; args "from to"
          stream from { type input; path in.fa; format fasta } stream to { type output; path one.fa } }
        phase second { exe tee2; args "one.fa two.fa"; depends-on first
          stream one.fa { type input; format fasta } stream two.fa { type output } }"""
    )
    done = shell.run("millrace run job.hsp")
    assert done.code == 0, done.shown
    assert (shell.work / "two.fa").read_bytes() == (shell.work / "in.fa").read_bytes()


def test_hsp_blast_job_writes_the_serial_bytes(shell: Shell, data: Path) -> None:
    if not shutil.which("blastp"):
        pytest.skip("missing: blastp")
    take(data / "proteins_db.faa", shell.work / "targets.faa", 200)
    take(data / "proteins_queries.faa", shell.work / "queries.faa", 4)
    (shell.work / "job.hsp").write_text(BLAST)
    assert shell.run("makeblastdb -in targets.faa -dbtype prot -out targets").code == 0
    assert shell.run("blastp -query queries.faa -db targets -outfmt 6 -out serial.tsv").code == 0
    done = shell.run("millrace run job.hsp")
    assert done.code == 0, done.shown
    assert (shell.work / "hits.tsv").read_bytes() == (shell.work / "serial.tsv").read_bytes()
    assert "prefetch-ratio has no effect" in done.err
