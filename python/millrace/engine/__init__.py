"""Engines carry messages between decisions and nodes; they do not know what a task means."""
