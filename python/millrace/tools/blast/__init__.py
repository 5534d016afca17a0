"""Adapter of BLAST+, with its databases."""

from millrace.tools.blast.adapter import ADAPTER

__all__ = ["ADAPTER"]
