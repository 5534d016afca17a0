"""A run from end to end.

``millrace.execution.plan_execution`` joins an MPI job, ``millrace.execution.run_claim`` takes over a run directory, and
``millrace.execution.plan_execution`` runs the plan: it reads the results of earlier starts (``millrace.execution.run_start``),
connects the parts (``millrace.execution.run_wiring``), runs the engine loop (``millrace.execution.engine_loop``), and ends the
run (``millrace.execution.run_ending``). The engine carries events to the scheduler and runs the actions that it returns; it
decides nothing.
"""

from __future__ import annotations
