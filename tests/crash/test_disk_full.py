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


def test_full_disk_stops_the_run_and_it_resumes(tiny: Path) -> None:
    site = Site(tiny, n=2000)
    site.options = ("--slots", "2", "--batch", "200")
    ballast = tiny / "ballast"
    ballast.write_bytes(bytes(750_000))
    code, said = site.run()
    assert code == 1, said
    assert "no space left" in said and str(tiny) in said and "resumes" in said
    assert not harness.left_over(str(site.folder))
    assert "quarantine" not in said
    done = site.executions
    ballast.unlink()
    code, said = site.run()
    assert code == 0, said
    assert site.output.read_bytes() == site.expected
    assert site.executions < done + 10, "what was done before was kept"


def test_full_disk_message_has_the_bytes_needed(tiny: Path) -> None:
    site = Site(tiny, n=2000)
    site.options = ("--slots", "1", "--batch", "2000")
    (tiny / "ballast").write_bytes(bytes(800_000))
    code, said = site.run()
    assert code == 1, said
    assert f"journal.mrj: No space left on device (os error 28) ({len(site.expected)} bytes are needed" in said


#: In front of a command: a /dev/shm of its own with 300 MB.
SMALL = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=300m tmpfs /dev/shm && exec "$@"', "sh")


def need_small_memory() -> None:
    if os.geteuid() or subprocess.run(["unshare", "-m", "true"]).returncode:
        pytest.skip("not allowed to mount a small /dev/shm")


FILL = "head -c 400M /dev/zero > fill"


@pytest.mark.parametrize(
    ("fill", "words"),
    [
        (f"{FILL} || exit 1", "the work directory is full"),
        (f"{FILL} 2> /dev/null || true", "the work directory is full"),
        (f'{FILL} 2> /dev/null || true; watched $PPID "$LOG.rests"; rm fill', "the work directory was full, or nearly"),
    ],
    ids=["the tool fails", "the tool does not notice", "for a moment"],
)
def test_full_work_directory_quarantines_no_record(site: Site, fill: str, words: str) -> None:
    need_small_memory()
    tool = site.folder / "tool"
    tool.write_text(
        f"#!/bin/bash\necho $$ >> $LOG\n{harness.WATCHED}\n"
        f'[ -e "$LOG.space" ] || ! grep -q "record20$" "$1" || {{ {fill}; }}\n'
        'sed \'s/^>/>seen /\' "$1" > "$2" || true\n'
    )
    # In one slot: of two, the other may be heard first, when the folder of the one that filled it is gone.
    code, said = site.run("--slots", "1", wrap=SMALL)
    assert code == 1, said
    assert "no space left" in said and "/dev/shm/millrace-" in said and words in said, said
    assert not (site.run_dir / "quarantine").exists()
    Path(f"{site.log}.space").touch()
    code, said = site.run(wrap=SMALL)
    assert code == 0, said
    assert site.output.read_bytes() == site.expected


def test_tool_stderr_beyond_the_disk_is_shortened(site: Site) -> None:
    need_small_memory()
    wait = "while [ $(stat -L -c %b /dev/fd/2) -gt 4000 ]; do sleep 0.01; done"
    (site.folder / "tool").write_text(
        "#!/bin/sh\necho first words >&2\n"
        f'for k in $(seq 20); do head -c 20M /dev/zero | tr "\\0" "\\n" >&2; {wait}; done\n'
        'echo last words >&2\nsed \'s/^>/>seen /\' "$1" > "$2"\n'
    )
    site.options = ("--slots", "1", "--batch", "40")
    code, said = site.run(wrap=SMALL)
    assert code == 0, said
    assert "tool: first words" in said and "bytes left out]" in said and "tool: last words" in said
    assert site.output.read_bytes() == site.expected
