"""Decisions during the run. Pure: events in, actions out; the time is an argument.

The strategies to finish a batch whose candidates are complete: one file each. Pure.
"""

from __future__ import annotations
