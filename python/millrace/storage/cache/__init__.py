"""Copies that a node keeps of files that are elsewhere."""
