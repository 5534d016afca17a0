"""Candidates of earlier searches, kept in a store: what is still known is not searched again.

``candidate_store`` keeps them, ``sequence_digests`` knows queries and entries by their sequences, and ``store_run`` has a
run begin with what is known and keeps what it finds. ``docs/reuse.md`` says why the output stays exact.
"""
