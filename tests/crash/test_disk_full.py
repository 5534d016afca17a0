"""A full disk stops a run in order; after space is made the same command goes on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import harness
import pytest
from crash_site import Site


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 1 MB; needs the right to mount."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]).returncode:
        pytest.skip("not allowed to mount a small filesystem")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_no_space_for_results_stops_and_the_same_command_goes_on(tiny: Path) -> None:
    site = Site(tiny, n=2000)
    site.options = ("--slots", "2", "--batch", "200")
    ballast = tiny / "ballast"
    ballast.write_bytes(bytes(750_000))
    code, said = site.run()
    assert code == 1, said
    assert "no space left" in said and str(tiny) in said and "resumes" in said
    assert not harness.left_over("site")
    assert "quarantine" not in said
    done = site.executions
    ballast.unlink()
    code, said = site.run()
    assert code == 0, said
    assert site.output.read_bytes() == site.expected
    assert site.executions < done + 10, "what was done before was kept"


def test_the_message_says_how_much_the_next_result_needs(tiny: Path) -> None:
    site = Site(tiny, n=2000)
    site.options = ("--slots", "1", "--batch", "2000")
    (tiny / "ballast").write_bytes(bytes(800_000))
    code, said = site.run()
    assert code == 1, said
    assert f"journal.mrj: No space left on device (os error 28) ({len(site.expected)} bytes are needed" in said


@pytest.mark.parametrize("notices", [True, False], ids=["the tool fails", "the tool does not notice"])
def test_a_full_work_directory_is_nobodys_bad_record(site: Site, notices: bool) -> None:
    if os.geteuid() or subprocess.run(["unshare", "-m", "true"]).returncode:
        pytest.skip("not allowed to mount a small /dev/shm")
    tool = site.folder / "tool"
    fill = "head -c 400M /dev/zero > fill" + ("" if notices else " 2> /dev/null || true")
    tool.write_text(
        "#!/bin/sh\necho $$ >> $LOG\n"
        f'[ -e "$LOG.space" ] || ! grep -q "record20$" "$1" || {fill} || exit 1\n'
        'sed \'s/^>/>seen /\' "$1" > "$2" || true\n'
    )
    small = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=300m tmpfs /dev/shm && exec "$@"', "sh")
    code, said = site.run(wrap=small)
    assert code == 1, said
    assert "no space left" in said and "/dev/shm/millrace-" in said and "the work directory is full" in said
    assert not (site.run_dir / "quarantine").exists()
    (site.folder / "log.space").touch()
    code, said = site.run(wrap=small)
    assert code == 0, said
    assert site.output.read_bytes() == site.expected
