"""Whatever goes wrong on one node ends the whole job soon, in order, with a reason; the same command goes on."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import harness
import pytest
from crash_site import TOOL, Site
from mpi_jobs import NO_SILENCE, Mpi, end, ranks, said, with_limits
from parameter_choice import again

from millrace import _core
from millrace.output.output_parts import select_effective_tasks

#: Records and the batches that they make.
N, BATCHES = 60, 15

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)

#: Who is hurt goes the same ways under both MPIs: each is hurt once, and the rest with ``-m slow``.
SLOW = [pytest.param(mpi, victim, marks=pytest.mark.slow) for mpi, victim in (("openmpi", 1), ("mpich", 0))]


def signalled(usual: tuple[signal.Signals, ...]) -> list[Any]:
    """The last of the signals that mostly come so under one MPI, one more under the other; the rest with ``-m slow``."""
    chosen = {("openmpi", usual[-1]), ("mpich", signal.SIGTERM)}
    return [
        pytest.param(*each, marks=[] if each in chosen else pytest.mark.slow)
        for each in product(("openmpi", "mpich"), SIGNALS)
    ]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, n=N)


def words(*more: str) -> list[str]:
    tool = ["./tool", "in.fa", "out.fa"]
    return ["run", "--slots", "1", "--batch", "4", *more, "--input", "in.fa", "--output", "out.fa", "--", *tool]


def whole(mpi: Mpi, n: int, site: Site, *more: str, **environ: str) -> tuple[int, str]:
    return mpi.run(n, words(*more), site.folder, LOG=str(site.log), **environ)


class Job:
    """A job that has begun to work, to be hurt: each rank has a tool that waits for `goes_on`, its last one."""

    def __init__(
        self, mpi: Mpi, n: int, site: Site, executions: int = 6, options: tuple[str, ...] = (), **environ: str
    ) -> None:
        self.site, self.mark = site, f"{site.folder.name}-{os.getpid()}"
        environ = {"HOLD": str(executions - n + 1), **environ}
        self.process = mpi.start(n, words(*options), site.folder, self.mark, LOG=str(site.log), **environ)
        try:
            harness.wait_until(lambda: site.executions >= executions, self.process)
            assert site.executions >= executions, said(site.folder)
            self.ranks = ranks(self.mark)
            assert sorted(self.ranks) == list(range(n))
        except BaseException:
            end(self.process, self.mark)
            raise

    def freeze_tool(self, rank: int) -> None:
        """Let a tool of a rank stand still."""
        assert harness.wait_until(lambda: bool(harness.tools(self.ranks[rank])), self.process)
        os.kill(harness.tools(self.ranks[rank])[0], signal.SIGSTOP)

    def says(self, words: str) -> None:
        """Wait for words of the job, or its end without them."""
        harness.wait_until(lambda: words in said(self.site.folder), self.process)
        assert words in said(self.site.folder), said(self.site.folder)

    def goes_on(self) -> None:
        """Let tools go on."""
        self.site.release()

    def ends(self) -> int:
        """The exit code; nothing may be left."""
        try:
            code = self.process.wait(harness.LONGEST_SECONDS)
        finally:
            end(self.process, self.mark)
        assert not harness.left_over(self.mark)
        return code

    def ends_well(self) -> None:
        """As an end without a fault; but the mpirun of Open MPI 5 now and then crashes where a process was lost."""
        code = self.ends()
        assert code in (0, -signal.SIGSEGV), said(self.site.folder)


def resumed(site: Site) -> int:
    """Records that the last start found done."""
    lines = (site.run_dir / "events.jsonl").read_text().splitlines()
    return [json.loads(line)["records_resumed"] for line in lines if '"event":"run"' in line][-1]


def test_input_outside_the_arguments_ignores_standard_input(mpi: Mpi, site: Site) -> None:
    """The launcher gives its first process a pipe, as if something were to come in."""
    (site.folder / "fixed").write_text("#!/bin/sh\nexec ./tool in.fa out.fa\n")
    (site.folder / "fixed").chmod(0o755)
    code, text = mpi.run(2, [*words()[: words().index("--")], "--", "./fixed"], site.folder, LOG=str(site.log))
    assert code == 0, text
    assert site.output.read_bytes() == site.expected


@pytest.mark.parametrize(("mpi", "victim"), [("openmpi", 0), again("mpich", 1), *SLOW], indirect=["mpi"])
def test_killed_process_ends_the_job_and_it_resumes(mpi: Mpi, site: Site, victim: int) -> None:
    job = Job(mpi, 3, site)
    os.kill(job.ranks[victim], signal.SIGKILL)
    assert job.ends() != 0
    assert site.run_dir.exists()
    tasks = [task for path in site.run_dir.glob("*.mrj") for task in _core.scan(str(path), True).tasks]
    done = {record for task in tasks for record in range(task.first, task.last)}
    code, text = whole(mpi, 5, site, "--keep-run-dir")
    assert code == 0, text
    assert site.output.read_bytes() == site.expected
    assert resumed(site) == len(done) > 0, "nothing of it is done again"


def test_local_run_and_mpi_job_resume_each_other(an_mpi: Mpi, site: Site) -> None:
    """The results of four processes are in four journals, and are all used."""
    job = Job(an_mpi, 3, site, executions=5)
    os.kill(job.ranks[2], signal.SIGKILL)
    job.ends()
    before = site.executions
    local = site.start(HOLD=str(before + 4))
    assert harness.wait_until(lambda: site.executions >= before + 5, local)
    local.send_signal(signal.SIGTERM)
    harness.heard(local)
    site.release()
    local.communicate(timeout=harness.LONGEST_SECONDS)
    journals = list(site.run_dir.glob("journal*.mrj"))
    assert len(journals) == 4
    tasks = select_effective_tasks(task for path in journals for task in _core.scan(path, True).tasks)
    committed = sum(task.last - task.first for task in tasks)
    assert committed >= 2 * 4, "of the five that one machine has begun on its two slots, two are done"
    code, text = whole(an_mpi, 2, site, "--keep-run-dir")
    assert code == 0, text
    assert site.output.read_bytes() == site.expected
    assert resumed(site) == committed
    gathered = subprocess.run(
        [*site.command()[:3], "gather", "--stream", "out.fa", "out.fa.millrace"],
        cwd=site.folder,
        capture_output=True,
        check=True,
    )
    assert gathered.stdout == site.expected


@pytest.mark.slow
def test_processes_without_coordinator_end_by_themselves(openmpi: Mpi, site: Site) -> None:
    job = Job(openmpi, 3, site)
    os.kill(job.ranks[0], signal.SIGSTOP)
    try:
        others = [job.ranks[1], job.ranks[2]]
        assert harness.wait_until(lambda: not any(alive(pid) for pid in others))
    finally:
        with suppress(ProcessLookupError):  # mpirun has ended it, as the others are gone
            os.kill(job.ranks[0], signal.SIGKILL)
    job.ends()
    assert whole(openmpi, 2, site)[0] == 0
    assert site.output.read_bytes() == site.expected


def test_frozen_process_is_left_out(openmpi: Mpi, site: Site) -> None:
    job = Job(openmpi, 3, site)
    os.kill(job.ranks[1], signal.SIGSTOP)
    job.says("(rank 1) is lost: no sign of life for 10 s")
    job.goes_on()
    job.ends_well()
    assert site.output.read_bytes() == site.expected
    assert not site.run_dir.exists()


@pytest.mark.slow
def test_frozen_process_at_the_end_is_not_awaited_for_long(an_mpi: Mpi, site: Site) -> None:
    """Another process runs its last task; its writes need not wait for its lease."""
    # Its last task is done by another; what it is to write would have to wait for the end of its lease.
    job = Job(with_limits(an_mpi, site.folder, NO_SILENCE), 3, site, BATCHES, ("--write", "coordinator"))
    os.kill(job.ranks[1], signal.SIGSTOP)
    job.goes_on()
    job.ends_well()
    assert site.output.read_bytes() == site.expected
    assert not site.run_dir.exists()


#: The coordinator lets nobody go before a file is there.
NOBODY_GOES = """
import os, time
from millrace.cluster.membership import JobMembership
leave = JobMembership.leave_job
def late(crew):
    while not os.path.exists("go"):
        time.sleep(0.01)
    leave(crew)
JobMembership.leave_job = late
"""


@pytest.mark.slow
def test_process_frozen_after_its_last_message_delays_nobody(mpi: Mpi, site: Site) -> None:
    held = with_limits(mpi, site.folder, NOBODY_GOES)
    job = Job(held, 3, site, 1, ("--keep-run-dir",), HOLD="", SLEEP="0.2")
    deadline = time.monotonic() + harness.LONGEST_SECONDS
    while not (site.run_dir / "complete.json").exists():  # the others have said goodbye, and wait for leave to go
        assert time.monotonic() < deadline
    os.kill(job.ranks[1], signal.SIGSTOP)
    (site.folder / "go").touch()
    job.ends()
    assert site.output.read_bytes() == site.expected


@pytest.mark.slow
def test_frozen_process_is_ended_where_mpi_tolerates_it(openmpi: Mpi, site: Site) -> None:
    """The coordinator ends it by itself, without MPI_ABORT."""
    tolerant = replace(openmpi, mpirun=(*openmpi.mpirun, "--with-ft", "ulfm"))
    job = Job(tolerant, 3, site)
    os.kill(job.ranks[1], signal.SIGSTOP)
    job.goes_on()
    assert job.ends() == 0, said(site.folder)
    assert site.output.read_bytes() == site.expected
    # It was ended by the coordinator: told to end all, mpirun now and then waits for what is stopped.
    assert "MPI_ABORT" not in said(site.folder)


@pytest.mark.slow
@pytest.mark.parametrize(("mpi", "victim"), [("openmpi", 0), again("mpich", 1), *SLOW], indirect=["mpi"])
def test_process_that_never_starts_mpi_is_not_awaited(mpi: Mpi, site: Site, victim: int) -> None:
    """As two minutes would be long here, the limit is set to two seconds; the processes and their MPI are real."""
    limits = (
        "import os, time\n"
        "from millrace.cluster.transport import mpi_start\n"
        "rank = os.environ.get('OMPI_COMM_WORLD_RANK', os.environ.get('PMI_RANK'))\n"
        f"if rank == '{victim}':\n"
        "    time.sleep(1000)\n"
        # Who would end the job without a word has more time: who speaks may come later than he.
        f"if rank == '{1 if victim == 0 else 0}':\n"
        "    mpi_start.MAX_INIT_SECONDS = 2.0\n"
    )
    code, words_said = whole(with_limits(mpi, site.folder, limits), 4, site)
    assert code
    assert words_said.count("MPI does not start: one of 4 processes has not come for 2.4 s") == 1
    assert whole(mpi, 2, site)[0] == 0
    assert site.output.read_bytes() == site.expected


@pytest.mark.slow
def test_process_late_out_of_mpi_start_is_not_awaited(openmpi: Mpi, site: Site) -> None:
    """All others are then in the first call of all together, which no process can leave alone."""
    limits = (
        "import os\n"
        "from millrace.cluster.transport import mpi_transport, mpi_start\n"
        "if os.environ['OMPI_COMM_WORLD_RANK'] == '1':\n"
        "    mpi_transport.AFTER_INIT_SECONDS = 1000.0\n"
        "if os.environ['OMPI_COMM_WORLD_RANK'] == '0':\n"
        "    mpi_start.MAX_INIT_SECONDS = 5.0\n"
    )
    code, words_said = whole(with_limits(openmpi, site.folder, limits), 3, site)
    assert code
    assert words_said.count("MPI does not start: one of 3 processes has not come for 5.3 s") == 1


@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_task_of_a_frozen_tool_runs_elsewhere(openmpi: Mpi, site: Site, victim: int) -> None:
    job = Job(openmpi, 3, site)
    job.freeze_tool(victim)
    job.goes_on()
    assert job.ends() == 0, said(site.folder)
    assert site.output.read_bytes() == site.expected
    assert not site.run_dir.exists()


def test_killed_process_is_left_out_where_mpi_tolerates_it(openmpi: Mpi, site: Site) -> None:
    tolerant = replace(openmpi, mpirun=(*openmpi.mpirun, "--with-ft", "ulfm"))
    job = Job(tolerant, 4, site)
    os.kill(job.ranks[2], signal.SIGKILL)
    job.says("(rank 2) is lost: its process is gone")
    job.goes_on()
    assert job.ends() == 0, said(site.folder)
    assert site.output.read_bytes() == site.expected


def alive(pid: int) -> bool:
    try:
        return b") Z " not in (Path("/proc") / str(pid) / "stat").read_bytes()
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mpi", "number"),
    signalled((signal.SIGTERM, signal.SIGUSR1)),
    indirect=["mpi"],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_signal_to_one_process_stops_the_job_in_order(mpi: Mpi, site: Site, number: signal.Signals) -> None:
    job = Job(mpi, 3, site)
    os.kill(job.ranks[2], number)
    job.says("no more work is handed out")
    job.goes_on()
    code = job.ends()
    assert code in (130, 143), said(site.folder)
    assert f"stopped by {number.name}" in said(site.folder)
    assert site.executions < BATCHES
    # All that had begun was kept.
    assert sum(len(_core.scan(path, True).tasks) for path in site.run_dir.glob("*.mrj")) == site.executions
    assert whole(mpi, 3, site)[0] == 0
    assert site.output.read_bytes() == site.expected
    assert not site.run_dir.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mpi", "number"),
    signalled((signal.SIGTERM, signal.SIGINT)),
    indirect=["mpi"],
    ids=lambda value: getattr(value, "name", value),
)
def test_signal_to_the_launcher_ends_the_job_and_it_resumes(mpi: Mpi, site: Site, number: signal.Signals) -> None:
    job = Job(mpi, 3, site)
    job.process.send_signal(number)
    # Of those that launchers do not pass on, nothing is heard.
    harness.wait_until(lambda: "no more work" in said(site.folder), job.process)
    job.goes_on()
    assert job.ends() != 0
    assert whole(mpi, 3, site)[0] == 0
    assert site.output.read_bytes() == site.expected


def on_rank(folder: Path, rank: int, preparation: str) -> Callable[[Mpi], Mpi]:
    """Let one rank begin with ``preparation``, a line of shell."""
    script = folder / "wrapped"
    script.write_text(f"""#!/bin/sh
millrace=$1; shift
[ "$OMPI_COMM_WORLD_RANK$PMI_RANK" != {rank} ] || {preparation}
exec "$millrace" "$@"
""")
    script.chmod(0o755)
    return lambda mpi: Mpi(mpi.name, mpi.mpirun, mpi.millrace, mpi.environ, (str(script),))


def test_missing_tool_is_named_with_its_node(an_mpi: Mpi, site: Site) -> None:
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    (site.folder / "bin").mkdir()
    (site.folder / "tool").rename(site.folder / "bin" / "tool")
    (site.folder / "tool").symlink_to("bin/tool")
    hide = f'exec unshare --mount sh -c \'mount -t tmpfs none {site.folder}/bin; exec "$@"\' sh "$millrace" "$@"'
    code, text = whole(on_rank(site.folder, 2, hide)(an_mpi), 3, site)
    assert code == 4
    assert "(rank 2): ./tool: no such program" in text
    assert site.executions == 0
    assert not site.run_dir.exists()


@pytest.mark.slow
def test_another_program_under_the_same_name_is_refused(openmpi: Mpi, site: Site) -> None:
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    (site.folder / "other").write_text("#!/bin/sh\necho other release > $2\n")
    (site.folder / "other").chmod(0o755)
    swap = f'exec unshare --mount sh -c \'mount --bind {site.folder}/other {site.folder}/tool; exec "$@"\' sh "$millrace" "$@"'
    site.output.write_bytes(b"of an earlier run\n")
    code, text = whole(on_rank(site.folder, 1, swap)(openmpi), 3, site)
    assert code == 4
    assert "(rank 1): " in text and "is not the program that the coordinator has" in text
    assert not site.run_dir.exists()
    assert site.output.read_bytes() == b"of an earlier run\n"
    job = Job(openmpi, 3, site)
    os.kill(job.ranks[1], signal.SIGKILL)
    job.ends()
    before = site.output.read_bytes()
    code, text = whole(on_rank(site.folder, 1, swap)(openmpi), 3, site, "--fresh")
    assert code == 4 and site.output.read_bytes() == before, text
    assert whole(openmpi, 3, site, "--keep-run-dir")[0] == 0
    assert resumed(site) > 0
    assert site.output.read_bytes() == site.expected


@pytest.mark.slow
def test_full_disk_on_one_node_stops_the_job_and_it_resumes(openmpi: Mpi, site: Site) -> None:
    # A limit on the size of files is what a full disk is to its writer: here, to one journal.
    mark = f"{site.folder.name}-{os.getpid()}"
    held = f'[ "$(ulimit -f)" != unlimited ] || until [ -e {site.log}.go ]; do sleep 0.1; done'
    (site.folder / "tool").write_text(TOOL.replace("# tool IN OUT", held))
    process = on_rank(site.folder, 1, "ulimit -f 1")(openmpi).start(3, words(), site.folder, mark, LOG=str(site.log))
    try:
        # The others hold what they have, so that it has enough to write.
        assert harness.wait_until(lambda: "a file may not become so large" in said(site.folder), process), said(
            site.folder
        )
        site.release()
        code = process.wait(harness.LONGEST_SECONDS)
    finally:
        end(process, mark)
    text = said(site.folder)
    assert code == 1, text
    assert "(rank 1): " in text and not harness.left_over(mark)
    assert whole(openmpi, 3, site)[0] == 0
    assert site.output.read_bytes() == site.expected


def test_a_bad_record_is_quarantined_wherever_it_runs(an_mpi: Mpi, site: Site) -> None:
    code, text = whole(an_mpi, 3, site, BAD="record17$")
    assert code == 3, text
    records = site.expected.split(b">seen ")
    assert site.output.read_bytes() == b">seen ".join(part for part in records if not part.startswith(b"record17\n"))
    assert (site.run_dir / "quarantine" / "record-18").is_dir()


def test_a_tool_that_never_works_ends_the_job(an_mpi: Mpi, site: Site) -> None:
    code, text = whole(an_mpi, 3, site, BAD="record")
    assert code == 4
    assert "cannot do this work" in text


@pytest.mark.slow
def test_verification_compares_with_results_of_any_node(openmpi: Mpi, site: Site) -> None:
    code, text = whole(openmpi, 3, site, "--verify", "1")
    assert code == 0, text
    assert f"checked on {N} of {N} records cut elsewhere, all bytes equal" in text
    code, text = whole(openmpi, 3, site, "--verify", "1", "--fresh", RANDOMLY="1")
    assert code == 5
    # Which stretch is compared first depends on the nodes.
    accused = r"tool gave other bytes for records \d+ to \d+ when they were run again as they were"
    assert re.search(accused, text), text
    # If nothing was written yet, it is still that of the first run.
    assert not site.output.exists() or site.output.read_bytes() == site.expected


@pytest.mark.slow
def test_unexpected_message_is_an_error(an_mpi: Mpi, site: Site) -> None:
    stray = (
        "from millrace.cluster import agent_process, messages\n"
        "make_ready = agent_process.AgentProcess._set_up_run\n"
        "def say_too_early(self, setup):\n"
        "    self._send_to_leader(messages.NodeTasksWithdrawn([7]))\n"
        "    return make_ready(self, setup)\n"
        "agent_process.AgentProcess._set_up_run = say_too_early\n"
    )
    code, text = whole(with_limits(an_mpi, site.folder, stray), 2, site)
    assert code == 1
    assert "(rank 1): message NodeTasksWithdrawn came when none of its kind may" in text
    assert site.executions == 0
    assert whole(an_mpi, 2, site)[0] == 0
    assert site.output.read_bytes() == site.expected


def test_refusal_of_the_coordinator_is_printed_once(an_mpi: Mpi, site: Site) -> None:
    (site.folder / "in.fa").unlink()
    code, text = whole(an_mpi, 3, site)
    assert code == 2
    assert text.count("no such file") == 1


@pytest.mark.slow
def test_waiting_costs_little(mpi: Mpi, site: Site) -> None:
    """Two ranks wait for their tools, of which there are fewer than slots, and one has none.

    One that polls without a rest never sleeps, and one that rests too little sleeps a thousand times a second. How
    often is counted: processor time would be dearer on a busy machine.
    """
    site.n = 8
    site.write_input()
    job = Job(mpi, 3, site, executions=2, HOLD="1")
    begun = time.monotonic()
    before = {rank: rests(pid) for rank, pid in job.ranks.items()}
    assert harness.wait_until(lambda: all(rests(pid) - before[rank] > 200 for rank, pid in job.ranks.items()))
    n_rests = {rank: rests(pid) - before[rank] for rank, pid in job.ranks.items()}
    elapsed = time.monotonic() - begun
    site.release()
    assert job.ends() == 0, said(site.folder)
    assert all(n / elapsed < 400 for n in n_rests.values()), (n_rests, elapsed)


def rests(pid: int) -> int:
    """How often the main thread of a process has gone to sleep by itself."""
    status = (Path("/proc") / str(pid) / "status").read_text()
    return int(re.findall(r"^voluntary_ctxt_switches:\s*(\d+)$", status, re.MULTILINE)[0])


@pytest.mark.slow
def test_database_changed_on_one_node_stops_the_job(openmpi: Mpi, site: Site) -> None:
    """The same command resumes once it is restored."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    (site.folder / "db").write_text("old\n")
    there = site.folder.with_name(f"{site.folder.name}.db")
    shutil.copy2(site.folder / "db", there)
    kept = there.with_name(f"{there.name}.kept")
    shutil.copy2(there, kept)
    change = f'[ $(stat -c %i {site.folder}/db) != {there.stat().st_ino} ] || [ $(wc -l < "$LOG") -lt 6 ] || echo new database > {there}'
    script = (site.folder / "tool").read_text()
    (site.folder / "tool").write_text(script.replace("\n", f"\n{change}\n", 1))
    own = f'exec unshare --mount sh -c \'mount --bind {there} {site.folder}/db; exec "$@"\' sh "$millrace" "$@"'
    code, text = whole(on_rank(site.folder, 1, own)(openmpi), 3, site, "--shared", "db", SLEEP="0.2")
    assert code == 5, text
    assert "(rank 1): " in text and "/db: had 4 bytes" in text and "changed while the run was on" in text
    assert not site.output.exists() or site.expected.startswith(site.output.read_bytes())
    kept.replace(there)
    code, text = whole(openmpi, 3, site, "--shared", "db")
    assert code == 0, text
    assert site.output.read_bytes() == site.expected


@pytest.mark.slow
@pytest.mark.parametrize("write", ["merge", pytest.param("individual", marks=pytest.mark.slow), "coordinator"])
def test_output_changed_by_others_is_written_again(openmpi: Mpi, site: Site, write: str) -> None:
    # Near the end: what the last results do not write over.
    job = Job(openmpi, 3, site, BATCHES - 3, ("--write", write, "--sync", "0.05"))
    # Where nodes write side by side, the beginning may come last.
    assert harness.wait_until(
        lambda: site.output.exists() and site.output.read_bytes().startswith(b">seen"), job.process
    )
    with site.output.open("r+b") as file:
        file.seek(2)
        file.write(b"XXXX")
    job.goes_on()
    assert job.ends() == 0, said(site.folder)
    assert "written again" in said(site.folder), said(site.folder)
    assert site.output.read_bytes() == site.expected
