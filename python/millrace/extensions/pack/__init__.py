"""Packs: the entries that each batch of queries has hit, and differences; they regenerate a result.

A pack stores candidates; unpacking is a run of finishes only (``regeneration_run``). ``result_packer`` and
``pack_unpacker`` order the steps, ``layout`` is the file format, ``recipe`` describes the result, ``result_codec`` is
the interface of a tool family.
"""
