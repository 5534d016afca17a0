"""The results of a benchmark are kept for each release and command line, in the place of older ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from millrace import __version__


def test_results_of_each_command_line_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from bench import results

    monkeypatch.setattr(results, "FOLDER", str(tmp_path / "results"))
    for options, seconds in (([], "2"), (["--folder", "/some/where"], "3"), ([], "1")):
        monkeypatch.setattr(sys, "argv", ["view.py", *options])
        results.show_table("view", ("way", "s"), [("cold", seconds)])
    (path,) = (tmp_path / "results").iterdir()
    kept = json.loads(path.read_text())
    assert path.name == f"view-{__version__}.json"
    assert {command: entry["table"]["rows"] for command, entry in kept.items()} == {
        "view": [["cold", "1"]],
        "view --folder where": [["cold", "3"]],
    }
    assert all({"cpu", "cores", "load", "when"} <= entry.keys() for entry in kept.values())
