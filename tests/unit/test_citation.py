"""What is to be cited is this release."""

from __future__ import annotations

from pathlib import Path

from millrace import __version__

REPO = Path(__file__).resolve().parent.parent.parent


def test_the_citation_names_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (REPO / "CITATION.cff").read_text()
    assert f"Millrace, version {__version__} [software]" in (REPO / "README.md").read_text()
