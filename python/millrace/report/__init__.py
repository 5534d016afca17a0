"""What the user sees of a run: progress while it lasts, events, summary and report afterwards.

Nothing here decides anything, and nothing here has a clock: times come in with snapshots and events.
"""
