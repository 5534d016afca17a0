"""``--notify`` and ``--metrics``: what other programs get while a run lasts and at its end, and that they cannot harm it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from harness import wait_until
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus
from shell import Shell

NOTIFY = "--notify 'cat > ../notice.$$.json'"


def read_notices(shell: Shell) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in shell.root.glob("notice.*.json")]
    return sorted(found, key=lambda notice: notice["event"] == "end")


def read_metrics(text: str) -> dict[str, float]:
    """Value of each metric; both parsers must read the same."""
    found = {}
    for parse in (parse_openmetrics, parse_prometheus):
        read = {sample.name: sample for family in parse(text) for sample in family.samples}
        values = {name: sample.value for name, sample in read.items()}
        assert not found or found == {**values, "status": read["millrace_status"].labels["status"]}
        found = {**values, "status": read["millrace_status"].labels["status"]}
    return found


def test_notice_of_a_run_that_is_done_has_its_summary(shell: Shell) -> None:
    done = shell.run(f"millrace run -q {NOTIFY} --metrics m.prom --input in.fa --output o -- tee2 in.fa o")
    assert done.code == 0, done.shown
    (end,) = read_notices(shell)
    assert (end["event"], end["exit_code"], end["message"], end["argv"]) == ("end", 0, "", ["tee2", "in.fa", "o"])
    assert end["summary"]["records_done"] == 3 and end["run_dir"].endswith("o.millrace")
    metrics = read_metrics((shell.work / "m.prom").read_text())
    assert (metrics["status"], metrics["millrace_records_done"]) == ("done", 3)
    assert (
        metrics["millrace_input_bytes_done"] == metrics["millrace_input_bytes"] == (shell.work / "in.fa").stat().st_size
    )


def test_notice_of_trouble_comes_once_and_before_the_end(shell: Shell) -> None:
    done = shell.run(f"millrace run -q {NOTIFY} --metrics m.prom --batch 1 --format fasta -- bad2 < in.fa")
    assert done.code == 3, done.shown
    trouble, end = read_notices(shell)
    assert trouble["kind"] == "quarantined" and "record 2 (r2) is quarantined" in trouble["message"]
    assert (end["exit_code"], end["summary"]["status"]) == (3, "quarantined")
    metrics = read_metrics((shell.work / "m.prom").read_text())
    assert (metrics["status"], metrics["millrace_records_quarantined"]) == ("quarantined", 1)


def test_notice_of_a_job_in_phases_comes_once(shell: Shell) -> None:
    (shell.work / "job.toml").write_text(
        'notify = "cat > ../notice.$$.json"\n[phase.a]\nfilter = "cat"\ninput = "in.fa"\noutput = "a.fa"\n'
    )
    done = shell.run("millrace run -q job.toml")
    assert done.code == 0, done.shown
    (end,) = read_notices(shell)
    assert (end["exit_code"], end["argv"], Path(end["run_dir"]).name) == (0, ["job.toml"], "job.millrace")
    done = shell.run("millrace run -q --metrics m.prom job.toml")
    assert done.code == 2 and "a job in phases has no such file" in done.err, done.shown


def test_notice_of_a_refused_command_has_the_reason(shell: Shell) -> None:
    done = shell.run(f"millrace run {NOTIFY} -- blastp -query none.fa -db none")
    assert done.code == 2, done.shown
    (end,) = read_notices(shell)
    assert end["exit_code"] == 2 and end["message"] in done.err and end["summary"] is None


def test_notifier_that_fails_or_hangs_does_no_harm(shell: Shell) -> None:
    command = "millrace run --batch 1 --grace 2 --notify '{}' --input in.fa --output o -- tee2 in.fa o"
    done = shell.run(command.format("exit 7"))
    assert done.code == 0 and "--notify: the command ended with exit status 7" in done.err, done.shown
    shell.run("rm o")
    done = shell.run(command.format("sleep 600"))
    assert done.code == 0 and "had not ended after 10 s, and was killed" in done.err, done.shown
    assert (shell.work / "o").read_text() == (shell.work / "in.fa").read_text()
    assert not [line for line in shell.processes() if "sleep 600" in line]


def test_metrics_of_an_interrupted_run_say_so(shell: Shell) -> None:
    line = "exec millrace run -q --metrics m.prom --format fasta -- slow < in.fa > o"
    environ = {**os.environ, "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}", "MARK": str(shell.root)}
    with subprocess.Popen(["bash", "-c", line], cwd=shell.work, env=environ) as process:
        metrics = shell.work / "m.prom"
        assert wait_until(metrics.exists)
        assert read_metrics(metrics.read_text())["status"] == "running"
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM
    assert read_metrics(metrics.read_text())["status"] == "interrupted"


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("no/m.prom", "cannot be written: No such file"),
        ("/proc/m.prom", "cannot be written"),
        (".", "is a folder"),
        ("other", "no file of metrics"),
        ("in.fa", "is input"),
        ("out.fa", "is output"),
    ],
)
def test_metrics_file_at_a_bad_place_is_refused(shell: Shell, place: str, why: str) -> None:
    before = (shell.work / "in.fa").read_text()
    (shell.work / "other").write_text("a")
    done = shell.run(f"millrace plan --metrics {place} --input in.fa --output out.fa -- tee2 in.fa out.fa")
    assert done.code == 2 and why in done.err, done.shown
    assert (shell.work / "in.fa").read_text() == before


def test_metrics_that_cannot_be_written_warn_once(shell: Shell) -> None:
    (shell.work / "m.prom.new").mkdir()  # where the file grows
    done = shell.run("millrace run --metrics m.prom --format fasta -- copy < in.fa")
    assert (done.code, done.out) == (0, (shell.work / "in.fa").read_text()), done.shown
    assert done.err.count("m.prom: cannot be written: Is a directory; the run goes on") == 1, done.shown


def test_metrics_page_of_watch_has_the_figures(kept: Shell) -> None:
    environ = {**os.environ, "PATH": f"{kept.root / 'bin'}:{os.environ['PATH']}", "MARK": str(kept.root)}
    with subprocess.Popen(
        ["millrace", "watch", "--web", "out.fa"], cwd=kept.work, env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        page = process.stdout.readline().strip()
        with urlopen(page.replace("/?", "/metrics?"), timeout=300) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            metrics = read_metrics(answer.read().decode())
        with pytest.raises(HTTPError, match="403"):
            urlopen(page.partition("?")[0] + "metrics", timeout=300)
        urlopen(page, timeout=300).close()  # the last page: the view ends
    assert (process.returncode, metrics["status"], metrics["millrace_records_done"]) == (0, "done", 60)
