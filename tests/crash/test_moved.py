"""A run of a program that Millrace does not know goes on in another folder, if the folder does not show in its output."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import harness
import pytest
from crash_site import TOOL, Site


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Site, Site]:
    """Two folders with the same input, and one tool that both run; results are checked as by default."""
    monkeypatch.delenv("MILLRACE_RUN_VERIFY")
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        site = Site(tmp_path / name)
        site.options = (*site.options, "--run-dir", str(tmp_path / "state"))
        made.append(site)
    return made[0], made[1]


def share_tool(sites: tuple[Site, Site], script: str = TOOL) -> None:
    """Give both folders the very same file."""
    for site in sites:
        (site.folder / "tool").unlink(missing_ok=True)
    (sites[0].folder.parent / "tool").write_text(script)
    (sites[0].folder.parent / "tool").chmod(0o755)
    for site in sites:
        (site.folder / "tool").symlink_to("../tool")


def kill_halfway(site: Site, *more: str, n_executions: int = 16) -> None:
    process = site.start(*more, HOLD=str(n_executions))
    site.wait_for_work(process, n_executions)
    process.kill()
    process.communicate()
    assert not harness.left_over(str(site.folder))


def test_unknown_program_goes_on_elsewhere(sites: tuple[Site, Site]) -> None:
    share_tool(sites)
    one, two = sites
    kill_halfway(one)
    shutil.rmtree(one.folder)
    code, said = two.run()
    assert code == 0, said
    assert f"a run that was begun in {one.folder} goes on here" in said and "all bytes equal" in said
    assert two.output.read_bytes() == two.expected


def test_second_folder_waits_for_no_running_run(sites: tuple[Site, Site]) -> None:
    share_tool(sites)
    one, two = sites
    process = one.start(HOLD="5")
    one.wait_for_work(process, 5)
    code, said = two.run()
    assert code == 2 and "another millrace" in said and "is running this now" in said, said
    one.release()
    assert process.communicate(timeout=harness.LONGEST_SECONDS) and process.returncode == 0
    assert one.output.read_bytes() == one.expected


def test_program_that_shows_its_folder_is_found(sites: tuple[Site, Site]) -> None:
    share_tool(sites, TOOL.replace("sed ", 'sed -e "s|$| $PWD|" -e ', 1))
    one, two = sites
    kill_halfway(one)
    code, said = two.run()
    assert code == 5 and "verification failed" in said, said
    assert not two.output.exists()
    code, said = two.run("--fresh")
    assert code == 0 and str(two.folder) in two.output.read_text(), said


def test_unknown_program_unchecked_is_refused_elsewhere(sites: tuple[Site, Site]) -> None:
    share_tool(sites)
    one, two = sites
    kill_halfway(one, "--verify", "0", n_executions=6)
    executions = two.executions
    code, said = two.run("--verify", "0")
    assert code == 2 and f"folder: was {one.folder}, now {two.folder} (tool is not known" in said, said
    assert two.executions == executions
    assert one.run("--verify", "0")[0] == 0 and one.output.read_bytes() == one.expected


def test_other_names_of_an_unknown_program_are_refused(sites: tuple[Site, Site]) -> None:
    share_tool(sites)
    one, two = sites
    kill_halfway(one)
    (two.folder / "in.fa").rename(two.folder / "other.fa")
    typed = [word.replace("in.fa", "other.fa") for word in two.command()]
    two.command = lambda *more: [*typed[:4], *more, *typed[4:]]  # type: ignore[method-assign]
    code, said = two.run()
    assert code == 2 and "(tool may show it in its output)" in said, said


@pytest.mark.parametrize("content", ["same", "other"])
def test_store_finds_a_run_by_what_it_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    """A link to the same input goes on; another input is another run, beside the first."""
    store = tmp_path / "store"
    monkeypatch.setenv("MILLRACE_STORE", str(store))
    monkeypatch.delenv("MILLRACE_RUN_VERIFY")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = Site(tmp_path / "one"), Site(tmp_path / "two")
    share_tool((one, two))
    kill_halfway(one)
    assert len(list(store.glob("*.millrace"))) == 1
    if content == "other":
        two.write_input("C")
    code, said = two.run()
    assert code == 0, said
    assert ("goes on here" in said) == (content == "same")
    assert len(list(store.glob("*.millrace"))) == (content == "other"), "a run that is done leaves none there"
    if content == "same":
        assert two.output.read_bytes() == two.expected


def test_run_in_the_store_that_all_may_write_is_refused(site: Site) -> None:
    site.options = (*site.options, "--store", "../store")
    kill_halfway(site, n_executions=6)
    [run_dir] = (site.folder.parent / "store").glob("*.millrace")
    run_dir.chmod(0o777)
    code, said = site.run()
    assert code == 2 and f"{run_dir.name}: can be written by every user" in said, said
    run_dir.chmod(0o700)
    assert site.run()[0] == 0 and site.output.read_bytes() == site.expected


def test_pipe_is_not_looked_up_in_the_store(site: Site) -> None:
    site.options = (*site.options, "--store", "../store")
    command = site.command()
    words = [*command[: command.index("--input")], "--format", "fasta", "--", "cat"]
    with (site.folder / "in.fa").open() as source:
        feeder = subprocess.Popen(["cat"], stdin=source, stdout=subprocess.PIPE)
        done = subprocess.run(words, cwd=site.folder, stdin=feeder.stdout, capture_output=True, check=False)
        assert feeder.stdout
        feeder.stdout.close()
        feeder.wait()
    assert done.returncode == 0 and b"what comes from a pipe is not known" in done.stderr, done.stderr
    assert done.stdout == (site.folder / "in.fa").read_bytes()


def test_atomic_output_is_whole_or_not_there(site: Site) -> None:
    process = site.start("--atomic-output", HOLD="5")
    site.wait_for_work(process, 5)
    part = site.folder / ".out.fa.millrace-part"
    assert harness.wait_until(lambda: harness.size(part) > 0, process)
    assert not site.output.exists()
    process.kill()
    process.communicate()
    assert not site.output.exists()
    code, said = site.run("--atomic-output")
    assert code == 0, said
    assert site.output.read_bytes() == site.expected
    assert not part.exists()


@pytest.mark.parametrize(
    "marks",
    [{"MAKELEVEL": "1"}, {"NXF_TASK_WORKDIR": "/w"}, {"GALAXY_SLOTS": "1"}, {"GOTO_NUM_THREADS": "1"}],
    ids=["make", "Nextflow", "Galaxy", "Snakemake"],
)
def test_outputs_in_a_pipeline_are_atomic(site: Site, marks: dict[str, str]) -> None:
    (site.folder / ".snakemake").mkdir()
    site.output.write_text("of an earlier run")
    process = site.start(HOLD="5", **marks)
    site.wait_for_work(process, 5)
    part = site.folder / ".out.fa.millrace-part"
    assert harness.wait_until(lambda: harness.size(part) > 0, process)
    assert site.output.read_text() == "of an earlier run"
    site.release()
    process.communicate()
    assert site.output.read_bytes() == site.expected and not part.exists()


def test_grace_ends_tools_that_go_on(site: Site) -> None:
    """Tools that wait for ever do not keep the run from its end; what was done stays."""
    process = site.start("--grace", "1", HOLD="5")
    site.wait_for_work(process, 6)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=harness.LONGEST_SECONDS)
    assert process.returncode == 143, said
    executions = site.executions
    assert site.run(GO=os.devnull)[0] == 0
    assert site.executions - executions == 6, "what was done before the signal is not done again"
    assert site.output.read_bytes() == site.expected
