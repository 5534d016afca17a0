"""The report: complete in itself, right in its figures, and quiet in a real browser."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from event_stories import story, write
from headless_browser import browser

from millrace.core.errors import MillraceError
from millrace.report import charts, html_report
from millrace.report.event_log import load_runs
from millrace.report.events import (
    AnyLogEvent,
    EndEvent,
    QuarantineEvent,
    RunEvent,
    TaskEvent,
    VolumesEvent,
    read_events,
)
from millrace.report.html_report import make_remarks
from millrace.report.summary import summarise_runs

pytestmark = pytest.mark.process


def report(tmp_path: Path, events: list[AnyLogEvent]) -> str:
    run_dir = tmp_path / "hits.tsv.millrace"
    run_dir.mkdir()
    write(run_dir / "events.jsonl", events)
    html_report.write_report(run_dir, tmp_path / "report.html")
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def own(page: str) -> str:
    """The page without the chart library, which names addresses but is never told to load them."""
    return page.replace(max(re.split(r"<script>|</script>", page), key=len), "")


def chart_data(page: str) -> Any:
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_page_names_no_address_and_forbids_loading(tmp_path: Path) -> None:
    page = report(tmp_path, story())
    assert page.count("plotly.js v") <= 2
    assert not re.search(r"https?://|//cdn", own(page))
    assert "default-src 'none'" in page
    assert not list(tmp_path.glob("*.new"))


def test_names_and_tool_output_are_escaped(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x>"
    page = report(
        tmp_path,
        [
            RunEvent(argv=["blastp", evil], tool=evil),
            TaskEvent(t=1, last=2, status="failed", detail=evil),
            QuarantineEvent(t=1, record=0, name=evil, reason=evil),
        ],
    )
    assert "<script>alert" not in page and "<img" not in own(page)
    text = chart_data(page)["timeline"]["kinds"]["failed"]["text"][0]
    assert "<script" not in text and "&lt;script" in text


def test_every_task_is_a_bar_and_runs_follow_one_another(tmp_path: Path) -> None:
    events = story(n_tasks=100)
    data = chart_data(report(tmp_path, events))
    kinds = data["timeline"]["kinds"]
    n_tasks = sum(isinstance(event, TaskEvent) for event in events)
    assert sum(len(kind["start"]) for kind in kinds.values()) == n_tasks
    assert set(kinds) == {"done", "failed"}
    (resumed,) = data["resumes"]
    assert 0 < resumed < data["length"]
    # 40 of 100 batches came before the kill; a culprit makes several tasks of one batch.
    assert sum(start < resumed for start in kinds["done"]["start"]) < n_tasks / 2


def test_charts_add_up_to_the_work_done(tmp_path: Path) -> None:
    runs = load_runs(read_events(write(tmp_path / "events.jsonl", story(n_tasks=300))))
    along = charts.make_axis(runs)
    through = charts.make_throughput(runs, along)
    step = along.length / (len(through["x"]) - 1)
    summary = summarise_runs(runs)
    assert sum(through["y"][:-1]) * step == pytest.approx(summary.units_done, rel=1e-3)
    load_ = charts.make_load(runs, along)
    assert sum(load_["cores"][:-1]) * step == pytest.approx(summary.cpu, rel=1e-3)
    assert max(load_["busy"]) <= 8.01
    cost = charts.make_cost_classes([task for run in runs for task in run.done_tasks])
    assert sum(cost["records"]) == summary.records_done
    assert sum(cost["share"]) == pytest.approx(1, abs=0.01)


def test_very_many_tasks_make_a_small_page(tmp_path: Path) -> None:
    page = report(tmp_path, story(n_tasks=30_000, slots=200))
    assert len(page) < 8_000_000
    timeline = chart_data(page)["timeline"]
    assert timeline["kind"] == "shares" and len(timeline["share"]) <= 64
    assert sum(map(sum, timeline["count"])) > 30_000
    assert all(0 <= share <= 1 for row in timeline["share"] for share in row)


@pytest.mark.parametrize("events", [[RunEvent(slots=4)], story(1, 1, None, 0), [TaskEvent(t=1, last=1)]])
def test_nearly_empty_run_has_a_report(tmp_path: Path, events: list[AnyLogEvent]) -> None:
    assert "records done" in report(tmp_path, events)


def test_no_events_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(MillraceError, match=r"no events.jsonl\n\nhint: give the run directory"):
        html_report.write_report(tmp_path, tmp_path / "report.html")
    (tmp_path / "events.jsonl").touch()
    with pytest.raises(MillraceError, match="no events yet"):
        html_report.write_report(tmp_path, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_remark_counts_volumes_searched_locally() -> None:
    runs = load_runs(
        [RunEvent(), VolumesEvent(searches=32, local=31, volume_bytes=64_000_000, range_bytes=5000), EndEvent()]
    )
    assert make_remarks(runs, summarise_runs(runs))[-1].startswith(
        "fragments in HDFS: 31 of 32 searches on nodes that had theirs; 64 MB"
    )


def test_remarks_name_the_largest_costs_of_time() -> None:
    def said(*tasks: TaskEvent, slots: int = 2) -> str:
        runs = load_runs({"event": "run", "slots": slots} if not task else _dict(task) for task in (None, *tasks))
        return " ".join(make_remarks(runs, summarise_runs(runs)))

    waiting = [TaskEvent(slot=i % 2, start=i // 2, t=i // 2 + 1, first=i, last=i + 1, cpu=0.3) for i in range(20)]
    assert "had a core only 30 % of the time" in said(*waiting)
    assert "In the last 9.0 s some slots" in said(
        TaskEvent(slot=0, t=1, last=1, cpu=1), TaskEvent(slot=1, t=10, first=1, last=2, cpu=10)
    )


def _dict(task: TaskEvent) -> dict[str, Any]:
    return {"event": "task", **{name: getattr(task, name) for name in task.__struct_fields__}}


@pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not installed")
@pytest.mark.parametrize(
    "events",
    [
        pytest.param(story(), id="resumed"),
        pytest.param(story(n_tasks=8000, slots=96), id="large", marks=pytest.mark.slow),
        pytest.param([RunEvent(slots=4)], id="no task", marks=pytest.mark.slow),
    ],
)
def test_browser_draws_the_page_without_errors_or_requests(tmp_path: Path, events: list[AnyLogEvent]) -> None:
    report(tmp_path, events)
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr",
        # No host is found, so a request of the page would be an error on the console.
        "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=10000", "--dump-dom", f"file://{tmp_path}/report.html",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    drawn = re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)
    n_charts = drawn.count('class="main-svg"')
    assert n_charts >= 3, "charts are missing"


@pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not installed")
@pytest.mark.parametrize("share", [0.01, pytest.param(0.5, marks=pytest.mark.slow), 0.99])
def test_resume_label_is_visible_as_a_whole(tmp_path: Path, share: float) -> None:
    """Wherever the run went on, also at the edges of the chart."""
    before, after = 1000 * share, 1000 * (1 - share)
    report(tmp_path, [
        RunEvent(slots=1), TaskEvent(t=before, last=1, cpu=before), EndEvent(t=before, status="interrupted"),
        RunEvent(slots=1, records_resumed=1), TaskEvent(t=after, first=1, last=2, cpu=after), EndEvent(t=after, status="done"),
    ])  # fmt: skip
    with browser(tmp_path / "profile") as page:
        for width in (1400, 400):
            page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            page.call("Page.navigate", url=f"file://{tmp_path}/report.html")
            page.wait_for("document.querySelectorAll('#timeline .annotation').length == 1")
            box = "document.querySelector('#timeline .annotation').getBoundingClientRect()"
            chart = "document.querySelector('#timeline .main-svg').getBoundingClientRect()"
            assert page.value(f"{box}.width > 20 && {box}.left >= {chart}.left && {box}.right <= {chart}.right")
