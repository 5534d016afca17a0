"""Comparison of a run with the one in its run directory, and its move to the present folder and paths.

Loaded only where there is an earlier run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import msgspec

from millrace.adapters.joins import describe_join
from millrace.adapters.printed_paths import FOLDER, list_printed_paths
from millrace.core.tool_use import FragmentPlan, VolumeKeeping
from millrace.planning import result_fingerprint, run_identity
from millrace.planning.program_lookup import explain_doubts, is_unknown_tool
from millrace.rundir.checksummed_json import encode_json
from millrace.rundir.paths import RunDir, RunManifest


def describe_changes(earlier: RunManifest, now: RunManifest, verify: float | None = None) -> list[str]:
    """Describe the changes between two manifests that matter for the result.

    Args:
        verify: The share of the input that the user wants verified; None: as the tool needs it.
    """
    found = []
    why = _explain_immovable(earlier, now, verify)
    if earlier.argv != now.argv and (why or not run_identity.has_same_words(earlier, now)):
        found.append(f"command: was {' '.join(earlier.argv)}\n           now {' '.join(now.argv)}{why}")
    if earlier.cwd != now.cwd and why:
        found.append(f"folder: was {earlier.cwd}, now {now.cwd}{'' if found else why}")
    if why and not found:
        found.append(f"inputs or outputs of the job{why}")
    if earlier.millrace != now.millrace:
        found.append(f"millrace: was {earlier.millrace}, now {now.millrace}")
    for name, was, is_now in run_identity.pair_fingerprints(earlier, now):
        # A pipe in the place of a file: its content is compared batch by batch.
        unknown = name == result_fingerprint.STANDARD_INPUT and "not there" in (was, is_now)
        if was != is_now and not unknown:
            found.append(f"{name}: was {was}, now {is_now}")
    if (earlier.record_start, earlier.record_end) != (now.record_start, now.record_end):
        found.append("--record-start or --record-end")
    if count_fragments(earlier) != count_fragments(now):
        found.append(f"--fragments: was {count_fragments(earlier)}, now {count_fragments(now)}")
    if gone := set(earlier.use.ok_statuses) - set(now.use.ok_statuses):
        found.append(f"--ok-status: was also {', '.join(map(str, sorted(gone)))}, whose results would stay")
    if [output.name for output in earlier.use.outputs] == [output.name for output in now.use.outputs]:
        for before, output in zip(earlier.use.outputs, now.use.outputs, strict=True):
            if before.join != output.join:
                joins = f"was {describe_join(before.join)}, now {describe_join(output.join)}"
                found.append(f"how {output.path} is joined: {joins}")
    # Another database or command has other fragments, too, and is reported above.
    if not found and _drop_keeping(move_fragments(earlier, now)) != _drop_keeping(now.use.fragmented):
        found.append("--fragments: as many, but of other parts of the database, or searched otherwise")
    # Environment and hints of an adapter may differ without changing a byte; outputs and their joins may not.
    if not found and run_identity.describe_work(earlier) != run_identity.describe_work(now):
        found.append("inputs or outputs of the job")
    return found


def _drop_keeping(plan: FragmentPlan | None) -> FragmentPlan | None:
    """Return a plan without its rule for copies of volumes, which changes no byte."""
    return plan and msgspec.structs.replace(plan, kept=VolumeKeeping())


def _explain_immovable(earlier: RunManifest, now: RunManifest, verify: float | None) -> str:
    """Explain why a run cannot go on at other paths, in words for a parenthesis; empty: it can, or nothing has moved."""
    moved = run_identity.list_moved_paths(earlier, now)
    printed, use = list_printed_paths(now.use), now.use
    tool = os.path.basename(now.argv[0])
    if FOLDER in moved and (path := run_identity.find_unknown_file(now)):
        return f" (what {path} is there is not known)"
    if is_unknown_tool(use) and moved == {FOLDER}:
        # What it writes may depend on the folder: it is run again there, and compared.
        return f" ({tool} is not known to millrace, and with --verify 0 not checked there)" if verify == 0 else ""
    if moved & printed.records:
        return f" ({tool} may show it in its output)"
    if moved & printed.frame and (verify or explain_doubts(use, tool)):
        return f" ({tool} shows it in its output, and is checked, cut elsewhere)"
    return ""


def count_fragments(manifest: RunManifest) -> int:
    """Return the number of fragments in which the database is searched."""
    return len(manifest.use.fragmented.fragments) if manifest.use.fragmented else 1


def move_run(earlier: RunManifest, now: RunManifest, rundir: RunDir) -> RunManifest:
    """Make a run one of the present folder and paths; return its manifest, ``earlier`` if nothing has moved.

    Its outputs are written anew.

    The manifest is written last: after a kill, the run is still that of the earlier paths.
    """
    moved = run_identity.list_moved_paths(earlier, now)
    if not moved:
        return earlier
    forms = dict(earlier.forms)
    if moved & list_printed_paths(now.use).frame or is_unknown_tool(now.use):
        number = max(forms.values(), default=0) + 1
        forms = {path.name: number for path in rundir.list_journals()} | forms
    for path in (rundir.outputs, rundir.written_marker):
        path.unlink(missing_ok=True)
    manifest = msgspec.structs.replace(
        now, run_id=earlier.run_id, world=earlier.world, environ=earlier.environ, forms=forms
    )
    rundir.write_manifest(manifest)
    return manifest


def move_fragments(earlier: RunManifest, now: run_identity.DescribedRun) -> FragmentPlan | None:
    """Return the fragments of an earlier start, with the paths that its folder and databases have now."""
    plan = earlier.use.fragmented
    paths = run_identity.pair_moved_paths(earlier, now)
    if plan is None or not paths:
        return plan
    moved = _move_paths(json.loads(encode_json(plan)), sorted(paths.items(), reverse=True))
    return msgspec.convert(moved, FragmentPlan, dec_hook=lambda kind, value: kind(value))


def _move_paths(value: Any, paths: Sequence[tuple[str, str]]) -> Any:
    """Return plain values in which texts that begin with a moved path begin with the present one; the longest comes first."""
    if isinstance(value, dict):
        return {name: _move_paths(each, paths) for name, each in value.items()}
    if isinstance(value, list):
        return [_move_paths(each, paths) for each in value]
    if isinstance(value, str):
        for was, is_now in paths:
            if value == was or value.startswith((f"{was}.", f"{was}/")):
                return is_now + value.removeprefix(was)
    return value
