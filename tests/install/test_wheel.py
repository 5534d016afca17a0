"""What people install: a wheel, where there is neither Rust nor this source."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import take
from parameter_choice import some
from session_resources import once

#: The build of a wheel for any Linux takes more than a minute of both cores.
pytestmark = pytest.mark.slow

REPO = Path(__file__).resolve().parent.parent.parent
BIN = Path(sys.executable).parent

#: The tools of the system, and nothing of this checkout or of a user's own.
PATH = "/usr/local/bin:/usr/bin:/bin"


def run(*words: str | Path, cwd: Path, **environ: str) -> str:
    """Standard output of a command that knows only the system."""
    # What is installed is used once: to compile all of it would take longer.
    clean = {"PATH": PATH, "HOME": str(cwd), "TMPDIR": str(cwd), "LANG": "C.UTF-8", "PIP_NO_COMPILE": "1"}
    clean.update({name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))})
    done = subprocess.run(words, cwd=cwd, env={**clean, **environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def built(folder: Path, *options: str) -> Path:
    """A wheel of this source, compiled as `make dev` has: a release would take minutes."""
    folder.mkdir(parents=True, exist_ok=True)
    environ = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    done = subprocess.run(
        [BIN / "maturin", "build", "--quiet", "--profile", "develop", "--out", folder, *options], cwd=REPO, capture_output=True,
        text=True, check=False, env={**environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def wheel(session_folder: Path) -> Path:
    return next(once(session_folder / "wheel", lambda folder: built(folder)).glob("*.whl"))


def by_pip(wheel: Path, home: Path) -> Path:
    run(sys.executable, "-m", "venv", home / "venv", cwd=home)
    run(home / "venv/bin/pip", "install", "--quiet", wheel, cwd=home)
    return home / "venv/bin/millrace"


def by_uv(wheel: Path, home: Path) -> Path:
    run(BIN / "uv", "tool", "install", "--quiet", "--python", sys.executable, wheel, cwd=home)
    return home / ".local/bin/millrace"


def by_pipx(wheel: Path, home: Path) -> Path:
    run(sys.executable, "-m", "venv", home / "venv", cwd=home)
    run(home / "venv/bin/pip", "install", "--quiet", "pipx", cwd=home)
    run(home / "venv/bin/pipx", "install", "--quiet", "--python", sys.executable, wheel, cwd=home)
    return home / ".local/bin/millrace"


def searches(millrace: Path, data: Path, home: Path) -> None:
    """The main job, from there: the serial bytes."""
    if not shutil.which("blastp", path=PATH):
        pytest.skip("blastp is not installed")
    take(data / "proteins_db.faa", home / "db.faa", 300)
    take(data / "proteins_queries.faa", home / "q.faa", 12)
    run("makeblastdb", "-in", "db.faa", "-dbtype", "prot", "-out", "db", cwd=home)
    search = ("blastp", "-query", "q.faa", "-db", "db", "-outfmt", "7", "-out")
    run(*search, "serial.txt", cwd=home)
    run(millrace, "run", "--batch", "2", "--", *search, "parallel.txt", cwd=home)
    assert (home / "parallel.txt").read_bytes() == (home / "serial.txt").read_bytes()
    where = run(millrace.resolve().parent / "python", "-c", "import millrace; print(millrace.__file__)", cwd=home)
    assert not where.startswith(str(REPO)), "runs from the source"


#: Two steps in one job, each with a report.
JOB = """keep-run-dir = true
[phase.change]
command = "sed s/A/B/"
stdin = "q.faa"
stdout = "changed.faa"
format = "fasta"
[phase.keep]
command = "cat changed.faa"
input = "changed.faa:fasta"
stdout = "kept.faa"
"""


def has_what_lies_beside_the_code(millrace: Path, home: Path) -> None:
    """Pages, descriptions of tools, the header for programs in C, the library for warm tools."""
    (home / "job.toml").write_text(JOB)
    run(millrace, "run", "job.toml", cwd=home)
    assert (home / "kept.faa").read_text() == run("sed", "s/A/B/", "q.faa", cwd=home)
    (folder,) = home.glob("*.millrace")
    assert "<html" in (home / run(millrace, "report", folder, cwd=home).strip()).read_text()
    assert "[millrace]" in run(millrace, "tool", "list", cwd=home)
    assert (Path(run(millrace, "tool", "include-dir", cwd=home).strip()) / "millrace.h").exists()
    search = "blastp -query q.faa -db db -outfmt 7 -out warm.txt"
    said = run("sh", "-c", f"{millrace} run --warm --slots 1 --batch 1 -- {search} 2>&1", cwd=home)
    assert re.search(r"warm: \d+ tasks? in forks of blastp", said), said
    assert (home / "warm.txt").read_bytes() == (home / "serial.txt").read_bytes()


def leaves_what_the_page_says(home: Path) -> None:
    """What stays when the package is removed: docs/install.md names it."""
    page = (REPO / "docs" / "install.md").read_text()
    left = {
        path.relative_to(home) for place in (".cache", ".config", ".local") for path in (home / place).rglob("millrace")
    }
    assert left == {Path(".cache/millrace"), Path(".local/state/millrace")}
    assert all(f"`~/{path}`" in page.partition("## Uninstall")[2] for path in left)


def test_wheel_has_all_files_of_the_package(wheel: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "."], cwd=REPO / "python", capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not in a clone")
    with zipfile.ZipFile(wheel) as packed:
        assert sorted({*listed.stdout.split()} - {*packed.namelist()}) == []


@pytest.mark.parametrize("install", some([by_pip, by_uv, by_pipx], by_pip))
def test_wheel_install_needs_no_rust(
    install: Callable[[Path, Path], Path], wheel: Path, data: Path, tmp_path: Path
) -> None:
    if shutil.which("cargo", path=PATH):
        pytest.skip("cargo is among the system's programs")
    millrace = install(wheel, tmp_path)
    searches(millrace, data, tmp_path)
    if install is by_pip:
        has_what_lies_beside_the_code(millrace, tmp_path)
        leaves_what_the_page_says(tmp_path)


@pytest.mark.slow
def test_release_wheel_runs_on_any_linux(data: Path, tmp_path: Path) -> None:
    run(BIN / "uv", "pip", "install", "--quiet", "--python", sys.executable, "maturin[zig]", cwd=tmp_path)
    wheel = built(tmp_path / "dist", "--zig", "--compatibility", "manylinux2014", "--sdist")
    assert "cp311-abi3-manylinux" in wheel.name
    assert len(list((tmp_path / "dist").glob("*.tar.gz"))) == 1
    with zipfile.ZipFile(wheel) as packed:
        core = next(packed.read(name) for name in packed.namelist() if "_core" in name and name.endswith(".so"))
    # Of the library for warm tools, too, which is a part of it that no tool for wheels looks at.
    assert all((int(major), int(minor)) <= (2, 17) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", core))
    searches(by_pip(wheel, tmp_path), data, tmp_path)


def make(folder: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """``make`` in a copy of what building needs."""
    for name in (
        "Makefile",
        "Cargo.toml",
        "Cargo.lock",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "crates",
        "python",
        "scripts",
    ):
        (folder / name).symlink_to(REPO / name)
    environ = {**os.environ, "PATH": path or os.environ["PATH"]}
    return subprocess.run(
        ["make", f"PYTHON={sys.executable}", *words],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("version", ["", "1.63.0"])
def test_make_without_the_right_rust_reports_where_to_get_it(version: str, tmp_path: Path) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    if version:
        (bin_folder / "cargo").write_text(f"#!/bin/sh\necho 'cargo {version} (fd9c4297c 2022-07-01)'\n")
        (bin_folder / "cargo").chmod(0o755)
    copy = tmp_path / "copy"
    copy.mkdir()
    done = make(copy, "install", path=f"{bin_folder}:/usr/bin:/bin")
    assert done.returncode
    assert "Rust 1.85 or newer" in done.stderr and "rustup" in done.stderr
    assert (f"is {version}" if version else "no cargo") in done.stderr
    assert not (copy / ".venv").exists()


@pytest.mark.slow
def test_user_install_works_without_the_source(tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", "install", f"PREFIX={tmp_path}/own", f"PYTHON={sys.executable}"], cwd=REPO, capture_output=True,
        text=True, check=False, env={name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "is not on PATH" in done.stdout
    # Others than who installs it cannot keep what they compile.
    assert list((tmp_path / "own/lib/millrace").rglob("millrace/cli/__pycache__/slurm.*.pyc"))
    python = tmp_path / "own/lib/millrace/bin/python"
    where = run(python, "-c", "import millrace._core; print(millrace._core.__file__)", cwd=tmp_path)
    assert where.startswith(str(tmp_path))
    assert run(tmp_path / "own/bin/millrace", "--version", cwd=tmp_path).startswith("millrace")
    assert "pytest" not in run(BIN / "uv", "pip", "list", "--python", python, cwd=tmp_path)
    subprocess.run(["make", "uninstall", f"PREFIX={tmp_path}/own"], cwd=REPO, check=True, capture_output=True)
    assert [path.name for path in (tmp_path / "own").rglob("*") if not path.is_dir()] == []
