"""What the user sees of a run: progress during the run; events, summary and report afterwards.

Nothing here makes decisions or has a clock: times come in with snapshots and events.
"""
