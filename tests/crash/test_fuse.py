"""Everything on a real filesystem in user space, of which each mount has a ``flock`` of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

import harness
import pytest
from crash_site import Site

#: Mounts the folder over itself where nobody else sees it, with processes that nobody else sees: a machine that is switched
#: off when the command ends, or is killed.
MACHINE = (
    "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
    'env -i PATH="$PATH" bindfs "$PWD" "$PWD" && cd "$PWD" && "$@"', "sh",
)  # fmt: skip


@pytest.fixture
def on_fuse(site: Site) -> Site:
    """All folders of the run are on the mount."""
    if not shutil.which("bindfs"):
        pytest.skip("bindfs is not installed")
    tried = subprocess.run([*MACHINE, "stat", "-f", "-c", "%T", "."], cwd=site.folder, capture_output=True, text=True)
    if tried.returncode or not tried.stdout.startswith("fuse"):
        pytest.skip(f"no filesystem in user space can be mounted: {tried.stderr.strip()}")
    (site.folder / "w").mkdir()
    site.options = (*site.options, "--work-dir", "w")
    return site


def is_tidy(site: Site) -> bool:
    """Whether a run that is done has left nothing."""
    return not [*site.folder.glob("*out.fa.*"), *site.folder.glob(".fuse*"), *(site.folder / "w").iterdir()]


def test_a_run_is_exact_and_leaves_nothing(on_fuse: Site) -> None:
    code, said = on_fuse.run("--verify", "1", wrap=MACHINE)
    assert code == 0, said
    assert on_fuse.output.read_bytes() == on_fuse.expected
    assert is_tidy(on_fuse)


def test_failing_run_reports_its_reason(on_fuse: Site) -> None:
    code, said = on_fuse.run("--on-failure", "stop", wrap=MACHINE, BAD="record")
    assert code == 4 and "bad record" in said, said
    assert is_tidy(on_fuse)


def test_run_of_a_powered_off_machine_resumes_in_a_new_mount(on_fuse: Site) -> None:
    process = on_fuse.start(wrap=MACHINE, HOLD="5")
    assert harness.wait_until(lambda: on_fuse.executions >= 5)
    process.kill()
    process.communicate()
    begun = on_fuse.executions
    lock = on_fuse.run_dir / "lock"
    os.utime(lock, (time.time() - 100, time.time() - 100))  # it has been silent for long
    code, said = on_fuse.run(wrap=MACHINE)
    assert code == 0, said
    assert begun < 10 <= on_fuse.executions <= 12
    assert on_fuse.output.read_bytes() == on_fuse.expected
    assert is_tidy(on_fuse)


def test_second_machine_is_refused(on_fuse: Site) -> None:
    process = on_fuse.start(wrap=MACHINE, HOLD="1")
    assert harness.wait_until(lambda: on_fuse.executions >= 2)
    code, said = on_fuse.run(wrap=MACHINE)
    assert process.poll() is None, "it was to last longer"
    assert code == 2 and "is running this now" in said, said
    process.kill()
    process.communicate()


def test_pack_that_is_written_leaves_no_folder(on_fuse: Site) -> None:
    python, *words = on_fuse.command("--pack-to", "r.mrp")
    on_fuse.command = lambda *_: [python, *words]  # type: ignore[method-assign]
    code, said = on_fuse.run(wrap=MACHINE)
    assert code == 0, said
    assert (on_fuse.folder / "r.mrp").exists()
    assert [path.name for path in on_fuse.folder.glob(".*")] == []
