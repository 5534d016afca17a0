"""A run from end to end.

``millrace.run.mpi_job`` joins an MPI job, ``millrace.run.run_claim`` takes over a run directory, and
``millrace.run.plan_execution`` runs the plan: it reads the results of earlier starts (``millrace.run.run_start``),
connects the parts (``millrace.run.run_wiring``), runs the engine loop (``millrace.run.engine_loop``), and ends the
run (``millrace.run.run_ending``). The engine carries events to the scheduler and runs the actions that it returns; it
decides nothing.
"""

from __future__ import annotations
