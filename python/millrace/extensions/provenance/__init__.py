"""Provenance of a run that can be checked: its crate, and the second computation of a sample of its batches."""
