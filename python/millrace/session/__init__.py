"""A run from end to end.

``millrace.session.rank`` joins an MPI job, ``millrace.session.claim`` takes over a run directory, and
``millrace.session.carry_out`` runs the plan: it reads the results of earlier starts (``millrace.session.earlier``),
connects the parts (``millrace.session.wiring``), and ends the run (``millrace.session.ending``).
"""
