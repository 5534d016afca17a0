"""What all tests share."""

from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from harness import dead_work
from hypothesis import HealthCheck, settings
from parameter_choice import thin_families
from session_resources import once
from shell import Shell

REPO = Path(__file__).resolve().parent.parent

# A busy machine is no failure: nothing is judged by how long it takes. What is drawn is the same in each run, so that who
# changes nothing finds nothing; `make slow` draws anew, and more.
_is_drawn_anew = "MILLRACE_TEST_RANDOM" in os.environ
settings.register_profile(
    "millrace",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not _is_drawn_anew,
    max_examples=100 if _is_drawn_anew else 25,
)
settings.load_profile("millrace")

# Thousands of processes start Millrace here; compiling it anew would be half of what each costs.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Benchmarks that tests run are too small for their figures to be kept.
os.environ["MILLRACE_BENCH_RESULTS"] = ""

# What nohup, cron or a shell's "&" had ignored would stay ignored in all that is started here, and then does not stop.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

# Outputs of tests that `make` starts grow in their place.
for _name in ("MAKEFLAGS", "MAKELEVEL", "MILLRACE_STORE"):
    os.environ.pop(_name, None)

# No test depends on what runs of another one have learnt of a tool.
os.environ["XDG_STATE_HOME"] = "/dev/null/none"
# Nor on what the user of this machine says, and has measured.
os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_CACHE_HOME"] = "/dev/null/none"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of clusters wait most: they come first, so that none of them is waited for when all else is done.

    Those of them that share an HDFS of one worker come one after another.
    """
    thin_families(items)
    items.sort(key=lambda item: ("cluster" not in item.path.parts, "hdfs" not in getattr(item, "fixturenames", ())))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With MILLRACE_TEST_ALL, a test that is skipped has failed: whatever it needs is to be there."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and os.environ.get("MILLRACE_TEST_ALL"):
        report.outcome, report.longrepr = "failed", f"MILLRACE_TEST_ALL is set, but: {report.longrepr[-1]}"
    return report


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this session share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def known_versions(session_folder: Path) -> None:
    """Programs are asked for their versions once in a session: that costs as much as many a test. Nothing else is kept."""

    def make(folder: Path) -> None:
        (folder / "millrace" / "versions").mkdir(parents=True)
        (folder / "millrace" / "databases").touch()  # where a folder would be
        (folder / "millrace" / f"costs-{socket.gethostname()}.json").mkdir()  # where a file would be

    os.environ["XDG_CACHE_HOME"] = str(once(session_folder / "cache", make))


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of the real test data; skips where it is missing."""
    path = Path(os.environ.get("MILLRACE_TEST_DATA") or REPO / ".tools" / "data")
    if not path.is_dir():
        pytest.skip(f"test data: no folder {path} (make tools, or set MILLRACE_TEST_DATA)")
    return path


@pytest.fixture(scope="session")
def bench_of(data: Path, session_folder: Path) -> Path:
    """A folder with databases and queries for every tool, not to be changed; see `make_bench`."""
    from exact_cases import make_bench

    return once(session_folder / "bench", lambda folder: make_bench(data, folder))


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A prepared folder; afterwards no process of it and no work directory of a dead run may be there."""
    made = Shell(tmp_path)
    made.prepare()
    before = dead_work()
    yield made
    made.wait_for_none_left(before)


@pytest.fixture
def full_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A name at which nothing can be written for want of space.

    Never ``/dev/full`` itself: a writer that removes what it could not finish would remove the device.
    """
    path = tmp_path_factory.mktemp("full") / "full"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7))
    except PermissionError:
        if not Path("/dev/full").is_char_device():
            pytest.skip("no /dev/full")
        path.symlink_to("/dev/full")
    return path
