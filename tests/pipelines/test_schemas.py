"""The schemas in docs/schemas are those of the types, and real files are valid by them."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from shell import Shell

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

REPO = Path(__file__).resolve().parents[2]
SCHEMAS = REPO / "docs" / "schemas"


def read_schema(name: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # takes as long as many a test

    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def read_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_schemas_are_those_of_the_types(tmp_path: Path) -> None:
    subprocess.run([sys.executable, REPO / "scripts" / "make-schemas", tmp_path], check=True)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in SCHEMAS.iterdir()}, "run scripts/make-schemas"


def test_lines_of_a_real_run_are_valid(shell: Shell) -> None:
    done = shell.run("MILLRACE_RUN_PROGRESS=json millrace run --run-dir k --profile-io --format fasta -- bad2 < in.fa")
    assert done.code == 3, done.shown
    events, progress = read_schema("events"), read_schema("progress")
    logged, shown = read_lines((shell.work / "k" / "events.jsonl").read_text()), read_lines(done.err)
    assert {"run", "task", "quarantine", "end"} <= {line["event"] for line in logged}
    assert {line["event"] for line in shown} == {"progress", "message"}
    for line in logged:
        events.validate(line)
    for line in shown:
        progress.validate(line)
    assert not events.is_valid({"event": "task", "t": "soon"})
    assert not progress.is_valid({"event": "progress"})


@pytest.mark.parametrize(
    "path", sorted(REPO.glob("examples/**/job*.toml")), ids=lambda path: str(path.relative_to(REPO))
)
def test_job_files_of_the_examples_are_valid(path: Path) -> None:
    read_schema("job").validate(tomllib.loads(path.read_text()))


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (
            'command = "blastp -query q.faa"\nbatch = 100\nok-status = 1\n[[replica]]\npath = "/nr"\nat = ["/disk/nr"]',
            True,
        ),
        ('[phase.a]\ncommand = ["x"]\nafter = "b"\n[phase.b]\nfilter = "cat"', True),
        ('command = "x"\nsolts = 3', False),
        ("slots = 0", False),
        ('[phase.a]\ncommand = "x"\nnotify = "y"', False),
        ('input = "a"\n[phase.a]\ncommand = "x"', False),
    ],
)
def test_job_schema_accepts_what_the_program_accepts(text: str, valid: bool) -> None:
    assert read_schema("job").is_valid(tomllib.loads(text)) == valid
