"""HMMER and its targets."""

from millrace.tools.hmmer.fragments import ADAPTER

__all__ = ["ADAPTER"]
