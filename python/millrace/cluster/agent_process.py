"""The node agent as a process of an MPI job (rank 1 and up). It executes the coordinator's commands."""

from __future__ import annotations

import os
import time

from millrace.cluster import messages as say
from millrace.cluster.failure_detection import HEARTBEAT_INTERVAL_SECONDS, MAX_SILENCE_SECONDS, SilenceTimer
from millrace.cluster.node_info import describe_this_process
from millrace.cluster.node_run import NodeRun
from millrace.cluster.node_staging import NodeStaging
from millrace.cluster.transport.mpi_start import create_message_naps
from millrace.cluster.transport.mpi_transport import MpiTransport
from millrace.core.errors import MillraceError
from millrace.core.tasks import TaskEnded, TaskId, TaskStarted
from millrace.core.tool_use import StorageRead
from millrace.core.wait_loop import wait_until
from millrace.host.signals import StopSignals
from millrace.launch.mpi_environment import remove_mpi_variables
from millrace.node.work_dir import WorkDir


class AgentProcess:
    """The node agent of one process, from its first message to its last.

    Args:
        leader: Rank that sends the commands and receives the reports.
    """

    def __init__(self, world: MpiTransport, work: WorkDir, leader: int = 0) -> None:
        self._world, self._work, self._leader = world, work, leader
        self._keeper = NodeStaging(world.make_broadcast_link, work.path)
        #: The run on this node, between set-up and end; then what changed during it, as text.
        self._here: NodeRun | None = None
        self._changed, self._read, self._against = "", StorageRead(), ""
        self._naps = create_message_naps()
        self._patience = SilenceTimer()
        self._told = 0.0
        #: Whether the run is active: the coordinator's loop turns. Before and after, it may be silent for any time.
        self._on = False
        self._stopped = self._left = self._troubled = self._asked = False

    def run(self, interrupt: StopSignals) -> None:
        """Serve until the coordinator sends ``say.LeaveJob``. End the process if the coordinator is lost."""
        self._send_to_leader(describe_this_process(remove_mpi_variables(os.environ)))
        wait_until(lambda: self._serve_tick(interrupt))

    def _serve_tick(self, interrupt: StopSignals) -> bool:
        """Run one tick of the loop; return whether this agent has left the job."""
        happened = self._handle_events()
        if interrupt.signal and not self._asked:
            self._asked = True
            self._send_to_leader(say.SignalReceived(interrupt.signal))
        now = time.monotonic()
        if self._patience.measure_silence(now, heard=happened) > MAX_SILENCE_SECONDS and self._on:
            os._exit(1)  # the watchdog ends the tools
        if now - self._told > HEARTBEAT_INTERVAL_SECONDS:
            self._send_to_leader(say.AgentHeartbeat())
            if (
                0 in self._world.find_failed_ranks()
            ):  # only where MPI continues without it; its last message may be lost
                if not self._stopped:
                    os._exit(1)
                return True
        self._world.continue_sends()
        return self._left

    def _handle_events(self) -> bool:
        """Report slot events and handle messages; return whether the leader has sent any, or this failed."""
        try:
            self._wait_for_slots()
            heard = self._world.receive()
            if heard and self._here:
                self._here.parts.renew_lease()
            for rank, message in heard:
                self._handle_message(rank, message)
        except Exception as error:
            self._report_failure(error)
            return True
        # Slot events do not shorten the nap: they end it by themselves, and slots have tasks queued ahead.
        if heard:
            self._naps.reset_pause()
        else:
            self._naps.lengthen_pause()
        return any(rank == self._leader for rank, _ in heard)

    def _handle_message(self, rank: int, message: say.Message) -> None:
        if rank != self._leader:
            raise say.make_unexpected_message_error(f"rank {rank}", message)
        self._execute_command(message)

    def _wait_for_slots(self) -> None:
        """Sleep until a slot event or the end of the nap, and report the events."""
        if self._troubled:  # the error would recur at each tick, before any message is received
            time.sleep(self._naps.seconds)
            return
        if self._keeper.has_transfer:
            if ended := self._keeper.advance_transfer():
                self._send_to_leader(ended)
            return
        if not self._here:
            time.sleep(self._naps.seconds)
            return
        told, slots = self._here.collect_events(self._naps.seconds, rests=self._rests)
        for change in slots:
            self._report_slots_change(say.RankSlotsChanged(self._world.rank, change.slots, change.why))
        if told:
            self._report_task_events(told)
        for index in self._here.pieces.pop_indexes() if self._here.pieces else ():
            self._send_to_leader(say.InputPieceIndexed(index))
        self._here.parts.report_written_parts()

    #: Whether tasks that end close together are reported together, a little later.
    _rests = True

    def _report_slots_change(self, news: say.RankSlotsChanged) -> None:
        self._send_to_leader(news)

    def _report_task_events(self, events: list[TaskStarted | TaskEnded]) -> None:
        self._send_to_leader(say.TaskEventsReport(events))

    def _execute_command(self, message: say.Message) -> None:
        """Execute a command of the leader.

        Raises:
            MillraceError: The command is not allowed in this state.
        """
        self._on = self._here is not None
        match message:
            case say.PingAgent():
                pass
            case say.QueryNodeStorage():
                self._send_to_leader(say.NodeStorageReport(self._keeper.report_storage(message)))
            case say.FetchCopies():
                self._keeper.begin_transfer(message)
            case say.SetUpNode():
                self._world.unlink_startup_memory()
                self._send_to_leader(self._set_up_run(message))
            case say.RunAssignments(assignments) if self._here:
                for assignment in assignments:
                    self._here.submit_assignment(assignment)
            case (
                say.WriteOutputPart() | say.WriteHeldPart() | say.OpenCollectiveOutputs() | say.CloseCollectiveOutputs()
            ) if self._here:
                if not self._here.parts.execute_order(message):
                    raise say.make_unexpected_message_error(f"rank {self._leader}", message)
            case say.IndexInputPiece(request) if self._here and self._here.pieces:
                self._here.pieces.request_index(request)
            case say.WithdrawFromNode() if self._here:
                self._send_to_leader(say.NodeTasksWithdrawn(self._withdraw_tasks(self._here)))
            case say.KillNodeTools() if self._here:
                self._here.kill_all_tools()
            case say.StopNode(whole):
                self._stop_node(whole=whole)
            case say.LeaveJob():
                self._leave_job()
            case (
                say.RunAssignments()
                | say.WriteOutputPart()
                | say.WriteHeldPart()
                | say.IndexInputPiece()
                | say.WithdrawFromNode()
                | say.KillNodeTools()
            ) if self._stopped:
                pass  # it was in flight when the run ended
            case _:
                raise say.make_unexpected_message_error(f"rank {self._leader}", message)

    def _stop_node(self, *, whole: bool) -> None:
        """Stop the run here and report it; ``whole``: the outputs are written, so programs that stay alive may end themselves."""
        self._on = False
        self._send_to_leader(say.AgentHeartbeat())  # the next steps may take seconds
        if whole and self._here:
            self._against = self._here.end_resident_programs()
        self._stop_run()
        self._send_to_leader(say.NodeStopped(self._changed, self._read, self._against))

    def _leave_job(self) -> None:
        self._send_to_leader(say.ProcessLeft())
        self._world.flush_sends(HEARTBEAT_INTERVAL_SECONDS)
        self._left = True

    def _send_to_leader(self, message: say.Message) -> None:
        self._told = time.monotonic()
        self._world.send(self._leader, message)

    def _report_failure(self, error: Exception) -> None:
        """Report an error to the leader, once; the coordinator then ends the run."""
        if self._troubled:
            return
        self._troubled = True
        if isinstance(error, MillraceError):
            told = error
        elif isinstance(error, OSError):
            told = MillraceError(str(error), "nothing is lost: the same command resumes")
        else:
            told = MillraceError(f"{type(error).__name__}: {error}", "this must not happen: please report it")
        self._send_to_leader(say.AgentFailed.from_error(told))

    # The run

    def _set_up_run(self, setup: say.SetUpNode) -> say.NodeReady:
        self._here = NodeRun(setup, self._world, self._work, self._send_to_leader)
        return self._here.ready

    def _withdraw_tasks(self, here: NodeRun) -> list[TaskId]:
        """Withdraw the tasks that no slot has started."""
        return here.withdraw_tasks()

    def _stop_run(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._keeper.close()
        self._world.broken |= self._keeper.has_abandoned_transfer
        # The coordinator is about to remove the run directory: no file in it may stay open.
        here, self._here = self._here, None
        if here:
            self._read = here.storage_read
            self._changed = here.close(parts=not self._troubled)
