"""Programs of others that start Millrace or read what it writes: from PyPI, each in an environment of its own, and Nextflow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from session_resources import once

#: Set: a folder with such environments that are kept from session to session, each under the name of its first package.
VARIABLE = "MILLRACE_TEST_VENVS"

#: Packages of the Java library that Groovy's reflection needs, as Nextflow's launcher opens them.
OPENED = ("java.lang", "java.io", "java.nio", "java.net", "java.util", "sun.nio.ch", "sun.nio.fs")


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


def install_nextflow(session_folder: Path) -> list[str]:
    """Return the command of Nextflow, without its launcher, which downloads more; skip the test where it cannot be had."""
    if not (maven := shutil.which("mvn")) or not shutil.which("java"):
        pytest.skip("not installed: java and mvn, for Nextflow")
    kept = os.environ.get(VARIABLE)
    folder = (Path(kept) if kept else session_folder) / "nextflow"
    folder.parent.mkdir(parents=True, exist_ok=True)
    description = Path(__file__).with_name("nextflow") / "pom.xml"

    def make(new: Path) -> None:
        wanted = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={new}"]
        subprocess.run([maven, "-B", "-q", "-f", description, *wanted], check=True, timeout=900)

    try:
        once(folder, make)
    except subprocess.SubprocessError as error:
        pytest.skip(f"Nextflow: cannot be had from Maven here: {error}")
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    return ["java", "-XX:TieredStopAtLevel=1", *opened, "-cp", f"{folder}/*", "nextflow.cli.Launcher"]
