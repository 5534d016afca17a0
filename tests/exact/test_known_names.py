"""A name makes no tool: scripts that bear the name of a known one, wrappers that pass everything on, other names."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import harness
import pytest
from exact_cases import MILLRACE
from tool_batches import need

from millrace.core.errors import ExitCode

SEARCH = "blastp -query q.faa -db p -outfmt 6"


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """A folder with proteins, a database of them, and genes."""
    need("blastp")
    folder = tmp_path_factory.mktemp("names")
    harness.take(data / "proteins_db.faa", folder / "db.faa", 150)
    harness.take(data / "proteins_queries.faa", folder / "q.faa", 12)
    harness.take(data / "genes_db.fna", folder / "genes.fna", 30)
    subprocess.run(
        ["makeblastdb", "-in", "db.faa", "-dbtype", "prot", "-out", "p"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return folder


@pytest.fixture
def place(searched: Path, tmp_path: Path) -> Path:
    for file in searched.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "bin").mkdir()
    return tmp_path


def write_script(folder: Path, name: str, text: str, shell: str = "/bin/sh") -> Path:
    path = folder / "bin" / name
    path.write_text(f"#!{shell}\n{text}\n")
    path.chmod(0o755)
    return path


def run(folder: Path, command: str, *options: str, verb: str = "run", environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:  # fmt: skip
    environ = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **(environ or {})}
    words = [
        *MILLRACE,
        verb,
        *(["-q", "--batch", "4", "--slots", "2"] if verb == "run" else []),
        *options,
        "--",
        *shlex.split(command),
    ]
    return subprocess.run(words, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)  # fmt: skip


def serial(folder: Path, command: str, environ: dict[str, str] | None = None) -> str:
    environ = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **(environ or {})}
    return subprocess.run(
        shlex.split(command), cwd=folder, env=environ, capture_output=True, text=True, check=True
    ).stdout


#: Wrappers that pass everything on; ``{real}`` is the tool's path.
PLAIN = {
    "exec": 'exec {real} "$@"',
    "child": 'export OMP_NUM_THREADS=1\n{real} "$@"',
    "module": '. /dev/null\nPREFIX={folder}\nexec "$PREFIX"/blastp "${{@}}"',
    "own-name": 'exec {folder}/$(basename "$0") "$@"',
    "starter": 'exec nice -n 1 {real} "$@"',
    "conda": 'sh -c \'shift; "$@"\' conda run {real} "$@"',
}


@pytest.mark.parametrize("kind", PLAIN)
def test_plain_wrappers_are_known_as_the_tool(kind: str, place: Path) -> None:
    real = need("blastp")
    write_script(place, "blastp", PLAIN[kind].format(real=real, folder=real.parent))
    ours = run(place, SEARCH)
    assert ours.returncode == ExitCode.DONE, ours.stderr
    assert ours.stdout == serial(place, SEARCH)
    plan = run(place, SEARCH, verb="plan").stdout
    assert "(blastp: 2." in plan and f"blastp passes its arguments on to {real.resolve()}, as was seen" in plan


#: Scripts of the tool's name that are something else, with what is said of them where ``--as`` calls them the tool.
OTHERS = {
    "sorts": ('{real} "$@" | sort', "goes through another program"),
    "format": ('exec {real} "$@" -outfmt 7', "gets arguments that were not given: -outfmt 7"),
    "drops": ('shift 2\nexec {real} -query q.faa "$@"', "gets arguments that were not given: q.faa"),
    "environment": ('export BATCH_SIZE=500\nexec {real} "$@"', "sets BATCH_SIZE in the environment"),
    "registry": ('export NCBI_CONFIG_PATH=/tmp\nexec {real} "$@"', "sets NCBI_CONFIG_PATH in the environment"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_scripts_with_the_name_of_a_tool_are_unknown(kind: str, place: Path) -> None:
    body, words = OTHERS[kind]
    script = write_script(place, "blastp", body.format(real=need("blastp")))
    for verb in ("run", "plan"):
        refused = run(place, SEARCH, verb=verb)
        assert refused.returncode == ExitCode.REFUSED and not refused.stdout
        assert f"{script} is a script of your own" in refused.stderr
        assert "--as blastp" in refused.stderr and "--input q.faa:fasta" in refused.stderr
    called = run(place, SEARCH, "--as", "blastp")
    assert called.returncode == ExitCode.REFUSED and words in called.stderr and not called.stdout


def test_a_script_that_reads_the_input_first_is_unknown(place: Path) -> None:
    """Its arguments may depend on what it has read; called the tool, it is checked as an unknown program is."""
    write_script(place, "blastp", f'n=$(grep -c ">" "$2")\nexec {need("blastp")} "$@"')
    refused = run(place, SEARCH)
    assert refused.returncode == ExitCode.REFUSED and "in which grep reads the input first" in refused.stderr
    ours = run(place, SEARCH, "--as", "blastp")
    assert ours.returncode == ExitCode.DONE and ours.stdout == serial(place, SEARCH)
    assert "run again" in run(place, SEARCH, "--as", "blastp", verb="plan").stdout


def test_minimap2_that_writes_sam_is_not_minimap2(place: Path) -> None:
    write_script(place, "minimap2", f'exec {need("minimap2")} -a "$@"')
    command = "minimap2 genes.fna genes.fna"
    refused = run(place, command)
    assert refused.returncode == ExitCode.REFUSED and "is a script of your own" in refused.stderr
    called = run(place, command, "--as", "minimap2")
    assert called.returncode == ExitCode.REFUSED and "arguments that were not given: -a" in called.stderr
    # As an unknown program it is checked, and with its join it is exact but for the command in the header.
    unknown = run(place, command, "--input", "genes.fna")
    assert unknown.returncode != ExitCode.DONE


def test_script_as_an_unknown_program_writes_serial_bytes(place: Path) -> None:
    write_script(place, "blastp", f'exec {need("blastp")} "$@" -max_target_seqs 3')
    ours = run(place, SEARCH, "--input", "q.faa")
    assert ours.returncode == ExitCode.DONE and ours.stdout == serial(place, SEARCH)


def test_a_script_that_works_after_the_tool_is_checked(place: Path) -> None:
    """What it does to the file that the tool wrote is not seen before; the comparison of batches shows it."""
    write_script(place, "blastp", f'{need("blastp")} "$@"\nsort -o hits hits\n[ -e hits ]')
    command = f"{SEARCH} -out hits"
    assert run(place, command).returncode == ExitCode.REFUSED
    ours = run(place, command, "--as", "blastp")
    assert ours.returncode not in (ExitCode.DONE, ExitCode.REFUSED)


@pytest.mark.parametrize("how", ["renamed", "link", "link-of-another-name"])
def test_binaries_under_other_names(how: str, place: Path) -> None:
    real = need("blastp")
    name = {"renamed": "blastp-2.12", "link": "blastp", "link-of-another-name": "search"}[how]
    program = place / "bin" / name
    if how == "renamed":
        shutil.copy(real, program)
    else:
        program.symlink_to(real)
    command = SEARCH.replace("blastp", name, 1)
    if how != "link":
        assert run(place, command).returncode == ExitCode.REFUSED
    ours = run(place, command, *([] if how == "link" else ["--as", "blastp"]))
    assert ours.returncode == ExitCode.DONE, ours.stderr
    assert ours.stdout == serial(place, command)


def test_scripts_that_are_the_tool_are_known(place: Path, data: Path) -> None:
    need("mafft")
    shutil.copytree(data / "families", place / "families")
    assert "known as mafft" in run(place, "mafft --auto families/", verb="plan").stdout
    write_script(place, "mafft", 'exec /usr/bin/mafft "$@"')
    plan = run(place, "mafft --auto families/", verb="plan")
    assert "known as mafft" in plan.stdout and "passes its arguments on to" in plan.stdout, plan.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--as", "blastq"], "--as blastq: not a tool that millrace knows by an adapter"),
        (["--as", "blastp", "--records"], "--as and --records contradict each other"),
    ],
)
def test_as_option_is_validated(options: list[str], words: str, place: Path) -> None:
    refused = run(place, SEARCH, *options)
    assert refused.returncode == ExitCode.REFUSED and words in refused.stderr


def test_as_option_in_a_job_file(place: Path) -> None:
    shutil.copy(need("blastp"), place / "bin" / "old-blastp")
    (place / "job.toml").write_text('as = "blastp"\ncommand = "old-blastp -query q.faa -db p -outfmt 6 -out hits"\n')
    environ = {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
    subprocess.run([*MILLRACE, "run", "-q", "job.toml"], cwd=place, env=environ, check=True, stdin=subprocess.DEVNULL)
    assert (place / "hits").read_text() == serial(place, SEARCH)


def test_nothing_of_a_wrapper_is_left(place: Path) -> None:
    """The processes of the look at a wrapper end with it, those in the background, too."""
    write_script(place, "blastp", f'case "$*" in *-query*) sleep 987 & esac\n{need("blastp")} "$@"')
    assert "known as blast" in run(place, SEARCH, verb="plan").stdout
    ours = subprocess.run(["pgrep", "-f", f"^{place / 'bin'}|sleep 987"], capture_output=True, text=True)
    assert not ours.stdout


def test_summary_is_not_written_among_results(place: Path) -> None:
    """``--json`` writes to standard output only where no result goes there."""
    import json

    ours = run(place, SEARCH, "--json")
    assert ours.returncode == ExitCode.DONE and ours.stdout == serial(place, SEARCH)
    assert json.loads(ours.stderr)["records_done"] == 12
    ours = run(place, f"{SEARCH} -out hits", "--json")
    assert json.loads(ours.stdout)["records_done"] == 12 and not ours.stderr
