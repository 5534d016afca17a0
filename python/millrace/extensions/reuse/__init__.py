"""Results and candidates of earlier runs, kept in a store: what is still known is not computed again.

``search_store`` keeps them. ``known_results`` knows the results of whole batches by their records, and
``known_candidates`` those of searches by the sequences of queries and entries (``sequence_digests``). ``store_run`` has a
run begin with what is known and keeps what it finds. ``docs/reuse.md`` says why the output stays exact.
"""
