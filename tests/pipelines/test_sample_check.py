"""``millrace verify``: what is as the run left it passes, and each kind of change is found, with its place."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest
from shell import Shell

from millrace.report.event_log import load_runs
from millrace.report.events import read_events


def digest_folder(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


def test_verify_finished_run_finds_it_equal(kept: Shell, run_dir: Path) -> None:
    before = digest_folder(run_dir)
    done = kept.run("millrace verify out.fa --sample 3")
    assert done.code == 0, done.shown
    assert "3 of 6 batches computed again, 30 records: all bytes equal" in done.out
    assert re.search(r"out\.fa: [\d,]+ bytes, as the run has written them", done.out)
    after = digest_folder(run_dir)
    assert {name for name in before if before[name] != after[name]} <= {
        "events.jsonl"
    } and before.keys() == after.keys()
    (check,) = load_runs(read_events(run_dir / "events.jsonl"))[-1].checks
    assert (check.batches, check.records) == (3, 30)
    assert sorted(path.name for path in kept.work.iterdir()) == ["in.fa", "out.fa", "out.fa.millrace", "q.fa"]


#: (shell line, what the check says of it), in one folder after the other.
CHANGES = (
    ("cp out.fa whole; sed -i 's/^>r7$/>r9/' out.fa", r"out\.fa: is not what the run has written: first at byte \d+, in line 15"),
    ("cp whole out.fa; truncate -s -3 out.fa", r"out\.fa: is not what .*in line 120 \(it ends there\)"),
    ("cp whole out.fa; echo >> ../bin/mask", r"program \S*bin/mask: was .* now "),
    ("rm ../bin/mask", r"program \S*bin/mask: is gone"),
)  # fmt: skip


def test_verify_changed_file_is_named(kept: Shell) -> None:
    for change, found in CHANGES:
        kept.run(change)
        done = kept.run("millrace verify out.fa --sample 0")
        assert done.code == 5 and re.search(found, done.err), done.shown


def test_verify_changed_input_is_named(kept: Shell) -> None:
    kept.run("sed -i 's/^>r7$/>r9/' q.fa")
    done = kept.run("millrace verify out.fa")
    assert done.code == 5 and re.search(r"input q\.fa: was \d+ bytes, \w+, now \d+ bytes, \w+", done.err), done.shown


def test_verify_changed_database_is_named(kept: Shell) -> None:
    (kept.work / "words").write_text("x\n")
    kept.tool("with", 'cat "$2" > /dev/null; cat "$1"')
    kept.run("millrace run -q --keep-run-dir --run-dir k --shared words --input q.fa -- with q.fa words > o")
    (kept.work / "words").write_text("xy\n")
    done = kept.run("millrace verify k")
    assert done.code == 5 and re.search(r"database \S*words: was 2 bytes", done.err), done.shown


def test_verify_tool_with_other_bytes_is_found(kept: Shell) -> None:
    """The program is the same file, and what it reads of the environment is not."""
    kept.tool("letter", 'sed "s/M/${LETTER:-m}/" "$1" > "$2"')
    kept.run("millrace run -q --keep-run-dir --batch 10 --input q.fa --output o3 -- letter q.fa o3")
    done = kept.run("LETTER=Z millrace verify o3 --sample 6")
    assert done.code == 5 and "computed again, the tool writes other bytes" in done.err, done.shown
    assert "LETTER" in done.err


def test_verify_damaged_journal_is_found(kept: Shell, run_dir: Path) -> None:
    journal = bytearray((run_dir / "journal.mrj").read_bytes())
    journal[len(journal) // 2] ^= 1
    (run_dir / "journal.mrj").write_bytes(journal)
    done = kept.run("millrace verify out.fa")
    assert done.code == 5 and "journal.mrj: byte " in done.err, done.shown


def test_verify_input_on_standard_input_is_asked_for(kept: Shell) -> None:
    kept.run("millrace run -q --keep-run-dir --run-dir k --format fasta -- copy < q.fa > o")
    assert "millrace verify RUN < INPUT" in kept.run("millrace verify k").err
    done = kept.run("millrace verify k --sample 2 < q.fa")
    assert done.code == 0, done.shown
    done = kept.run("sed s/^.r5$/x/ q.fa | millrace verify k --sample 2")
    assert done.code == 5, done.shown


def test_verify_files_of_records_are_compared(kept: Shell) -> None:
    (kept.work / "many").mkdir()
    for number in range(6):
        (kept.work / "many" / f"f{number}.fa").write_text(f">r\n{'M' * (number + 1)}\n")
    done = kept.run(
        "millrace run -q --keep-run-dir --run-dir k --input many/ --output 'made/{stem}.txt' -- mask many/ 'made/{stem}.txt'"
    )
    assert done.code == 0, done.shown
    done = kept.run("millrace verify k --sample 4")
    assert done.code == 0 and "4 of 6 batches" in done.out, done.shown


def test_verify_run_directory_that_is_gone_is_refused(kept: Shell) -> None:
    assert "no run here" in kept.run("millrace verify nothing").err
    kept.run(f"export XDG_STATE_HOME={kept.root}/state; millrace run -q --input in.fa --output o9 -- mask in.fa o9")
    done = kept.run(f"export XDG_STATE_HOME={kept.root}/state; millrace verify o9")
    assert done.code == 2 and "--keep-run-dir keeps it" in done.err, done.shown


def test_kept_run_in_a_store_is_found_by_its_output(kept: Shell) -> None:
    """The store is that of the option, the environment or ``millrace.toml``."""
    line = "millrace run -q --keep-run-dir --store ../st --slots 2 --input q.fa --output {out} --batch {n} -- mask q.fa {out}"
    assert kept.run(line.format(out="new.fa", n=30)).code == 0
    missing = kept.run("millrace status new.fa")
    assert missing.code == 2 and "of a run in a store, name this by --store" in missing.err, missing.shown
    assert kept.run(line.format(out="other.fa", n=20)).code == 0
    (kept.root / "config").mkdir()
    (kept.root / "config" / "millrace.toml").write_text(f'store = "{kept.root}/st"\n')
    done = kept.run(f"XDG_CONFIG_HOME={kept.root}/config millrace verify new.fa")
    assert done.code == 0 and "2 of 2 batches computed again, 60 records" in done.out, done.shown
    assert "done" in kept.run("MILLRACE_STORE=../st millrace status new.fa").out
    assert "It has ended" in kept.run("millrace why --store ../st new.fa").out
    assert kept.run("millrace gather --store ../st new.fa").out == (kept.work / "new.fa").read_text()
    done = kept.run(f"cd /; millrace report --store {kept.root}/st {kept.work}/new.fa.millrace --multiqc {kept.work}")
    assert done.code == 0 and (kept.work / "new.fa_mqc.json").exists(), done.shown


def test_verify_run_of_others_is_refused(kept: Shell, run_dir: Path) -> None:
    os.chmod(run_dir, 0o777)
    done = kept.run("millrace verify out.fa")
    assert done.code == 2 and "can be written by every user" in done.err, done.shown


@pytest.mark.slow
def test_verify_known_tools_finds_them_equal(kept: Shell, data: Path) -> None:
    kept.run(
        f"head -120 {data}/proteins_queries.faa > p.faa; makeblastdb -in {data}/proteins_db.faa -dbtype prot -out db"
    )
    for name, command in (
        ("hits.tsv", "blastp -query p.faa -db db -outfmt 6 -out hits.tsv"),
        ("hits.txt", "blastp -query p.faa -db db -outfmt 0 -out hits.txt"),
        ("scan.txt", f"hmmscan --noali -o scan.txt --tblout scan.tbl {data}/profiles.hmm p.faa"),
    ):
        for more in ("", " --fragments 3"):
            kept.run("rm -rf *.millrace")
            done = kept.run(f"millrace run -q --keep-run-dir --slots 2 --batch 11{more} -- {command}")
            assert done.code == 0, done.shown
            done = kept.run(f"millrace verify {name} --sample 3")
            assert done.code == 0 and "all bytes equal" in done.out, done.shown
