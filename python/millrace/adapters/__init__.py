"""Tool adapters: one program family, one file. Nothing here starts a run or knows of storage."""
