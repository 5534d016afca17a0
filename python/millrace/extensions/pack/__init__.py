"""Packs: the entries that each batch of queries has hit, and the differences; together they regenerate a result.

A pack stores candidates; unpacking is a run of finishes only (``regenerate_outputs``). ``packing`` and ``unpacking`` order the
steps, ``layout`` is the file format, ``make_recipe`` describes the result, ``codec`` is the interface of a tool family.
"""
