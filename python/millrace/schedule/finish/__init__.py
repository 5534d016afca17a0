"""The ways to finish a batch for which everything is found in the fragments of a database: one file each. Pure."""
