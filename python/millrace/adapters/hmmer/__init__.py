"""Adapter of HMMER 3, with its target databases."""

from millrace.adapters.hmmer.fragments import ADAPTER

__all__ = ["ADAPTER"]
