"""What a place costs: the lines through samples, what is believed between and beyond them, and which place is chosen."""

from __future__ import annotations

import json
import math
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shell import Shell
from test_replicas import rule
from web_server import Web

from millrace import storage
from millrace.core.errors import RefusedError
from millrace.storage import cost_table, locations, place_probe
from millrace.storage.clients.base import FileLocation, FileStatus
from millrace.storage.reading_costs import (
    MeasuredCost,
    NearestSampleCost,
    ReadCost,
    ReadCostLine,
    ReadOffer,
    ReadSample,
    choose_cheapest_offer,
    choose_path,
    fit_read_cost,
    guess_read_cost,
)

SIZES = (4096, 1 << 18, 1 << 22, 1 << 24)


def line(readers: int, start: float, per_byte: float) -> ReadCostLine:
    return ReadCostLine(readers=readers, start_seconds=start, seconds_per_byte=per_byte)


@given(st.floats(1e-5, 1), st.floats(1e-10, 1e-5), st.sampled_from([1, 4]))
def test_linear_cost_is_recovered_by_the_fit(start: float, per_byte: float, readers: int) -> None:
    cost = fit_read_cost([ReadSample(readers=readers, size=n, seconds=start + n * per_byte) for n in SIZES])
    for n in (1 << 20, 1 << 30):
        assert math.isclose(cost.predict_seconds(n, readers), start + n * per_byte, rel_tol=1e-4)


@given(st.lists(st.tuples(st.sampled_from(SIZES), st.floats(1e-6, 100)), min_size=1, max_size=8))
def test_fitted_cost_is_never_negative(found: list[tuple[int, float]]) -> None:
    made = fit_read_cost([ReadSample(readers=1, size=n, seconds=t) for n, t in found]).lines[0]
    assert made.start_seconds >= 0 and made.seconds_per_byte > 0


def test_cost_is_interpolated_between_numbers_of_readers() -> None:
    """Beyond the measured readers the link is taken as saturated."""
    cost = ReadCost(lines=(line(1, 0.1, 1e-8), line(4, 0.4, 4e-8)))
    assert math.isclose(cost.predict_seconds(10**8, 2), 0.2 + 2)
    assert math.isclose(cost.predict_seconds(10**8, 40), 0.4 + 40)


def test_the_cheapest_place_depends_on_size_and_readers() -> None:
    near = ReadCost(lines=(line(1, 0.001, 1e-8), line(4, 0.001, 4e-8)))
    wide = ReadCost(lines=(line(1, 0.2, 1e-8), line(4, 0.2, 1e-8)))

    def chosen(size: int, readers: int) -> str:
        offers = [ReadOffer(place=p, size=size, cost=c, readers=readers) for p, c in (("near", near), ("wide", wide))]
        best = choose_cheapest_offer(offers)
        return best.place if best else ""

    assert [chosen(10**6, 1), chosen(10**9, 1), chosen(10**9, 4)] == ["near", "near", "wide"]
    assert choose_cheapest_offer([]) is None


def test_guessed_cost_grows_with_distance() -> None:
    kinds = ("memory", "disk", "shared", "network")
    assert sorted(kinds, key=lambda kind: guess_read_cost(kind).predict_seconds(10**8, 1)) == list(kinds)


class Slow(FileLocation):
    """A place on a clock of its own for each thread: 2 ms and 50 MB/s."""

    now = threading.local()

    @classmethod
    def clock(cls) -> float:
        return float(getattr(cls.now, "value", 0.0))

    def query_status(self) -> FileStatus:
        Slow.now.value = self.clock() + 1e-4
        return FileStatus(size=1 << 26, version="1")

    def read_bytes(self, offset: int, length: int, about: FileStatus) -> bytes:
        assert 0 <= offset <= about.size - length
        self.now.value = self.clock() + 0.002 + length / 50e6
        return b""

    def stream_bytes(self, offset: int, length: int, about: FileStatus) -> list[bytes]:  # type: ignore[override]
        raise NotImplementedError

    def list_names(self) -> list[str]:
        return []


def test_probe_fits_start_and_bandwidth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It predicts a size that was not fitted."""
    monkeypatch.setattr(locations, "open_location", lambda place: Slow(place, place))
    found = place_probe.measure_place("https://host/nr.faa", Slow.clock)
    assert [each.readers for each in found.cost.lines] == list(place_probe.READERS)
    for each in found.cost.lines:
        assert math.isclose(each.start_seconds, 0.002, rel_tol=1e-6)
        assert math.isclose(each.seconds_per_byte, 1 / 50e6, rel_tol=1e-6)
    for check in found.checks:
        assert math.isclose(check.predicted, check.measured, rel_tol=1e-6)
    assert len(found.checks) == len(place_probe.READERS)


class Unfair(Slow):
    """A place of 50 MB/s in all, of which the readers do not get the same: the n-th of them that asks waits for those before."""

    turn, lock = 0, threading.Lock()

    def read_bytes(self, offset: int, length: int, about: FileStatus) -> bytes:
        with self.lock:
            Unfair.turn += 1
            self.now.value = max(self.clock(), Unfair.turn * length / 50e6)
        return b""


def test_unequal_readers_are_predicted_by_their_total(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A part of 25 MB takes half a second alone, and four of them two: the last ends then, whoever was first."""
    monkeypatch.setattr(Unfair, "turn", 0)
    monkeypatch.setattr(Unfair, "now", threading.local())
    about = FileStatus(size=1 << 26, version="1")
    readers = [place_probe.ProbeReader(Unfair("https://host/nr.faa", ""), about) for _ in range(4)]
    assert math.isclose(place_probe._time_concurrent_reads(readers, 25_000_000, Unfair.clock), 2.0, rel_tol=1e-6)


@pytest.mark.parametrize("top", range(1, len(place_probe.LADDER)))
def test_predicted_size_is_held_out_if_there_are_enough(top: int) -> None:
    sizes, held_out = place_probe._choose_sizes(top)
    assert (held_out in sizes) is (top == 1) and len(sizes) >= 2 and max(sizes) == place_probe.LADDER[top]


def test_measured_costs_are_kept_per_node(shell: Shell, environment: Path, web: Web) -> None:
    content = os.urandom(1 << 20)
    url = web.put("nr.faa", content)
    path = shell.root / "nr.faa"
    path.write_bytes(content)
    (environment / "config" / "millrace.toml").write_text(rule(f"{shell.root}/nr.*", f"{web.url}/nr.*"))
    assert "a guess" in shell.run(f"millrace data locate {path}").out
    assert storage.best_path(path) == str(path)
    ended = shell.run("millrace data probe")
    assert ended.code == 0 and ended.out.startswith(f"{web.url}, by {url} (1.0 MB)"), ended.shown
    assert "1 at a time: start" in ended.out and "predicted" in ended.out
    told = json.loads(shell.run(f"millrace data locate --json {path}").out)[0]["places"][1]
    assert told["measured"] and told["place"] == url
    found = cost_table.read_cost_table(os.environ)[web.url]
    assert {sample.readers for sample in found.samples} == {1, 4} and {4096, 1 << 14} < {s.size for s in found.samples}
    # The table is what decides: a disk that is slower than the server.
    slow = ReadCost(lines=(line(1, 100.0, 1.0),))
    disk = MeasuredCost(place=str(path), size=1, cost=slow, checks=found.checks, when=found.when)
    cost_table.add_measurement(disk, os.environ)
    assert storage.best_path(path) == shell.run(f"millrace data best-path {path} --readers 40").out.strip() == url


@pytest.mark.parametrize(
    ("size", "readers", "seconds"), [(9000, 1, 1.0), (90_000, 2, 3.0), (90_000, 9, 8.0), (200_000, 1, 6.0)]
)
def test_nearest_sample_is_taken_without_a_formula(size: int, readers: int, seconds: float) -> None:
    samples = [(1, 4096, 1.0), (1, 100_000, 3.0), (4, 100_000, 8.0)]
    cost = NearestSampleCost(samples=tuple(ReadSample(readers=n, size=s, seconds=t) for n, s, t in samples))
    assert cost.predict_seconds(size, readers) == seconds


#: A server that a line says to be better for all files, and that is better for large ones alone.
WIDE = ((4096, 0.01), (1 << 20, 0.02), (1 << 24, 0.03))


@pytest.mark.slow
def test_cost_model_of_the_settings_decides(shell: Shell, environment: Path, web: Web) -> None:
    content = os.urandom(9000)
    path, url = shell.work / "nr.faa", web.put("nr.faa", content)
    path.write_bytes(content)
    for place, cost, samples in ((str(path), line(1, 0.1, 1e-9), ((4096, 0.001),)), (url, line(1, 0.01, 1e-9), WIDE)):
        kept = tuple(ReadSample(readers=1, size=n, seconds=t) for n, t in samples)
        cost_table.add_measurement(
            MeasuredCost(place=place, size=1, cost=ReadCost(lines=(cost,)), checks=(), when=1.0, samples=kept),
            os.environ,
        )
    settings = environment / "config" / "millrace.toml"
    replica = rule(f"{shell.work}/nr.*", f"{web.url}/nr.*")
    ask = "millrace data best-path nr.faa"
    for costs, best in (("", url), ('costs = "fitted"\n', url), ('costs = "nearest"\n', str(path))):
        settings.write_text(costs + replica)
        assert shell.run(ask).out == f"{best}\n"
    settings.write_text('costs = "theirs"\n' + replica)
    for line_ in (ask, "millrace run -- cat in.fa", "millrace plan -- cat in.fa"):
        ended = shell.run(line_)
        assert ended.code == 2, ended.shown
        assert (
            "costs = 'theirs': no such model of costs is installed" in ended.err
            and "known are fitted, nearest" in ended.err
        )
    packages = install_model(
        shell, "def estimate_cost(place, samples):\n    return Tape(len(samples)) if '://' in place else None\n"
    )
    ask, locate = f"PYTHONPATH={packages} {ask}", f"PYTHONPATH={packages} millrace data locate nr.faa"
    assert shell.run(ask).out == f"{path}\n"
    assert f"{url}  9.0 kB in 93 s, measured by theirs" in shell.run(locate).out
    install_model(shell, "def estimate_cost(place, samples):\n    raise KeyError('no tape')\n")
    ended = shell.run(ask)
    assert ended.code == 2 and "costs = 'theirs': it fails for " in ended.err and "no tape" in ended.err, ended.shown
    install_model(shell, "estimate_cost = 1\n")
    assert "theirs:estimate_cost is no function" in shell.run(ask).err


def install_model(shell: Shell, body: str) -> Path:
    """Install a package with a model of costs, as pip would; its folder."""
    packages = shell.root / "packages"
    (info := packages / "theirs-1.0.dist-info").mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[millrace.costs]\ntheirs = theirs:estimate_cost\n")
    (packages / "theirs.py").write_text(TAPE + body)
    return packages


TAPE = """
class Tape:
    def __init__(self, n_samples):
        self.seconds = 90 + n_samples

    def predict_seconds(self, size, readers):
        return self.seconds + size * 1e-9

"""


BEST = """
#include "millrace.h"
int main(int argc, char **argv)
{
    char *best = millrace_best_path(argv[argc - 1], 40);
    puts(best ? best : "none");
    free(best);
    return 0;
}
"""


@pytest.mark.parametrize("compiler", ["gcc -std=c99 -x c", "g++ -std=c++11 -x c++"])
def test_c_program_asks_for_the_cheapest_place(shell: Shell, environment: Path, web: Web, compiler: str) -> None:
    url = web.put("nr.faa", b">a\nMKV\n")
    (environment / "config" / "millrace.toml").write_text(rule("/nowhere/nr.*", f"{web.url}/nr.*"))
    (shell.work / "best.c").write_text(BEST)
    made = shell.run(f'{compiler} -Wall -Wextra -Werror -I"$(millrace tool include-dir)" best.c -o best')
    assert made.code == 0, made.shown
    assert shell.run("echo this | ./best /nowhere/nr.faa").out == f"{url}\n"
    none = shell.run("./best -nowhere")
    assert none.out == "none\n" and "-nowhere: no such file" in none.err, none.shown
    assert shell.run("PATH=/nowhere ./best /nowhere/nr.faa").out == "none\n"


ASK_OFTEN = """
#include "millrace.h"
#include <signal.h>
int main(int argc, char **argv)
{
    int k;
    for (k = 1; k < argc; k++) {
        if (k == 3)
            kill(millrace_paths_.child, SIGKILL); /* it is replaced */
        char *best = millrace_replicated_path(argv[k], 1, 2);
        puts(best ? best : "none");
        free(best);
    }
    fflush(stdout);
    if (fork() == 0) { /* has a process of its own to ask */
        char *best = millrace_best_path(argv[1], 1);
        puts(best ? best : "none");
        return 0;
    }
    return wait(NULL) < 0;
}
"""


def test_c_program_starts_one_process_for_all_questions(shell: Shell, environment: Path, web: Web) -> None:
    url = web.put("nr.faa", b">a\nMKV\n")
    (environment / "config" / "millrace.toml").write_text(f'stage = "{shell.root}"\n')
    (shell.work / "ask.c").write_text(ASK_OFTEN)
    (shell.work / "seen").mkdir()
    (shell.work / "seen" / "millrace").write_text(
        f'#!/bin/sh\necho "$@" >> {shell.work}/started\nexec {shell.root}/bin/millrace "$@"\n'
    )
    (shell.work / "seen" / "millrace").chmod(0o755)
    made = shell.run('gcc -std=gnu99 -Wall -Wextra -Werror -I"$(millrace tool include-dir)" ask.c -o ask')
    assert made.code == 0, made.shown
    (shell.work / "a file").write_text("x")
    ended = shell.run(f"PATH={shell.work}/seen:$PATH ./ask {url} 'a file' none {url} > out; cat out")
    copy, *others = ended.out.splitlines()
    assert Path(copy).read_bytes() == b">a\nMKV\n" and copy.startswith(f"{shell.root}/millrace-stage-"), ended.shown
    assert others == [f"{shell.work}/a file", "none", copy, copy] and "none: no such file" in ended.err, ended.shown
    assert (shell.work / "started").read_text() == "data best-path --serve\n" * 3 and web.n_downloads == 1


def test_staged_copy_is_a_place_until_the_file_changes(shell: Shell, environment: Path, web: Web) -> None:
    url = web.put("nr.faa", b"old")
    (shell.root / "copies").mkdir()
    copy = shell.run(f"millrace data stage {url} --to {shell.root}/copies").out.strip()
    assert Path(copy).read_bytes() == b"old"
    assert shell.run(f"millrace data best-path {url}").out.strip() == storage.best_path(url) == copy
    assert f"  {copy}  3 B in " in shell.run(f"millrace data locate {url}").out
    assert copy in shell.run("millrace data list").out
    web.put("nr.faa", b"new")
    assert storage.best_path(url) == url
    assert Path(storage.best_path(url, replicate=True)).read_bytes() == b"new"


def test_replicated_copy_is_found_by_the_next_process(shell: Shell, environment: Path, web: Web) -> None:
    content = os.urandom(100_000)
    url = web.put("nr.faa", content)
    (environment / "config" / "millrace.toml").write_text(
        f'stage = "{shell.root}"\n' + rule("/nowhere/nr.*", f"{web.url}/nr.*")
    )
    path = storage.best_path("/nowhere/nr.faa", readers=4, reads=3, replicate=True)
    assert Path(path).read_bytes() == content and path.startswith(f"{shell.root}/millrace-stage-")
    (environment / "config" / "millrace.toml").write_text(rule("/nowhere/nr.*", f"{web.url}/nr.*"))
    for words in ("/nowhere/nr.faa --replicate", "/nowhere/nr.faa", url):
        assert shell.run(f"millrace data best-path {words}").out == f"{path}\n"
    assert web.n_downloads == 1


@pytest.mark.parametrize(("reads", "is_copied"), [(1, False), (2, False), (10, True)])
def test_copy_pays_from_some_number_of_reads(reads: int, is_copied: bool) -> None:
    """A share of 100 MB/s that keeps nothing: a copy costs one read of it, and 0.3 s."""
    offers = [ReadOffer(place="/share/nr", size=10**7, cost=guess_read_cost("shared"), readers=1)]
    copy = ReadOffer(place="/tmp/copy", size=10**7, cost=guess_read_cost("disk"), readers=1, is_kept=True)
    found = choose_path(offers, copy, reads)
    assert found.is_copied is is_copied and found.offer is offers[0]
    assert choose_path(offers, copy, reads, needs_copy=True).is_copied


def test_stage_leaves_in_place_what_does_not_pay(shell: Shell, environment: Path) -> None:
    (shell.work / "nr.faa").write_bytes(b"x" * 5000)
    (shell.root / "copies").mkdir()
    line = f"millrace data stage nr.faa --to {shell.root}/copies"
    ended = shell.run(f"{line} --reads 7")
    assert ended.out == f"{shell.work}/nr.faa\n" and ended.code == 0, ended.shown
    assert "nr.faa: left in place: 7 reads there take 0 ms, with a copy 300 ms (--all copies it)" in ended.err
    copy = shell.run(f"{line} --all").out.strip()
    assert copy.startswith(f"{shell.root}/copies/") and Path(copy).read_bytes() == b"x" * 5000


def test_file_that_cannot_be_copied_is_read_in_place(shell: Shell, environment: Path, web: Web) -> None:
    """Its cheapest source tells no version, so no copy of it can be kept."""
    url = web.put("nr.faa", b"x" * 5000)
    web.tells_version = False
    (shell.work / "nr.faa").write_bytes(b"x" * 5000)
    (environment / "config" / "millrace.toml").write_text(rule(f"{shell.work}/nr.*", f"{web.url}/nr.*"))
    slow = ReadCost(lines=(line(1, 100.0, 1.0),))
    disk = MeasuredCost(place=str(shell.work), size=1, cost=slow, checks=(), when=1.0, is_kept=False)
    cost_table.add_measurement(disk, os.environ)
    ended = shell.run("millrace data stage nr.faa --to /dev/shm")
    assert ended.code == 0 and ended.out == f"{shell.work}/nr.faa\n", ended.shown
    assert f"cannot be copied: {url}: its server tells neither" in ended.err, ended.shown
    ended = shell.run(f"millrace data best-path --replicate {url}")
    assert ended.code == 1 and "tells neither ETag nor date" in ended.err, ended.shown


def test_damaged_or_foreign_cost_table_is_ignored(environment: Path) -> None:
    path = cost_table.find_table_path(os.environ)
    assert path
    path.parent.mkdir(parents=True)
    path.write_text('{"https://host": 3')
    assert cost_table.read_cost_table(os.environ) == {}
    if os.geteuid() == 0:
        os.chown(path.parent, 12345, 12345)
        assert cost_table.find_table_path(os.environ) is None


def test_probe_reports_what_it_cannot_measure(shell: Shell, web: Web) -> None:
    """It measures the other places."""
    good = web.put("nr.faa", os.urandom(1 << 20))
    small = web.put("small", b"x")
    ended = shell.run(f"millrace data probe {small} {web.url}/none {good}")
    assert ended.code == 1 and f"{small}: too small" in ended.err and f"{web.url}/none: no such file" in ended.err
    assert f"by {good}" in ended.out
    web.ranges = False
    ended = shell.run(f"millrace data probe {good}")
    assert ended.code == 1 and "gives no parts of files" in ended.err and not ended.out


def test_file_without_a_place_is_refused_with_each_reason(environment: Path, web: Web) -> None:
    (environment / "config" / "millrace.toml").write_text(rule("/nowhere/nr.*", f"{web.url}/nr.*"))
    with pytest.raises(RefusedError) as told:
        storage.best_path("/nowhere/nr.faa")
    assert f"/nowhere/nr.faa: no such file; {web.url}/nr.faa: no such file" in told.value.message


def test_readers_share_a_server_or_a_filesystem(tmp_path: Path) -> None:
    assert cost_table.find_server("sftp://me@host:22/db/nr") == "sftp://host:22"
    assert cost_table.find_server("s3://bucket/a/b") == "s3://bucket"
    assert os.path.ismount(cost_table.find_server(str(tmp_path / "none")))


def test_probe_without_rules_asks_for_a_place(shell: Shell) -> None:
    ended = shell.run("millrace data probe")
    assert ended.code == 2 and "name a file or a URL" in ended.err, ended.shown
