"""`millrace watch`: what a run directory tells while the run goes on, and how the view ends."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from harness import wait_until
from headless_browser import browser
from shell import Shell

from millrace.extensions.watch.token_site import TokenSite, WebPage, serve_site

RUN = "run -q --slots 1 --batch 1 --verify 0 --format fasta --input in.fa --output o -- gate in.fa o"


def environ(shell: Shell) -> dict[str, str]:
    return {**os.environ, "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}", "MARK": str(shell.root)}


@contextmanager
def started(shell: Shell, line: str, **more: int) -> Iterator[subprocess.Popen[bytes]]:
    """A command of Millrace at work; killed, if it has not ended by itself."""
    with subprocess.Popen(
        ["millrace", *line.split()], cwd=shell.work, env=environ(shell), stdin=subprocess.DEVNULL, **more
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def gate(shell: Shell) -> Iterator[Path]:
    """A tool waits for this file before it does the last record."""
    opened = shell.root / "open"
    waits = f'case $(cat "$1") in *r3*) : > "{shell.root}/waits"; while [ ! -e "{opened}" ]; do sleep 0.1; done;; esac'
    shell.tool("gate", f'{waits}; cat "$1" > "$2"')
    yield opened
    opened.touch()


def wait_at_the_gate(shell: Shell) -> None:
    assert wait_until((shell.root / "waits").exists)


def test_watch_prints_a_line_per_change_and_ends_with_run(shell: Shell, gate: Path) -> None:
    """The exit code of the view is that of the run."""
    with started(shell, RUN) as run:
        wait_at_the_gate(shell)
        with started(shell, "watch", stdout=subprocess.PIPE) as watch:
            assert watch.stdout
            first = watch.stdout.readline().decode()
            assert first.startswith("o.millrace: running, "), first
            gate.touch()
            rest = watch.stdout.read().decode().splitlines()
            assert (run.wait(300), watch.wait(300)) == (0, 0), rest
    assert rest[-1].startswith("o.millrace: done, 3 records"), rest


def test_interrupted_watch_does_not_stop_the_run(shell: Shell, gate: Path) -> None:
    """A run that is killed ends the view."""
    with started(shell, RUN) as run:
        wait_at_the_gate(shell)
        with started(shell, "watch o.millrace", stdout=subprocess.PIPE) as watch:
            assert watch.stdout and watch.stdout.readline()
            watch.send_signal(signal.SIGINT)
            assert watch.wait(300) == 128 + signal.SIGINT
        with started(shell, "watch o.millrace", stdout=subprocess.PIPE) as watch:
            assert watch.stdout and b"running" in watch.stdout.readline()
            run.kill()
            assert b"o.millrace: killed" in watch.stdout.read()
            assert watch.wait(300) == 1
    gate.touch()


def test_watch_after_the_end_reports_the_outcome(shell: Shell) -> None:
    assert shell.run("millrace run -q --slots 1 --batch 1 --format fasta -- bad2 < in.fa > o").code == 3
    (run_dir,) = shell.run_dirs()
    ended = shell.run(f"millrace watch {run_dir}")
    assert ended.code == 3, ended.shown
    assert re.fullmatch(rf"{run_dir}: quarantined, 2 records, 1 retry, 1 quarantined, .*\n", ended.out), ended.shown


def test_terminal_shows_nodes_and_failures(shell: Shell) -> None:
    assert shell.run("millrace run -q --slots 1 --batch 1 --format fasta -- bad2 < in.fa > o").code == 3
    (run_dir,) = shell.run_dirs()
    terminal, end = pty.openpty()
    line = ["millrace", "watch", run_dir]
    with subprocess.Popen(
        line, cwd=shell.work, env={**environ(shell), "COLUMNS": "100"}, stdin=end, stdout=end
    ) as watch:
        os.close(end)
        shown = b""
        try:
            while block := os.read(terminal, 1 << 16):
                shown += block
        except OSError:  # EIO: the other end is closed
            pass
    os.close(terminal)
    text = shown.decode()
    assert watch.returncode == 3, text
    assert os.uname().nodename in text and "last task" in text
    assert "record 2 (r2) quarantined:" in text


def test_phases_are_shown_and_reported(shell: Shell, gate: Path) -> None:
    (shell.work / "job.toml").write_text(
        'keep-run-dir = true\n[phase.one]\ncommand = "cat"\nstdin = "in.fa"\nstdout = "a.fa"\nformat = "fasta"\n'
        '[phase.two]\ncommand = "gate a.fa b.fa"\ninput = "a.fa:fasta"\noutput = "b.fa"\nbatch = "1"\nverify = 0\n'
    )
    with started(shell, "run -q job.toml") as run:
        wait_at_the_gate(shell)
        with started(shell, "watch", stdout=subprocess.PIPE) as watch:
            assert watch.stdout
            first = watch.stdout.readline().decode()
            assert first.startswith("job.millrace: running; one ") and "; two running" in first, first
            gate.touch()
            last = watch.stdout.read().decode().splitlines()[-1]
            assert (run.wait(300), watch.wait(300)) == (0, 0), last
    assert re.match(r"job\.millrace: done; one done, 3 records, .*; two done, 3 records", last), last
    ended = shell.run("millrace report job.millrace")
    assert ended.code == 0, ended.shown
    page = (shell.work / "job.millrace/report.html").read_text()
    assert "Phases over time" in page and '"names":["one","two"]' in page and len(page) < 500_000
    if shutil.which("chromium"):
        with browser(shell.root / "profile") as shown:
            shown.call("Page.navigate", url=f"file://{shell.work}/job.millrace/report.html")
            shown.wait_for("document.querySelectorAll('.chart canvas').length == 2")
            assert shown.count_coloured("phases") > 1000 and shown.count_coloured("busy") > 1000
            # A phase that is clicked away in the key leaves the sum.
            sums = "plots.get('busy').data[2]"
            both = shown.value(f"Math.max(...{sums})")
            shown.value("document.querySelectorAll('#busy .u-legend .u-label')[0].click()")
            shown.wait_for(
                f"!plots.get('busy').series[1].show && Math.max(...{sums}) == Math.max(...data.busy.phases[1].y)"
            )
            assert both >= shown.value("Math.max(...data.busy.phases[0].y)")
            assert [each for each in shown.complaints if "willReadFrequently" not in each] == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("watch", "no run goes on in this folder"),
        ("watch no", "no: no run here"),
        ("watch --port 8080 in.fa", "--port belongs to --web"),
        ("watch --web a b", "--web shows one run, and these are 2"),
    ],
)
def test_unwatchable_path_is_refused(shell: Shell, line: str, words: str) -> None:
    ended = shell.run(f"millrace {line}")
    assert ended.code == 2 and words in ended.err, ended.shown


@pytest.fixture
def site() -> Iterator[TokenSite]:
    with serve_site(0, {"/": lambda: WebPage("the page")}) as made:
        yield made


def asked(site: TokenSite, method: str, path: str, host: str) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", site.server_port, timeout=300)
    try:
        connection.putrequest(method, path, skip_host=True)
        if host:
            connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_page_needs_the_token_and_local_address(site: TokenSite) -> None:
    here, query = f"127.0.0.1:{site.server_port}", urlsplit(site.url).query
    assert asked(site, "GET", f"/?{query}", here) == (200, b"the page")
    assert asked(site, "GET", f"/?{query}", f"LOCALHOST:{site.server_port}") == (200, b"the page")
    assert asked(site, "GET", f"/other?{query}", here) == (404, b"")
    for path in ("/", "/?token=", f"/?{query}x", f"/?{query[:-1]}", "/?token=%C3%A9", "/other"):
        assert asked(site, "GET", path, here) == (403, b""), path
    for host in (
        "",
        "evil.example",
        f"evil.example:{site.server_port}",
        "127.0.0.1",
        f"127.0.0.1:{site.server_port}.evil",
    ):
        assert asked(site, "GET", f"/?{query}", host) == (403, b""), host
    for method in ("POST", "PUT", "OPTIONS", "TRACE"):
        assert asked(site, method, f"/?{query}", here) == (403, b""), method
    assert site.server_address[0] == "127.0.0.1"


def test_responses_restrict_what_a_page_loads(site: TokenSite) -> None:
    connection = HTTPConnection("127.0.0.1", site.server_port, timeout=300)
    connection.request("GET", f"/?token={site.token}")
    policy = connection.getresponse().headers["Content-Security-Policy"]
    connection.close()
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "base-uri 'none'" in policy


def test_failed_page_reports_its_reason() -> None:
    def fails() -> WebPage:
        raise ModuleNotFoundError("No module named '<b>'")

    with serve_site(0, {"/": fails}) as site:
        status, text = asked(site, "GET", f"/?token={site.token}", f"127.0.0.1:{site.server_port}")
    assert (status, b"cannot be made: ModuleNotFoundError" in text, b"<b>" in text) == (500, True, False)


def test_last_page_counts_as_seen_after_sending() -> None:
    with serve_site(0, {"/": lambda: WebPage("more follows"), "/last": lambda: WebPage("all", last=True)}) as site:
        here, query = f"127.0.0.1:{site.server_port}", urlsplit(site.url).query
        assert asked(site, "GET", "/last", here) == (403, b"")
        assert asked(site, "GET", f"/?{query}", here) == (200, b"more follows")
        assert not site.told.is_set()
        assert asked(site, "GET", f"/last?{query}", here) == (200, b"all")
        assert site.told.wait(300)


#: A name that came into the page as markup: what becomes of the script in it.
MARKUP = """new Promise(done => {
    document.addEventListener("securitypolicyviolation", event => event.effectiveDirective.startsWith("script-src") && done("refused"));
    window.ran = () => done("ran");
    document.body.insertAdjacentHTML("beforeend", '<img src="data:,x" onerror="ran()">');
})"""


@pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not installed")
def test_browser_follows_a_run_without_other_requests(shell: Shell, gate: Path) -> None:
    with started(shell, RUN) as run:
        wait_at_the_gate(shell)
        with started(shell, "watch --web", stdout=subprocess.PIPE) as watch, browser(shell.root / "profile") as page:
            assert watch.stdout
            url = watch.stdout.readline().decode().strip()
            for width in (1400, 400):
                page.call(
                    "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
                )
                page.call("Page.navigate", url=url)
                page.wait_for("document.querySelectorAll('.chart canvas').length >= 3")
                assert page.value("document.querySelector('.pill').textContent") == "running"
                assert page.value("document.documentElement.scrollWidth") <= width
            gate.touch()
            page.wait_for("'over' in document.documentElement.dataset || 'lost' in document.documentElement.dataset")
            assert page.value("'lost' in document.documentElement.dataset") is False
            assert page.value("document.querySelector('.pill').textContent") == "done"
            assert page.value("document.querySelector('.figure').textContent") == "3"
            assert page.value("document.documentElement.scrollWidth") <= 400
            complaints = page.complaints
            assert page.value(MARKUP) == "refused"
            assert (run.wait(300), watch.wait(300)) == (0, 0)
    own = "{0.scheme}://{0.netloc}/".format(urlsplit(url))
    assert [each for each in page.requested if not each.startswith((own, "data:", "blob:", "about:"))] == []
    assert any("/content?" in each for each in page.requested)
    assert complaints == []
