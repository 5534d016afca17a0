"""The place of a scenario: its files, what they were at which time, and what is left in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.storm import tools
from bench.storm.scenario import Scenario

#: In the environment of all processes of a scenario: its folder.
MARK = "STORM"

DATABASES = ("alpha", "gamma")


@dataclass(frozen=True)
class World:
    """What a result is a result of."""

    #: None: there is none.
    content: bytes | None
    database: str
    version: str


@dataclass
class Site:
    """Folders: ``disk/work`` is the user's, ``area`` for the work directory, ``state`` what tools remember."""

    scenario: Scenario
    root: Path
    #: Whether disk and area are filesystems of their own.
    mounted: bool
    #: (time, what was there from then on).
    history: list[tuple[float, World]] = field(default_factory=list)
    #: Files of the user as they were.
    kept: dict[Path, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in (self.disk, self.area, self.state, self.root / "kept"):
            folder.mkdir(parents=True)
        for folder in (self.disk, self.area) if self.mounted else ():
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "storm", str(folder)], check=True)
        self.work.mkdir()
        records = [f">r{k:02}\n{'ACDEFGHIKL' * (k % 7)}MKV\n".encode() for k in range(self.scenario.n_records)]
        if self.scenario.layout == "folder":
            (self.work / "in").mkdir()
            for k, record in enumerate(records):
                (self.work / f"in/r{k:02}.fa").write_bytes(record)
        else:
            (self.work / "in.fa").write_bytes(b"".join(records))
        (self.work / "db").write_text(DATABASES[0])
        self.tool.write_text(tools.script(self.scenario.tool))
        self.tool.chmod(0o755)
        if self.scenario.tool == "writes a file of the user's" and self.scenario.seed % 2:
            (self.work / "scratch").write_text("of an earlier run\n")
        for number, path in enumerate((*self.inputs, self.work / "db", self.tool)):
            self.kept[path] = self.root / "kept" / str(number)
            shutil.copy2(path, self.kept[path])
        self.history.append((0.0, World(b"".join(records), DATABASES[0], "v1")))

    @property
    def disk(self) -> Path:
        return self.root / "disk"

    @property
    def work(self) -> Path:
        return self.disk / "work"

    @property
    def area(self) -> Path:
        return self.root / "area"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def tool(self) -> Path:
        return self.work / "tool"

    @property
    def output(self) -> Path:
        return self.work / "out.txt"

    @property
    def inputs(self) -> list[Path]:
        return sorted(self.work.glob("in/*.fa")) or [self.work / "in.fa"]

    @property
    def run_dir(self) -> Path | None:
        return next(iter(self.work.glob("*.millrace")), None)

    def close(self) -> None:
        for folder in (self.disk, self.area) if self.mounted else ():
            subprocess.run(["umount", "-l", str(folder)], check=False)
        shutil.rmtree(self.root, ignore_errors=True)

    # The command

    def start(self, *more: str, stdout: str = "out.txt") -> subprocess.Popen[bytes]:
        """Start the scenario's command; what it says goes to a file, see `said`."""
        scenario, layout = self.scenario, self.scenario.layout
        options = [*scenario.options, *more, "--shared", "db"]
        outputs = {"stdout": [], "two outputs": ["out.txt", "out2.txt"]}.get(layout, ["out.txt"])
        where = {"stdin": "-", "folder": "in"}.get(layout, "in.fa")
        options += ["--format", "fasta"] if layout == "stdin" else ["--input", where]
        options += [word for name in outputs for word in ("--output", name)]
        options += ["--join", "csv"] if layout == "header" else []
        environ = {
            **os.environ, MARK: str(self.root), "STATE": str(self.state), "SLEEP": str(scenario.sleep), "HEADER": "1" if layout == "header" else "",
            "SOME": "1" if scenario.tool == "nothing for some" else "", "MILLRACE_RUN_PROGRESS": "none", "XDG_STATE_HOME": "/dev/null/none",
        }  # fmt: skip
        if scenario.own_area:
            environ["MILLRACE_WORK"] = str(self.area)
        command = [sys.executable, "-m", "millrace", "run", *options, "--", "./tool", where, "db", *outputs]
        out = self.work / stdout if layout == "stdout" else Path(os.devnull)
        said = self.root / f"said-{time.monotonic_ns()}"
        with (
            (self.work / "in.fa" if layout == "stdin" and self.inputs[0].exists() else Path(os.devnull)).open("rb") as stdin,
            out.open("wb") as to, said.open("wb") as words,
        ):  # fmt: skip
            process = subprocess.Popen(
                command, cwd=self.work, env=environ, stdin=stdin, stdout=to, stderr=words, start_new_session=True
            )
        process.said = said  # type: ignore[attr-defined]
        return process

    # The world

    @property
    def now(self) -> World:
        return self.history[-1][1]

    def becomes(self, **changes: object) -> None:
        """From now on, the world is another; to be called just before it is changed."""
        self.history.append((time.monotonic(), World(**{**self.now.__dict__, **changes})))

    def reread(self) -> None:
        """The input is what is there."""
        there = [path for path in self.inputs_kept if path.exists()]  # of a folder, what is in it
        self.becomes(content=b"".join(path.read_bytes() for path in there) if there else None)

    @property
    def inputs_kept(self) -> list[Path]:
        return [path for path in self.kept if path.name.endswith(".fa")]

    def since(self, begun: float) -> list[World]:
        """All worlds that there were since then."""
        before = [world for at, world in self.history if at <= begun][-1:]
        return [*before, *(world for at, world in self.history if at > begun)]

    def expected(self, world: World, without: frozenset[str] = frozenset()) -> dict[str, bytes] | None:
        """What the serial tool gives in a world, by output; None: nothing can be computed.

        Args:
            without: Names of records that have no result.
        """
        if world.content is None:
            return None
        parts = [b">" + record for record in world.content.split(b">")[1:]]
        content = b"".join(part for part in parts if part[1:].split(b"\n")[0].decode() not in without)
        some = self.scenario.tool == "nothing for some"
        rows = tools.result(content, world.database, world.version, some=some)
        if self.scenario.layout == "header":
            rows = b"name,length,database\n" + rows
        found = {"out.txt": rows}
        if self.scenario.layout == "two outputs":
            found["out2.txt"] = "".join(f"{name}\n" for name in tools.names(content)).encode()
        return found

    @property
    def whole_bytes(self) -> int:
        """Size of the first output when all is written."""
        without = frozenset(tools.CANNOT.get(self.scenario.tool, ()))
        return len((self.expected(self.now, without) or {}).get("out.txt", b""))

    def written(self) -> dict[str, bytes]:
        """The outputs as they are."""
        names = ["out.txt"] + (["out2.txt"] if self.scenario.layout == "two outputs" else [])
        return {name: (self.work / name).read_bytes() if (self.work / name).is_file() else b"" for name in names}

    def restore(self) -> None:
        """Put everything back as it was, with its times."""
        for path, kept in self.kept.items():
            if not path.exists() or path.read_bytes() != kept.read_bytes() or path.stat().st_mtime_ns != kept.stat().st_mtime_ns:  # fmt: skip
                fresh = path.with_name(path.name + ".back")
                shutil.copy2(kept, fresh)
                fresh.rename(path)
        self.history.append((time.monotonic(), self.history[0][1]))
        if self.output.is_dir():
            self.remove(self.output)

    def remove(self, path: Path) -> None:
        """Remove what has this name, if anything has."""
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    # What is left

    def processes(self) -> list[str]:
        """Processes of this scenario, in words."""
        found = []
        root = str(self.root)
        for place in Path("/proc").glob("[0-9]*"):
            try:
                environ = (place / "environ").read_bytes()
                cwd = os.readlink(place / "cwd")
                ours = f"{MARK}={root}".encode() in environ.split(b"\0") or f"{cwd}/".startswith(f"{root}/")
                if ours and b") Z " not in (place / "stat").read_bytes():
                    found.append(f"{place.name} {(place / 'comm').read_text().strip()}")
            except OSError:
                continue
        return found

    def strangers(self, *, complete: bool) -> list[str]:
        """Entries of the user's folder that nobody but Millrace can have left there."""
        own = {path.relative_to(self.work).parts[0] for path in self.kept}
        own |= {"out.txt", "out2.txt", "other.txt", "scratch", "moved.txt", "moved.dir"}
        names = set(os.listdir(self.work)) - own
        if not complete:
            names = {name for name in names if not name.endswith(".millrace")}
        return sorted(names)
