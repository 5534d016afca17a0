"""The documentation as a reader opens it from the disk, without a network, in a real browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not installed"),
]

#: A page in a window as narrow as a telephone's, and by how much each of its blocks is wider than it is shown.
NARROW = """<iframe id=page src="site/PAGE" style="width:400px;height:800px"></iframe><p id=found></p><script>
page.onload = () => {
  const blocks = [...page.contentDocument.querySelectorAll("pre code")];
  const cut = blocks.map(code => [code.closest("div.highlight").className, code.scrollWidth - code.clientWidth]);
  found.textContent = JSON.stringify(cut);
};
</script>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, as `make docs` builds them."""
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=REPO, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def drawn(url: str, profile: Path, *more: str) -> str:
    """What a browser makes of a page, without a word on its console: no host is found, so a request would be one."""
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", f"--user-data-dir={profile}",
        "--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000", *more,
        "--dump-dom", url,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    return done.stdout


@pytest.mark.slow
def test_search_finds_pages_without_a_network(site: Path, tmp_path: Path) -> None:
    page = drawn(f"{(site / 'index.html').as_uri()}?q=quarantine", tmp_path)
    links = re.findall(r'<a href="([^"]*)" class="md-search-result__link"', page)
    assert any("resume-and-failures.html" in link for link in links), links


def test_commands_are_not_cut_in_a_narrow_window(site: Path, tmp_path: Path) -> None:
    narrow = site.parent / "narrow.html"
    narrow.write_text(NARROW.replace("PAGE", "quickstart.html"))
    page = drawn(narrow.as_uri(), tmp_path, "--allow-file-access-from-files")
    found = re.search(r'<p id="found">(.*)</p>', page)
    assert found, page[:2000]
    commands = [(kind, cut) for kind, cut in json.loads(found[1]) if re.search("console|bash", kind)]
    assert len(commands) > 5 and all(cut <= 0 for _, cut in commands), commands
