"""Adapter of BLAST+, with its databases."""

from millrace.adapters.blast.adapter import ADAPTER

__all__ = ["ADAPTER"]
