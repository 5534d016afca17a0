"""Start of one process of a job that an MPI launcher has started."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from millrace import _core
from millrace.core.errors import ExitCode, LostError, RefusedError
from millrace.host import core_allocation, work_places
from millrace.host.signals import StopSignals
from millrace.launch.mpi_environment import LaunchedProcess
from millrace.launch.mpi_environment import find_launcher_process as launcher_process
from millrace.launch.supervisor_link import SupervisorLink
from millrace.node import work_dir
from millrace.planning import work_dir_location

if TYPE_CHECKING:  # only a job of several processes needs these, and imports them at its start
    from millrace.cluster.membership import JobMembership
    from millrace.core.job import JobSpec


def join_mpi_job(launched: LaunchedProcess, supervision: SupervisorLink, job: JobSpec) -> JobMembership | None:
    """Join an MPI job: return in the coordinator only, and run the agent in the other processes.

    Args:
        job: The job; the rest of the plan is made once all processes have joined.

    Returns:
        The other processes, for the coordinator; None if there are none. Any other process runs its agent, and exits
        when that ends.

    Raises:
        RefusedError: There is no MPI, or it is not the launcher's.
    """
    core_allocation.release_cpu_binding(launcher_process())
    if launched.size == 1:
        return None
    from millrace.cluster.membership import JobMembership
    from millrace.cluster.partition_leader import create_agent
    from millrace.cluster.transport.mpi_transport import MpiTransport

    try:
        work_places.hold_start_folder(os.environ)
    except LostError as error:
        if launched.rank:
            sys.exit(f"millrace: rank {launched.rank}: {error.message}")
        raise
    slots = job.slots or core_allocation.count_usable_cores(os.environ)[0]
    work = work_dir.choose_work_dir(work_dir_location.choose_work_place(job.work_dir, slots, Path.cwd()).path)
    watchdog = _core.Watchdog(str(work.path), work.token)  # before any thread; MPI starts some
    work.make_folder()
    try:
        with supervision.announce_mpi_start():
            world = MpiTransport(launched, work.path, supervision.key)
    except RefusedError:
        watchdog.close()
        if launched.rank:
            sys.exit(ExitCode.REFUSED)  # the coordinator reports it
        raise
    except RuntimeError as error:  # from the MPI library, if one process cannot reach another
        watchdog.close()
        words = f"MPI does not start: {error}"
        if launched.rank:
            sys.exit(f"millrace: rank {launched.rank} on {os.uname().nodename}: {words}")
        raise LostError(words, "the nodes must reach each other by TCP, over IPv4 or over IPv6 all of them") from error
    if world.rank:
        with StopSignals(supervised=supervision.active) as interrupt:
            create_agent(world, work, job.partition_size).run(interrupt)
        watchdog.close()
        world.finalize_or_abort(ExitCode.DONE)
        sys.exit(ExitCode.DONE)
    crew = JobMembership(world, work, job.partition_size, supervision.patience)
    # At the very end, after errors were reported.
    atexit.register(crew.leave_job)
    atexit.register(watchdog.close)
    return crew
