"""Programs of others that read what Millrace writes, each installed from PyPI into an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from session_resources import once

#: Set: a folder with such environments that are kept from session to session, each under the name of its first package.
VARIABLE = "MILLRACE_TEST_VENVS"


def install_packages(session_folder: Path, *packages: str) -> Path:
    """Return the folder ``bin`` of an environment with these packages; skip the test where they cannot be had."""
    kept = os.environ.get(VARIABLE)
    folder = (Path(kept) if kept else session_folder) / packages[0]
    folder.parent.mkdir(parents=True, exist_ok=True)

    def make(new: Path) -> None:
        # The environment gets its final name: its scripts have it in their first lines.
        subprocess.run([sys.executable, "-m", "venv", folder.with_name(f"{folder.name}-env")], check=True)
        python = folder.with_name(f"{folder.name}-env") / "bin" / "python"
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages],
            check=True,
            timeout=900,
        )
        (new / "packages").write_text("\n".join(packages))

    try:
        once(folder, make)
    except subprocess.SubprocessError as error:
        pytest.skip(f"{packages[0]}: cannot be installed from PyPI here: {error}")
    return folder.with_name(f"{folder.name}-env") / "bin"
