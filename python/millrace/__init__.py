"""Millrace: any serial tool on every core you have, with the same bytes."""

from millrace._core import __version__

__all__ = ["__version__"]
