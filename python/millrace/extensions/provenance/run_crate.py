"""The crate of a finished run: a folder that describes it by RO-Crate 1.1 and the profile Process Run Crate 0.5.

It has the outputs, gathered from the journals with every checksum checked, and the run directory itself, so that
``millrace verify`` can compute samples again from the crate. Inputs and databases are described where they are.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shlex
import shutil
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from millrace.core.errors import CorruptError, RefusedError
from millrace.core.text_format import format_count
from millrace.extensions.provenance.journaled_run import (
    CRATE_OUTPUTS,
    CRATE_RUN,
    METADATA,
    JournaledRun,
    describe_changed_files,
    make_user_command,
    name_output_copy,
)
from millrace.output.journal_gather import gather_output
from millrace.report.event_log import LoggedRun, load_runs
from millrace.report.events import read_events
from millrace.rundir.checksummed_json import encode_json

#: A description of one thing: a JSON-LD object.
Entity = dict[str, Any]

PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
#: The one term that crates have of the profile's own is given in words, so that a reader needs no second context.
CONTEXT = ["https://w3id.org/ro/crate/1.1/context", {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}]

#: Largest database file that is read for its SHA-256; of larger ones the size and time tell the version.
MAX_DIGESTED_BYTES = 1 << 30


def write_crate(run: JournaledRun, dest: Path, environ: Mapping[str, str]) -> None:
    """Write the crate of a finished run to the new folder ``dest``.

    Raises:
        RefusedError: There is something at ``dest``, or nothing can be there.
        CorruptError: A journal is damaged, or a file is not what the run has read.
    """
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise RefusedError(f"{dest}: is there already", "name a new folder for the crate")
    if changed := describe_changed_files(run, make_user_command(run, environ)):
        raise CorruptError(
            "a crate cannot describe what is not there any more:\n" + "\n".join(f"  {each}" for each in changed)
        )
    new = dest.with_name(f".{dest.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        _make_folder(new / CRATE_OUTPUTS, dest)
        _copy_run_directory(run, new / CRATE_RUN)
        for number, output in enumerate(run.manifest.use.outputs):
            copy = new / CRATE_OUTPUTS / name_output_copy(number, output)
            gather_output(run.rundir.path, output.name, str(copy), ignore_errors=False)
        (new / METADATA).write_bytes(encode_json(describe_run(run, new)))
        if dest.exists():
            dest.rmdir()
        new.rename(dest)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _make_folder(folder: Path, dest: Path) -> None:
    """Make a folder of the crate that becomes ``dest``."""
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise RefusedError(f"{dest}: {error.strerror}", "name a new folder in a place of your own") from error


def _copy_run_directory(run: JournaledRun, folder: Path) -> None:
    """Copy what a check needs of a run directory; journals are linked where that is possible."""
    folder.mkdir()
    rundir = run.rundir
    for path in (rundir.manifest, rundir.completion, rundir.events, rundir.unfit_results):
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    for path in rundir.list_journals():
        try:
            os.link(path, folder / path.name)
        except OSError:
            shutil.copyfile(path, folder / path.name)


def describe_run(run: JournaledRun, crate: Path) -> Entity:
    """Return the metadata of a crate, whose other files are written."""
    starts = load_runs(read_events(run.rundir.events))
    inputs, outputs = list(_describe_inputs(run)), list(_describe_outputs(run, crate))
    checks = list(_describe_checks(run, starts, outputs))
    tool = _describe_tool(run)
    action = {
        "@id": f"#run-{run.manifest.run_id}",
        "@type": "CreateAction",
        "name": f"Run of {tool['name']}",
        "description": shlex.join(run.manifest.argv),
        "instrument": _refer(tool),
        "agent": {"@id": "#agent"},
        "object": _refer_all(inputs),
        "result": _refer_all(outputs),
        "actionStatus": "http://schema.org/CompletedActionStatus",
        **_describe_times(starts),
    }
    parts = [*outputs, *inputs, _describe_run_folder()]
    return {
        "@context": CONTEXT,
        "@graph": [
            _describe_metadata_file(),
            _describe_root(run, parts, [action, *checks], str(tool["name"])),
            *_list_fixed_entities(run),
            tool,
            action,
            *checks,
            *parts,
        ],
    }


def _refer(entity: Entity) -> Entity:
    return {"@id": entity["@id"]}


def _refer_all(entities: list[Entity]) -> Any:
    """Refer to several things, or to one without a list around it."""
    found = [_refer(each) for each in entities]
    return found[0] if len(found) == 1 else found


def _describe_metadata_file() -> Entity:
    return {
        "@id": METADATA,
        "@type": "CreativeWork",
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
        "about": {"@id": "./"},
    }


def _describe_root(run: JournaledRun, parts: list[Entity], actions: list[Entity], tool: str) -> Entity:
    return {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Run of {tool} on {format_count(sum(task.last - task.first for task in run.effective), 'record')}",
        "description": f"What this command has written, computed in parallel by Millrace: {shlex.join(run.manifest.argv)}",
        "datePublished": datetime.now().astimezone().isoformat(timespec="seconds"),
        "author": {"@id": "#agent"},
        "license": {"@id": "#license"},
        "conformsTo": {"@id": PROFILE},
        "hasPart": _refer_all([each for each in parts if each["@type"] != "PropertyValue"]),
        "mentions": _refer_all(actions),
    }


def _list_fixed_entities(run: JournaledRun) -> list[Entity]:
    """Return the profile, the user, Millrace, and the licence, of which a run knows nothing."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container without this user
        name = f"user {os.geteuid()}"
    return [
        {"@id": PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
        {"@id": "#agent", "@type": "Person", "name": name},
        {
            "@id": "#millrace",
            "@type": "SoftwareApplication",
            "name": "Millrace",
            "softwareVersion": run.manifest.millrace,
        },
        {
            "@id": "#license",
            "@type": "CreativeWork",
            "name": "Licence not stated",
            "description": "The publisher of this crate states here under which licence its data may be used.",
        },
    ]


def _describe_tool(run: JournaledRun) -> Entity:
    manifest = run.manifest
    return {
        "@id": Path(manifest.exe).as_uri(),
        "@type": "SoftwareApplication",
        "name": os.path.basename(manifest.argv[0]),
        "softwareVersion": manifest.use.version or "not known",
        "sha256": compute_digest(Path(manifest.exe)),
    }


def _describe_times(starts: list[LoggedRun]) -> Entity:
    """Return when the first start began and the last one ended."""
    if not starts or not starts[-1].head.time:
        return {}
    end = datetime.fromisoformat(starts[-1].head.time) + timedelta(seconds=starts[-1].wall)
    return {"startTime": starts[0].head.time, "endTime": end.isoformat(timespec="seconds")}


def _describe_inputs(run: JournaledRun) -> Iterator[Entity]:
    use = run.manifest.use
    paths = [name for item in use.inputs for name in item.paths]
    for path in dict.fromkeys(paths):
        if path == "-":
            yield {"@id": "#standard-input", "@type": "PropertyValue", "name": "standard input", "value": "not kept"}
        elif (run.cwd / path).is_file():
            yield _describe_file(run.cwd / path, "input", is_whole=True)
    for database in use.databases:
        if (run.cwd / database).is_file():
            yield _describe_file(run.cwd / database, "database", is_whole=False)


def _describe_file(path: Path, role: str, *, is_whole: bool) -> Entity:
    """Describe a file that is not in the crate.

    Args:
        is_whole: Whether its SHA-256 is needed, however large it is.
    """
    about = path.stat()
    digest = {"sha256": compute_digest(path)} if is_whole or about.st_size <= MAX_DIGESTED_BYTES else {}
    return {
        "@id": path.absolute().as_uri(),
        "@type": "File",
        "name": path.name,
        "description": f"{role} of the command, on {os.uname().nodename}",
        "contentSize": str(about.st_size),
        "dateModified": datetime.fromtimestamp(about.st_mtime).astimezone().isoformat(timespec="seconds"),
        **digest,
    }


def _describe_outputs(run: JournaledRun, crate: Path) -> Iterator[Entity]:
    for number, output in enumerate(run.manifest.use.outputs):
        copy = crate / CRATE_OUTPUTS / name_output_copy(number, output)
        what = "standard output" if output.path == "-" else output.path
        entity = {
            "@id": copy.relative_to(crate).as_posix(),
            "name": copy.name.partition("-")[2],
            "description": f"{what}: output of the command",
        }
        if copy.is_dir():
            yield {**entity, "@id": f"{entity['@id']}/", "@type": "Dataset"}
        else:
            size = str(copy.stat().st_size)
            yield {**entity, "@type": "File", "contentSize": size, "sha256": compute_digest(copy)}


def _describe_run_folder() -> Entity:
    return {
        "@id": f"{CRATE_RUN}/",
        "@type": "Dataset",
        "name": "Run directory",
        "description": "Plan, journal and event log of the run: millrace verify computes samples again from these.",
    }


def _describe_checks(run: JournaledRun, starts: list[LoggedRun], outputs: list[Entity]) -> Iterator[Entity]:
    """Describe the batches that were computed a second time: in the run itself, and in later checks."""
    n_verified = sum(task.last - task.first for start in starts for task in start.tasks if task.status == "verified")
    said = []
    if n_verified:
        text = f"{format_count(n_verified, 'record')} computed a second time in the run, cut elsewhere; all bytes were equal"
        said.append((text, _describe_times(starts).get("endTime")))
    for check in (check for start in starts for check in start.checks):
        batches, records = format_count(check.batches, "batch"), format_count(check.records, "record")
        said.append(
            (f"{batches} of {records}, drawn at random, computed again later; all bytes were equal", check.time)
        )
    for number, (text, time) in enumerate(said, 1):
        yield {
            "@id": f"#check-{number}",
            "@type": "CheckAction",
            "name": "Samples computed again",
            "description": text,
            "instrument": {"@id": "#millrace"},
            "agent": {"@id": "#agent"},
            "object": _refer_all(outputs),
            "actionStatus": "http://schema.org/CompletedActionStatus",
            **({"endTime": time} if time else {}),
        }


def compute_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
