"""What MultiQC and nf-core's pipelines read of a run: a table of custom content, and a file of versions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millrace import __version__
from millrace.core.errors import RefusedError
from millrace.host.permissions import replace_file
from millrace.report.summary import RunSummary

#: Title, description and format of each column of the table.
COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "status": {"title": "Status", "description": "How the run ended"},
    "records": {"title": "Records", "description": "Records with a result", "format": "{:,.0f}"},
    "quarantined": {"title": "Quarantined", "description": "Records without a result", "format": "{:,.0f}"},
    "minutes": {"title": "Time", "description": "Running time of all starts", "suffix": " min", "format": "{:,.1f}"},
    "slots": {"title": "Slots", "description": "Tools side by side", "format": "{:,.0f}"},
    "busy": {
        "title": "Slots busy",
        "description": "Share of the time with a task",
        "suffix": " %",
        "max": 100,
        "min": 0,
    },
    "cpu_minutes": {"title": "Tool CPU", "description": "CPU time of the tool", "suffix": " min", "format": "{:,.1f}"},
    "retries": {"title": "Retries", "description": "Tasks that were tried again", "format": "{:,.0f}"},
}


def write_multiqc_files(summary: RunSummary, name: str, folder: Path) -> list[Path]:
    """Write ``NAME_mqc.json`` and ``NAME_mqc_versions.yml`` for a run; return their paths.

    Raises:
        RefusedError: ``folder`` is no folder.
    """
    if not folder.is_dir():
        raise RefusedError(f"{folder}: no such folder", "make it, or name the folder that MultiQC looks at")
    table, versions = folder / f"{name}_mqc.json", folder / f"{name}_mqc_versions.yml"
    replace_file(table, json.dumps(make_table(summary, name), indent=2).encode())
    replace_file(versions, format_versions(summary).encode())
    return [table, versions]


def make_table(summary: RunSummary, name: str) -> dict[str, Any]:
    """Return the custom content; MultiQC shows that of several runs as one table."""
    row = {
        "status": summary.status,
        "records": summary.records_done,
        "quarantined": len(summary.quarantined),
        "minutes": summary.wall / 60,
        "slots": summary.slots,
        "busy": 100 * summary.occupancy,
        "cpu_minutes": summary.cpu / 60,
        "retries": summary.n_retries,
    }
    return {
        "id": "millrace",
        "section_name": "Millrace",
        "description": "runs of serial tools on every core, with the bytes of the serial tool.",
        "plot_type": "table",
        "pconfig": {"id": "millrace_runs", "title": "Millrace: runs"},
        "headers": COLUMNS,
        "data": {name: row},
    }


def format_versions(summary: RunSummary) -> str:
    """Format the versions of the tool and of Millrace as nf-core's pipelines do, under the name of the tool.

    JSON texts are YAML texts, too.
    """
    versions = {summary.tool: find_version(summary.version), "millrace": __version__}
    lines = [f"    {json.dumps(tool)}: {json.dumps(version)}" for tool, version in versions.items()]
    return "\n".join([f"{json.dumps(summary.tool.upper())}:", *lines, ""])


def find_version(text: str) -> str:
    """Return the number in the line in which a tool says its version.

    >>> find_version("blastp: 2.12.0+"), find_version("# HMMER 3.3.2 (Nov 2020); http://hmmer.org/"), find_version("")
    ('2.12.0+', '3.3.2', 'unknown')
    """
    found = re.search(r"\d+(?:\.\w+)+[+-]?\w*", text)
    return found[0] if found else text or "unknown"
