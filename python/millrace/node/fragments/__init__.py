"""Fragments of databases and databases of candidates: one kind of database, one file."""

from __future__ import annotations

import importlib

from millrace.node.fragments.base import Kind

#: Module of each `millrace.model.Fragmented.kind`; imported when it is used.
KINDS = {"blast": "millrace.node.fragments.blast", "hmmer": "millrace.node.fragments.hmmer"}


def find(name: str) -> Kind:
    """The kind of database called ``name``."""
    kind: Kind = importlib.import_module(KINDS[name]).KIND
    return kind
