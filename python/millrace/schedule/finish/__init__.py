"""The strategies to finish a batch whose candidates are complete: one file each. Pure."""
