"""Clients: one file for each kind of place, each with the library that the users of the place have anyway."""
