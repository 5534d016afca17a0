"""The page that says where things are names files that are there, and each room; tables of all pages are whole."""

from __future__ import annotations

import re
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent.parent
PAGE = (REPO / "docs" / "architecture.md").read_text()
PACKAGE = REPO / "python" / "millrace"


def test_files_named_on_the_page_exist() -> None:
    named = {name for name in re.findall(r"`([\w./-]+)`", PAGE) if "/" in name or name.endswith(".py")}
    assert len(named) > 40
    missing = [name for name in sorted(named) if not any((root / name).exists() for root in (PACKAGE, REPO))]
    assert not missing


def test_each_package_folder_is_on_the_page() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms <= {name.rstrip("/") for name in re.findall(r"^\| `([\w/]+)`", PAGE, re.MULTILINE)}


def test_each_table_of_the_docs_has_its_head() -> None:
    """A blank line within a table cuts it: what follows is shown as text."""
    pages = [*REPO.glob("docs/**/*.md"), *REPO.glob("examples/**/*.md"), REPO / "README.md", REPO / "CONTRIBUTING.md"]
    cut = []
    for page in pages:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
        cut += [f"{page}: {table[:60]}" for table in tables if not re.match(r"\|.*\n\|[-: |]+\|\n", table)]
    assert len(pages) > 40 and not cut


def test_files_named_by_pages_of_decisions_exist() -> None:
    text = "".join(page.read_text() for page in REPO.glob("docs/design/*.md"))
    named = set(re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|rs))`", text))
    assert len(named) > 8
    assert not [name for name in named if not any((root / name).exists() for root in (PACKAGE, REPO))]
