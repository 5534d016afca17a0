"""Decisions before the run, each with its reason in words. Reads files and asks tools for versions; starts no tasks."""
