"""A run that one release began and another finds: refused by name, left as it is, and resumed by the one that began it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from parameter_choice import some
from shell import Shell

from millrace import __version__
from millrace.rundir.checksummed_json import encode_checksummed
from millrace.rundir.paths import VERSION, RunDir, RunManifest

LINE = (
    "millrace run --slots 1 --batch 1 --sync 0 --verify 0 --on-failure stop --input in.fa --output o -- until in.fa o"
)


def manifest(**changes: object) -> Callable[[Path], None]:
    def change(run_dir: Path) -> None:
        found: RunManifest = RunDir(run_dir).read_manifest()
        (run_dir / "job.json").write_bytes(encode_checksummed(msgspec.structs.replace(found, **changes)))

    return change


def journal(version: int) -> Callable[[Path], None]:
    def change(run_dir: Path) -> None:
        content = bytearray((run_dir / "journal.mrj").read_bytes())
        content[8:12] = version.to_bytes(4, "little")
        (run_dir / "journal.mrj").write_bytes(content)

    return change


#: What the run directory of another release is like: exit code, what is said, and what to do.
OTHERS = {
    "older layout": (manifest(version=VERSION - 1), 5, f"job.json: version {VERSION - 1}, this release reads version {VERSION}", "use the release that began the run"),
    "newer layout": (manifest(version=VERSION + 1), 5, f"job.json: version {VERSION + 1}, this release reads version {VERSION}", "use the release that began the run"),
    "older release": (manifest(millrace="0.0.9"), 2, f"millrace: was 0.0.9, now {__version__}", "finish it with millrace 0.0.9"),
    "newer release": (manifest(millrace="9.1.0"), 2, f"millrace: was 9.1.0, now {__version__}", "finish it with millrace 9.1.0"),
    "older journal": (journal(0), 5, "journal.mrj: journal version 0, this release reads version 1", "use the release that began the run"),
    "newer journal": (journal(2), 5, "journal.mrj: journal version 2, this release reads version 1", "use the release that began the run"),
}  # fmt: skip


@pytest.mark.parametrize("name", some(OTHERS, "older release", "older journal", "newer layout"))
def test_run_of_another_release_is_refused_and_kept(shell: Shell, name: str) -> None:
    """The message names the release, which can still resume the run."""
    change, code, problem, help_ = OTHERS[name]
    shell.tool("until", 'case $(cat "$1") in *r3*) [ -e "$MARK/ready" ] || exit 7;; esac; cat "$1" > "$2"')
    stopped = shell.run(LINE)
    assert stopped.code == 1, stopped.shown
    run_dir = shell.work / "o.millrace"
    files = {file: file.read_bytes() for file in (run_dir / "job.json", run_dir / "journal.mrj")}
    change(run_dir)
    theirs = {file: file.read_bytes() for file in files}
    for _ in range(2):
        refused = shell.run(LINE)
        assert refused.code == code and problem in refused.err and "--fresh" in refused.err, refused.shown
        assert help_ in refused.err and {file: file.read_bytes() for file in files} == theirs
    for file, content in files.items():
        file.write_bytes(content)
    (shell.root / "ready").touch()
    ended = shell.run(f"{LINE}; cmp in.fa o")
    assert ended.code == 0 and "3 records, 2 of them by earlier runs" in ended.err, ended.shown


#: A run directory of each release, stopped at the third record of the test's input.
RELEASES = sorted((Path(__file__).parent / "releases").iterdir())


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_kept_runs_of_each_release_are_read_and_resumed(shell: Shell, release: Path) -> None:
    """Or this release says that it reads other versions, which has to stand in the changelog."""
    kept = shell.work / "kept"
    shutil.copytree(release, kept)
    (kept / "lock").touch()
    done = ">r1\nMKV\n>r2\nMAA\n"
    assert shell.run("millrace gather kept --stream o").out == done
    said = shell.run("millrace status kept").out
    assert "records done: 2 " in said and "why:          record 3 (r3) failed: exit status 7\n" in said
    assert '"records_done": 2' in shell.run("millrace report --json kept").out
    # Its results count in a run of the same work here.
    shell.tool(
        "until",
        'case $(cat "$1") in *r3*) [ -e "$MARK/ready" ] || exit 7;; *) [ ! -e "$MARK/ready" ] || exit 8;; esac; cat "$1" > "$2"',
    )
    assert shell.run(LINE).code == 1
    run_dir, theirs = shell.work / "o.millrace", RunDir(kept).read_manifest()
    manifest(run_id=theirs.run_id)(run_dir)
    shutil.copyfile(kept / "journal.mrj", run_dir / "journal.mrj")
    (shell.root / "ready").touch()
    ended = shell.run(f"{LINE}; cmp in.fa o")
    assert ended.code == 0 and "3 records, 2 of them by earlier runs" in ended.err, ended.shown
