"""``millrace report --ro-crate``: a folder that the public programs for crates read, and that can be checked again."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from public_tools import install_packages
from shell import Shell


def make_crate(kept: Shell) -> Path:
    kept.run("millrace verify out.fa --sample 2")
    done = kept.run("millrace report out.fa --ro-crate crate")
    assert (done.code, done.out) == (0, "crate\n"), done.shown
    return kept.work / "crate"


def test_crate_describes_the_run(kept: Shell) -> None:
    crate = make_crate(kept)
    graph = {each["@id"]: each for each in json.loads((crate / "ro-crate-metadata.json").read_text())["@graph"]}
    assert len(graph) == len({*graph})
    (action,) = (each for each in graph.values() if each["@type"] == "CreateAction")
    assert action["description"] == "mask q.fa out.fa"
    assert action["startTime"] <= action["endTime"]
    for entity, path in (
        (action["object"], kept.work / "q.fa"),
        (action["result"][0], kept.work / "out.fa"),
        (action["instrument"], kept.root / "bin/mask"),
    ):
        assert graph[entity["@id"]]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    checks = [each["description"] for each in graph.values() if each["@type"] == "CheckAction"]
    assert checks[-1].startswith("2 batches of 20 records, drawn at random, computed again later")
    assert "in the run, cut elsewhere" in checks[0]
    root = graph["./"]
    for each in root["hasPart"]:
        assert "://" in each["@id"] or (crate / each["@id"]).exists()
    assert {each["@id"] for each in (*root["hasPart"], *root["mentions"])} <= graph.keys()


def test_crate_is_checked_again_without_the_run(kept: Shell, run_dir: Path) -> None:
    crate = make_crate(kept)
    shutil.rmtree(run_dir)
    (kept.work / "out.fa").unlink()
    done = kept.run("millrace verify crate --sample 2")
    assert done.code == 0 and "2 of 6 batches" in done.out, done.shown
    output = crate / "outputs" / "1-out.fa"
    output.write_bytes(output.read_bytes().replace(b">r7\n", b">r8\n"))
    done = kept.run("millrace verify crate")
    assert done.code == 5 and "1-out.fa: is not what the run has written" in done.err, done.shown


def test_report_of_two_kinds_at_once_is_refused(kept: Shell) -> None:
    done = kept.run("millrace report out.fa --ro-crate crate --multiqc tables")
    assert done.code == 2 and "one at a time" in done.err and not (kept.work / "crate").exists(), done.shown


def test_crate_at_a_name_that_is_taken_is_refused(kept: Shell) -> None:
    (kept.work / "taken").mkdir()
    (kept.work / "taken" / "file").touch()
    done = kept.run("millrace report out.fa --ro-crate taken")
    assert done.code == 2 and "is there already" in done.err, done.shown
    assert [path.name for path in (kept.work / "taken").iterdir()] == ["file"]


def test_crate_of_changed_input_is_refused(kept: Shell) -> None:
    kept.run("echo '>r' >> q.fa")
    done = kept.run("millrace report out.fa --ro-crate crate")
    assert done.code == 5 and "input q.fa: was " in done.err, done.shown
    assert not (kept.work / "crate").exists() and not list(kept.work.glob(".crate*"))


@pytest.mark.slow
def test_crate_passes_the_public_validator(kept: Shell, session_folder: Path) -> None:
    crate = make_crate(kept)
    script = Path(__file__).parents[1] / "support" / "crate_validation.py"
    python = install_packages(session_folder, "roc-validator", "rocrate") / "python"
    told = subprocess.run([python, script, crate], capture_output=True, text=True, check=False, timeout=300)
    assert told.stdout.splitlines()[-1:] == ["valid"], f"{told.stdout}\n{told.stderr}"
    # The validator finds fault with a crate that lacks what the profile requires.
    metadata = crate / "ro-crate-metadata.json"
    metadata.write_text(metadata.read_text().replace('"instrument"', '"about"'))
    told = subprocess.run([python, script, crate], capture_output=True, text=True, check=False, timeout=300)
    assert told.stdout.splitlines()[-1:] == ["not valid"], f"{told.stdout}\n{told.stderr}"
