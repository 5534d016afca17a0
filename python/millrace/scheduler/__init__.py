"""Decisions during the run. Pure: events in, actions out; the time is an argument."""

from __future__ import annotations
