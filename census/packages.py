"""Packages of a census file: unpacked into a cache and laid over ``/usr`` for the programs of the census alone.

Nothing is installed. A mount namespace shows the packages where they belong, so that programs find what they read below
``/usr/share``; the rest of the machine does not see them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

from census.program_files import CensusFile

CACHE = Path(os.environ.get("MILLRACE_CENSUS_CACHE") or Path.home() / ".cache" / "millrace-census")

#: Lets apt write into folders that only this user can enter.
AS_ROOT = "-oAPT::Sandbox::User=root"


def fetch_packages(file: CensusFile, suite: str = "") -> Path | None:
    """Return the folder with the packages of a file and all that they need and this machine lacks; None: it needs none.

    Args:
        file: Names the packages.
        suite: Take Debian's packages from this suite, with all that they need, the C library included; empty: from that
            of this machine.

    Raises:
        SystemExit: They cannot be had; the message has what apt or uv says.
    """
    if not file.debian and not file.pypi:
        return None
    key = blake2b(repr((file.debian, file.pypi, suite)).encode(), digest_size=8).hexdigest()
    root = CACHE / "roots" / key
    if (root / "done").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    (root / "usr").mkdir(parents=True)
    versions = _unpack_debian(file.debian, root, _list_suite_options(suite) if suite else []) if file.debian else {}
    if file.pypi:
        _run_quietly([sys.executable, "-m", "venv", str(root / "venv")])
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        _run_quietly([uv, "pip", "install", "--python", str(root / "venv/bin/python"), *file.pypi])
    versions |= dict(each.partition("==")[::2] for each in file.pypi)
    (root / "done").write_text("".join(f"{name}\t{version}\n" for name, version in sorted(versions.items())))
    return root


def _run_quietly(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"census: {shlex.join(argv)}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


def _list_suite_options(suite: str) -> list[str]:
    """Read the lists of a suite of Debian, and return the options with which apt installs from it on an empty machine."""
    state = CACHE / "suites" / suite
    (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    origin = _run_quietly(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]).split()[0]
    sources = state / "sources.list"
    sources.write_text(f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {origin} {suite} main\n")
    options = [
        f"-oDir::Etc::sourcelist={sources}", "-oDir::Etc::sourceparts=/dev/null",
        f"-oDir::State={state}", f"-oDir::State::status={state / 'status'}",
    ]  # fmt: skip
    _run_quietly(["apt-get", "-qq", *options, AS_ROOT, "update"])
    return options


def _unpack_debian(packages: list[str], root: Path, options: list[str]) -> dict[str, str]:
    """Unpack packages and all that they need and this machine lacks; return the versions of those that are named.

    Args:
        packages: What another suite has not is left out.
        root: Where they are unpacked.
        options: Options of apt for another suite.
    """
    archives = CACHE / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    asked = [f"-oDir::Cache::archives={archives}", AS_ROOT, "-oDebug::NoLocking=1", *options]
    install = ["-y", "--no-install-recommends", *asked, "install", "--reinstall", *packages]
    _run_quietly(["apt-get", "-qq", "--download-only", *install])
    said = _run_quietly(["apt-get", "--simulate", *install])
    # A line is: Inst bwa [0.7.17-6] (0.7.17-7 Debian:12/stable [amd64])
    found = dict(re.findall(r"^Inst (\S+)[^(]*\((\S+)", said, re.MULTILINE))
    for name, version in found.items():
        for path in archives.glob(f"{name}_{version.replace(':', '%3a')}_*.deb"):
            _run_quietly(["dpkg-deb", "-x", str(path), str(root)])
    return {name: found[name] for name in packages if name in found}


def list_versions(root: Path | None) -> dict[str, str]:
    """Return the version of each package that a file asks for."""
    lines = (root / "done").read_text().splitlines() if root else []
    return dict(line.split("\t", 1) for line in lines)


def make_environment(root: Path | None, file: CensusFile, home: Path) -> dict[str, str]:
    """Return the environment of the programs: none of the user's but ``PATH`` and what the file sets."""
    bins = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/games", "/usr/lib/emboss/bin"]
    own = Path(sys.executable).parent
    environ = {"HOME": str(home), "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "TZ": "UTC"}
    environ["PYTHONPYCACHEPREFIX"] = str(home / "compiled")  # what is unpacked was not compiled
    if root:
        bins = [str(root / "venv/bin"), *bins] if (root / "venv").exists() else bins
        found = {Path("/", path.relative_to(root).parent) for path in root.glob("usr/lib/**/*.so*")}
        environ["LD_LIBRARY_PATH"] = ":".join(sorted(str(folder) for folder in found if "python" not in str(folder)))
    return environ | {"PATH": ":".join([*bins, str(own)])} | file.env


def lay_over(root: Path | None) -> None:
    """Start this process again in a mount namespace of its own, with the packages over ``/usr``."""
    if os.environ.get("MILLRACE_CENSUS_INSIDE"):
        return
    overlay = f"mount -t overlay overlay -o lowerdir={shlex.quote(str(root / 'usr'))}:/usr /usr && " if root else ""
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    line = f"{overlay}exec {shlex.join([sys.executable, '-m', 'census', *sys.argv[1:]])}"
    os.environ["MILLRACE_CENSUS_INSIDE"] = "1"
    os.execvp("unshare", ["unshare", "--mount", *own, "sh", "-c", line])
