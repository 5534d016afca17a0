"""The integrations: each run by the real engine, or as the engine would where that cannot be had."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from public_tools import install_packages
from shell import Shell

import millrace

INTEGRATIONS = Path(__file__).resolve().parents[2] / "integrations"

#: Variables of Nextflow's script that the test gives it.
MODULE = INTEGRATIONS / "nextflow" / "millrace"


def fill_in_script(cpus: int, serial: str) -> str:
    """Return the script of the module as Nextflow writes it into ``.command.sh``."""
    found = re.search(r'    script:.*?"""\n(.*?)    """', (MODULE / "main.nf").read_text(), re.DOTALL)
    assert found
    values = {"task.cpus": str(cpus), "args": "--input in.fa", "serial": serial, "task.process": "TEST:MILLRACE"}
    text = re.sub(r"(?<!\\)\$\{([\w.]+)\}", lambda name: values[name[1]], found[1])
    return re.sub(r"^    ", "", text.replace(r"\$", "$"), flags=re.MULTILINE)


def run_task(shell: Shell, folder: str, serial: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a work folder as Nextflow makes them: inputs are links, and the folder is the task's alone."""
    work = shell.root / "work" / folder
    work.mkdir(parents=True)
    (work / "in.fa").symlink_to(shell.root / "staged.fa")
    (work / ".command.sh").write_text("#!/bin/bash -ue\n" + fill_in_script(2, serial))
    environ = {
        **os.environ,
        "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}",
        "NXF_TASK_WORKDIR": str(work),
        **more,
    }
    return subprocess.run(
        ["bash", "-ue", ".command.sh"], cwd=work, env=environ, capture_output=True, text=True, timeout=300, check=False
    )


def test_nextflow_script_gives_serial_bytes_and_versions(shell: Shell) -> None:
    """Not Nextflow itself: the script of its module, in a folder of the kind that it makes."""
    shutil.copy(shell.work / "in.fa", shell.root / "staged.fa")
    done = run_task(shell, "ab/12", "grep -v MAA in.fa > out.fa")
    assert done.returncode == 0, done.stderr
    work = shell.root / "work" / "ab" / "12"
    assert (work / "out.fa").read_text() == (shell.work / "in.fa").read_text().replace("MAA\n", "")
    assert yaml.safe_load((work / "versions.yml").read_text()) == {"TEST:MILLRACE": {"millrace": millrace.__version__}}


def test_nextflow_module_describes_what_it_has() -> None:
    meta = yaml.safe_load((MODULE / "meta.yml").read_text())
    text = (MODULE / "main.nf").read_text()
    names = [next(iter(each)) for group in meta["input"] for each in group]
    assert names == re.findall(r"(?:val|path)[ (](\w+)", text.partition("input:")[2].partition("output:")[0])
    assert [next(iter(each)) for each in meta["output"]] == re.findall(r"emit: (\w+)", text)


def test_galaxy_tool_has_the_version_of_the_package() -> None:
    tool = ElementTree.parse(INTEGRATIONS / "galaxy" / "millrace_blastp.xml")
    assert [token.text for token in tool.iter("token")] == [millrace.__version__]


@pytest.mark.slow
def test_snakemake_runs_the_wrapper_to_serial_bytes(shell: Shell, data: Path, session_folder: Path) -> None:
    shell.run(
        f"head -60 {data}/proteins_queries.faa > a.faa; makeblastdb -in {data}/proteins_db.faa -dbtype prot -out db"
    )
    assert shell.run("blastp -query a.faa -db db -outfmt 6 -out serial.tsv").code == 0
    program = install_packages(session_folder, "snakemake") / "snakemake"
    wrapper = INTEGRATIONS / "snakemake" / "Snakefile"
    done = shell.run(f"{program} --cores 2 --directory . --snakefile {wrapper} a.tsv")
    assert done.code == 0, done.shown + (shell.work / "a.log").read_text()
    assert (shell.work / "a.tsv").read_bytes() == (shell.work / "serial.tsv").read_bytes()
    assert "efficiency" in (shell.work / "a.log").read_text()


@pytest.mark.slow
def test_galaxy_tool_passes_planemo_lint(session_folder: Path, tmp_path: Path) -> None:
    program = install_packages(session_folder, "planemo") / "planemo"
    environ = {**os.environ, "HOME": str(tmp_path)}
    told = subprocess.run(
        [program, "lint", "--fail_level", "error", INTEGRATIONS / "galaxy" / "millrace_blastp.xml"],
        env=environ, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    assert "Linting tool" in told.stdout and ".. ERROR" not in told.stdout
