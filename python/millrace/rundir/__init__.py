"""The run directory: its files, its owner, and the list of past runs."""
