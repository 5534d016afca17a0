"""`millrace watch --web` from a machine that is no node of the run, in a browser."""

from __future__ import annotations

import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import harness
import pytest
from cluster_site import NAMES, Cluster
from headless_browser import browser


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not installed")
def test_a_browser_shows_a_run_on_all_nodes(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.site.held():
        run = cluster.start("--verify", "0")
        assert harness.wait_until(lambda: cluster.site.under_way, run), cluster.said
        with (
            subprocess.Popen(
                [sys.executable, "-m", "millrace", "watch", "--web", "out.fa.millrace"],
                cwd=cluster.site.folder,
                stdout=subprocess.PIPE,
            ) as watch,
            browser(tmp_path / "profile") as page,
        ):
            try:
                assert watch.stdout
                url = watch.stdout.readline().decode().strip()
                own, _, _ = url.partition("?")
                with pytest.raises(urllib.error.HTTPError, match="403"):
                    urllib.request.urlopen(own)
                for width in (1400, 400):
                    page.call(
                        "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
                    )
                    page.call("Page.navigate", url=url)
                    page.wait_for("document.querySelectorAll('.chart canvas').length >= 3")
                    assert page.value("document.querySelector('.pill').textContent") == "running"
                    assert page.value("document.documentElement.scrollWidth") <= width
                    shown = page.value("document.body.textContent")
                    assert [name for name in NAMES[1:] if name not in shown] == []
                cluster.site.hold.unlink()
                page.wait_for("'over' in document.documentElement.dataset")
                assert page.value("document.querySelector('.pill').textContent") == "done"
                assert (run.wait(harness.LONGEST_SECONDS), watch.wait(harness.LONGEST_SECONDS)) == (0, 0), cluster.said
            finally:
                watch.kill()
    assert [each for each in page.requested if not each.startswith((own, "data:", "blob:", "about:"))] == []
    assert page.complaints == []
