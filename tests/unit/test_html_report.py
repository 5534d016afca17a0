"""The report: complete in itself, right in its figures, and quiet in a real browser."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from event_stories import story, write
from headless_browser import Browser, browser

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
    """The page without the chart library, which names its own address."""
    library = html_report.read_library()
    assert page.count(library) == 1
    return page.replace(library, "")


def chart_data(page: str) -> Any:
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_page_names_no_address_and_forbids_loading(tmp_path: Path) -> None:
    page = report(tmp_path, story())
    assert not re.search(r"https?://|//cdn", own(page))
    assert "default-src 'none'" in page and "unsafe" not in own(page)
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
    assert evil in chart_data(page)["timeline"]["kinds"]["failed"]["text"][0]


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


@pytest.mark.parametrize("n_tasks", [6, 400])
def test_page_of_few_tasks_is_far_below_a_megabyte(tmp_path: Path, n_tasks: int) -> None:
    page = report(tmp_path, story(n_tasks, 2, None, 0))
    assert len(chart_data(page)["timeline"]["kinds"]["done"]["start"]) == n_tasks
    assert len(page.encode()) < 200_000


def test_very_many_tasks_make_a_small_page(tmp_path: Path) -> None:
    page = report(tmp_path, story(n_tasks=30_000, slots=200))
    assert len(page) < 1_000_000
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
        runs = load_runs([RunEvent(slots=slots), *tasks, EndEvent(t=max(task.t for task in tasks))])
        return " ".join(make_remarks(runs, summarise_runs(runs)))

    waiting = [TaskEvent(slot=i % 2, start=i // 2, t=i // 2 + 1, first=i, last=i + 1, cpu=0.3) for i in range(20)]
    assert "had a core only 30 % of the time" in said(*waiting)
    assert "In the last 9.0 s some slots" in said(
        TaskEvent(slot=0, t=1, last=1, cpu=1), TaskEvent(slot=1, t=10, first=1, last=2, cpu=10)
    )


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not shutil.which("chromium"):
        pytest.skip("chromium is not installed")
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


def show_page(chromium: Browser, tmp_path: Path, events: list[AnyLogEvent], width: int = 1400) -> None:
    """Show the report, and forget what was shown before."""
    report(tmp_path, events)
    chromium.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    chromium.call("Page.navigate", url="about:blank")
    chromium.events.clear()
    chromium.call("Page.navigate", url=f"file://{tmp_path}/report.html")
    # uPlot draws in a microtask, before the next step of the page.
    chromium.wait_for("location.protocol == 'file:' && document.readyState == 'complete' && plots.size >= 3")


@pytest.mark.parametrize(
    ("events", "drawn"),
    [
        pytest.param(story(), ("timeline", "throughput", "load", "cost"), id="resumed"),
        pytest.param(story(n_tasks=8000, slots=96), ("timeline", "throughput", "load", "cost"), id="large"),
        pytest.param([RunEvent(slots=4)], (), id="no task"),
    ],
)
def test_browser_draws_each_chart_without_requests(
    chromium: Browser, tmp_path: Path, events: list[AnyLogEvent], drawn: tuple[str, ...]
) -> None:
    show_page(chromium, tmp_path, events)
    assert chromium.complaints == []
    assert [url for url in chromium.requested if not url.startswith("data:")] == [f"file://{tmp_path}/report.html"]
    assert {chart: chromium.count_coloured(chart) > 1000 for chart in drawn} == dict.fromkeys(drawn, True)
    light = chromium.value("css('accent')")
    chromium.value("document.getElementById('theme').click()")
    assert chromium.value("css('accent')") != light
    assert all(chromium.count_coloured(chart) > 1000 for chart in drawn)


def test_pointer_shows_facts_of_a_task_as_text(chromium: Browser, tmp_path: Path) -> None:
    """A tool's own words about its failure are no HTML."""
    evil = "<img src=data:,x onerror=alert(1)> & <b>bold</b>"
    show_page(chromium, tmp_path, [
        RunEvent(slots=2, unit="residues"),
        TaskEvent(t=4, cpu=3.5, last=1200, units=5000),
        TaskEvent(slot=1, t=4, first=1200, last=1300, status="failed", detail=evil),
        EndEvent(t=8, status="stopped"),
    ])  # fmt: skip
    chromium.move_mouse("#timeline .u-over", 0.25, 0.25)
    hint = "document.querySelector('.hint')"
    chromium.wait_for(f"!{hint}.hidden && {hint}.textContent.includes('done')")
    assert chromium.value(f"{hint}.innerText") == (
        "records 1-1200, 5.0 k residues\n4.0 s, 3.5 s CPU\nslot 1, attempt 1: done"
    )
    chromium.move_mouse("#timeline .u-over", 0.25, 0.75)
    chromium.wait_for(f"{hint}.textContent.includes('failed')")
    assert evil in chromium.value(f"{hint}.textContent")
    assert chromium.value(f"{hint}.childElementCount") == 0
    # Nothing ran in the second half of the time.
    chromium.move_mouse("#timeline .u-over", 0.75, 0.75)
    chromium.wait_for(f"{hint}.hidden")
    chromium.move_mouse("#load .u-over", 0.25, 0.5)
    chromium.wait_for(f"{hint}.textContent.includes('slots busy: 2.0 of 2')")
    assert chromium.complaints == []


def test_drag_zooms_and_double_click_goes_back(chromium: Browser, tmp_path: Path) -> None:
    show_page(chromium, tmp_path, story())
    shown = "(chart => [plots.get(chart).scales.x.min, plots.get(chart).scales.x.max].map(time => time / data.length))"
    for chart in ("timeline", "load"):
        place = f"#{chart} .u-over"
        assert chromium.value(f"{shown}('{chart}')") == [0, 1]
        chromium.move_mouse(place, 0.25, 0.5)
        chromium.move_mouse(place, 0.25, 0.5, "mousePressed", 1)
        chromium.move_mouse(place, 0.5, 0.5)
        chromium.move_mouse(place, 0.5, 0.5, "mouseReleased", 1)
        chromium.wait_for(f"{shown}('{chart}')[1] < 1")
        assert chromium.value(f"{shown}('{chart}')") == pytest.approx([0.25, 0.5], abs=0.01)
        # As a live page does it, and the choice of light or dark.
        chromium.value("draw()")
        assert chromium.value(f"{shown}('{chart}')") == pytest.approx([0.25, 0.5], abs=0.01)
        for clicks in (1, 2):
            chromium.move_mouse(place, 0.5, 0.5, "mousePressed", clicks)
            chromium.move_mouse(place, 0.5, 0.5, "mouseReleased", clicks)
        chromium.wait_for(f"{shown}('{chart}')[1] == 1")
    assert chromium.complaints == []


@pytest.mark.parametrize("share", [0.01, pytest.param(0.5, marks=pytest.mark.slow), 0.99])
def test_resume_label_is_visible_as_a_whole(chromium: Browser, tmp_path: Path, share: float) -> None:
    """Wherever the run went on, also at the edges of the chart."""
    before, after = 1000 * share, 1000 * (1 - share)
    show_page(chromium, tmp_path, [
        RunEvent(slots=1), TaskEvent(t=before, last=1, cpu=before), EndEvent(t=before, status="interrupted"),
        RunEvent(slots=1, records_resumed=1), TaskEvent(t=after, first=1, last=2, cpu=after), EndEvent(t=after, status="done"),
    ])  # fmt: skip
    box = "document.querySelector('#timeline .resumed').getBoundingClientRect()"
    chart = "document.querySelector('#timeline canvas').getBoundingClientRect()"
    for width in (1400, 400):
        chromium.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        chromium.wait_for(f"innerWidth == {width} && {chart}.width < {width}")
        assert chromium.value("document.querySelectorAll('#timeline .resumed').length") == 1
        assert chromium.value(
            f"{box}.width > 20 && {box}.left >= {chart}.left && {box}.right <= {chart}.right && {box}.top >= {chart}.top"
        )
