"""The slots of one node: where tools run, what they read, how they are started. Nothing here knows other nodes."""
