"""Results as the least that regenerates them: which entries each batch of queries has hit, and what differs.

A pack is candidates, written down; unpacking is a run that has only finishes (`regenerate`). `packing` and `unpacking`
say in which order things are done; `layout` is the file, `recipe` what it says, `codec` what a family of tools adds.
"""
