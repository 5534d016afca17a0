"""A ``.ncbirc`` that may not be read is passed over, as BLAST does."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

from exact_cases import MILLRACE, records
from shell import PLAIN
from tool_batches import need


def test_unreadable_ncbirc_does_not_refuse_a_run(bench_of: Path, tmp_path: Path) -> None:
    need("blastp")
    for file in bench_of.glob("prot.*"):
        shutil.copy(file, tmp_path)
    settings = tmp_path / ".ncbirc"
    settings.write_text("[BLAST]\nBLASTDB=/nowhere\n")
    settings.chmod(0)
    (tmp_path / "q.faa").write_bytes(b"".join(records(tmp_path / "prot.faa")[:3]))
    search = "blastp -query q.faa -db prot -evalue 1e-3 -outfmt 6"
    alone, through = (
        subprocess.run(shlex.split(f"{PLAIN} {line}"), cwd=tmp_path, capture_output=True, check=False)
        for line in (search, f"{shlex.join(MILLRACE)} run -q --progress none -- {search}")
    )
    assert alone.stdout
    assert (through.returncode, through.stdout) == (0, alone.stdout), through.stderr
