"""Files that describe tools: those of docs/tool-files.md, where they are looked for, and what is wrong with them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from shell import Shell

REPO = Path(__file__).resolve().parent.parent.parent
EXAMPLE = re.search(r"```toml\n(.*?)```", (REPO / "docs" / "tool-files.md").read_text(), re.DOTALL)

#: Writes a header, then the name of each record with what stands in the database.
MYTOOL = """
for word in "$@"; do case $word in --version) echo 1.0; exit;; esac; done
while [ $# -gt 1 ]; do case $1 in -d) db=$2; shift 2;; -o) out=$2; shift 2;; *) shift;; esac; done
{ echo "# name db"; grep '>' "$1" | sed "s/$/ $(cat "$db")/"; } > "$out"; echo head
"""


ALLOW = "millrace tool allow millrace-tools/mytool.toml"


@pytest.fixture
def described(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    assert EXAMPLE
    monkeypatch.setenv("XDG_STATE_HOME", str(shell.root / "state"))
    shell.tool("mytool", MYTOOL)
    (shell.work / "millrace-tools").mkdir()
    (shell.work / "millrace-tools" / "mytool.toml").write_text(EXAMPLE[1])
    (shell.work / "nr").write_text("x")
    assert shell.run(ALLOW).code == 0
    return shell


def test_a_described_tool_runs_by_its_command_alone(described: Shell) -> None:
    ended = described.run("mytool -d nr -o serial in.fa && millrace run --batch 1 -- mytool -d nr -o out in.fa > head")
    assert ended.code == 0, ended.shown
    assert (described.work / "out").read_bytes() == (described.work / "serial").read_bytes()
    assert (described.work / "head").read_text() == "head\n"
    assert "is not known to millrace" in ended.err and "bytes equal" in ended.err, "it is checked all the same"


def test_join_option_overrides_the_join_of_a_file(described: Shell) -> None:
    """What goes in and comes out need not be named again, as the hint of a check says that a header stands in parts."""
    path = described.work / "millrace-tools" / "mytool.toml"
    path.write_text(path.read_text().replace('join = ["header:^#"]\n', ""))
    assert described.run(f"{ALLOW} && mytool -d nr -o serial in.fa").code == 0
    for join, code in (("", 5), ("--join out=header ", 0)):
        ended = described.run(f"millrace run --fresh --batch 1 {join}-- mytool -d nr -o out in.fa > head")
        assert ended.code == code, ended.shown
        assert bool(join) or "--join header" in ended.err, ended.shown
    assert (described.work / "out").read_bytes() == (described.work / "serial").read_bytes()


def test_folder_of_one_file_is_a_folder(described: Shell) -> None:
    path = described.work / "millrace-tools" / "mytool.toml"
    path.write_text(path.read_text().replace('format = "fasta"', "each-file = true"))
    (described.work / "in").mkdir()
    (described.work / "in" / "a.fa").write_text(">a\nAC\n>b\nGT\n")
    ended = described.run(
        f"{ALLOW} && mytool -d nr -o serial in/a.fa && millrace run -- mytool -d nr -o 'out/{{stem}}.txt' in/"
    )
    assert ended.code == 0, ended.shown
    assert (described.work / "out" / "a.txt").read_bytes() == (described.work / "serial").read_bytes()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("mytool -d nr -o out --sort in.fa", "mytool: --sort orders the whole input"),
        (
            "mytool -d nr -o out --sort=name in.fa",
            "hint: leave it out, and pipe the result: millrace run -- ... | sort",
        ),
        ("mytool -d nr -o out --what in.fa", "option --what is not known"),
        ("mytool -d nothing -o out in.fa", "no such file"),
        ("mytool -d nr -o out", "no input that can be cut"),
    ],
)
def test_option_outside_the_description_is_refused(described: Shell, line: str, words: str) -> None:
    ended = described.run(f"millrace run -- {line}")
    assert ended.code == 2 and words in ended.err, ended.shown


def test_project_overrides_user_and_user_overrides_shipped(described: Shell) -> None:
    user = described.root / "config" / "millrace" / "tools"
    user.mkdir(parents=True)
    (user / "own.toml").write_text(
        'programs = ["mytool", "seqkit"]\nabout = "of the user"\nrefused = "is refused here"\n'
    )
    listed = described.run(f"XDG_CONFIG_HOME={described.root}/config millrace tool list")
    lines = listed.out.splitlines()
    assert lines[0].startswith("mytool") and "what it does" in lines[0] and "of the user" in lines[1]
    assert any(line.startswith("bowtie2") and line.endswith("[millrace]") for line in lines)
    for line, code in (("mytool -d nr -o out in.fa", 0), ("seqkit seq in.fa", 2)):
        ended = described.run(f"XDG_CONFIG_HOME={described.root}/config millrace run -- {line} > stdout")
        assert ended.code == code, ended.shown


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("flags =", "flogs =", "use: object contains unknown field `flogs`"),
        ("flags =", "flogs =", "did you mean 'flags'?"),
        ("operand =", "oparend =", "did you mean 'operand'?"),
        ("about =", "abouut =", "did you mean 'about'?"),
        ("about =", "xyzzy =", "known keys: programs, about,"),
        ("programs =", "programz =", "did you mean 'programs'?"),
        ('["mytool"]', '"mytool"', 'write a list: programs = ["..."]'),
        ('["header:1"]', '"header:1"', 'write a list: stdout = ["..."]'),
        ('"header:1"', '"heater:1"', "did you mean header"),
        ("operand = 1", 'operand = 1\noption = "x"', "either an option or the number"),
        ("[use]", "[use", "no description of a tool"),
        ('"o=out', '"o', "write SHORT=LONG"),
    ],
)
def test_faulty_description_is_reported_with_its_line(described: Shell, old: str, new: str, words: str) -> None:
    path = described.work / "millrace-tools" / "mytool.toml"
    path.write_text(path.read_text().replace(old, new, 1))
    ended = described.run("millrace run -- mytool -d nr -o out in.fa")
    assert ended.code == 2 and words in ended.err and "mytool.toml" in ended.err, ended.shown


def test_only_packages_with_descriptions_are_imported(tmp_path: Path) -> None:
    """Asking `importlib.metadata` costs each start 20 ms."""
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "__init__.py").touch()
    (tmp_path / "theirs" / "x.toml").write_text('programs = ["theirtool"]\nabout = "of a package"\n')
    ask = (
        "import os, sys; before = set(sys.modules); from pathlib import Path; from millrace.adapters import description_lookup;"
        "print(description_lookup.find_description('theirtool', Path.cwd(), os.environ), 'importlib.metadata' in set(sys.modules) - before)"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    for group, words in (("console_scripts", "None False"), ("millrace.tools", "source='package theirs'")):
        (info / "entry_points.txt").write_text(f"[{group}]\ntheirs = theirs\n")
        done = subprocess.run([sys.executable, "-c", ask], env=environ, capture_output=True, text=True, check=True)
        assert words in done.stdout


#: An adapter of a package: it needs no --input, as it knows which argument is one.
ADAPTER = """
import msgspec
from millrace.adapters.registry import find_adapter

class Theirs:
    def understand_command(self, command):
        return find_adapter("").understand_command(msgspec.structs.replace(command, inputs=(command.argv[-1],)))

ADAPTER = Theirs()
"""


def test_installed_adapter_is_found_by_entry_point(described: Shell) -> None:
    described.tool("theirtool", 'while read -r line; do printf "%s!\\n" "$line"; done < "$1"')
    packages = described.root / "packages"
    (info := packages / "theirs-1.0.dist-info").mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[millrace.adapters]\ntheirtool = theirs:ADAPTER\n")
    (packages / "theirs.py").write_text(ADAPTER)
    line = f"seq 9 > n.txt; PYTHONPATH={packages} millrace run --format lines -- theirtool n.txt"
    ended = described.run(line)
    assert (ended.code, ended.out) == (0, "".join(f"{n}!\n" for n in range(1, 10))), ended.shown
    (packages / "theirs.py").write_text("ADAPTER = 1")
    ended = described.run(line)
    assert ended.code == 2 and "theirs:ADAPTER of theirs is no adapter" in ended.err, ended.shown


def test_unconfirmed_description_is_refused_with_the_command(described: Shell) -> None:
    """What it says of the program, its version too, is not done before: neither by run nor by plan."""
    ran = described.root / "ran"
    described.tool("mytool", f"touch {ran}\n{MYTOOL}")
    path = described.work / "millrace-tools" / "mytool.toml"
    path.write_text(path.read_text() + "# changed\n")
    for verb in ("run", "plan"):
        ended = described.run(f"millrace {verb} -- mytool -d nr -o out in.fa")
        assert ended.code == 2 and "has not been confirmed as it is now" in ended.err, ended.shown
        assert ended.err.rstrip().endswith(f"if you trust it: {ALLOW}"), ended.shown
        assert not ran.exists() and not (described.work / "out").exists()
    assert f"not confirmed: {ALLOW}]" in described.run("millrace tool list").out
    allowed = described.run(ALLOW)
    assert allowed.code == 0 and "describes mytool, asked for its version by: mytool --version" in allowed.out
    assert described.run("millrace plan -- mytool -d nr -o out in.fa").code == 0 and ran.exists()
    assert "not confirmed" not in described.run("millrace tool list").out


def test_description_of_the_user_needs_no_confirmation(described: Shell) -> None:
    user = described.root / "config" / "millrace" / "tools"
    user.mkdir(parents=True)
    (described.work / "millrace-tools" / "mytool.toml").rename(user / "mytool.toml")
    ended = described.run(
        f"rm -r ../state; XDG_CONFIG_HOME={described.root}/config millrace run -- mytool -d nr -o out in.fa > head"
    )
    assert ended.code == 0, ended.shown


@pytest.mark.parametrize(
    ("programs", "version", "words"),
    [
        ("mytool", '["-c", "touch ran"]', "not plain words that ask for a version"),
        ("mytool", '["--version", "--help", "-v"]', "not plain words that ask for a version"),
        ("mytool", '["./script"]', "not plain words that ask for a version"),
        ("mytool", '["--eval=1"]', "not plain words that ask for a version"),
        ("sh", '["script"]', "sh runs what its arguments name"),
        ("python3.11", '["script"]', "python3.11 runs what its arguments name"),
        ("perl", '["-v"]', "perl runs what its arguments name"),
        ("awk", '["script"]', "awk runs what its arguments name"),
    ],
)
def test_version_words_that_could_run_code_are_refused(
    described: Shell, programs: str, version: str, words: str
) -> None:
    path = described.work / "millrace-tools" / "mytool.toml"
    path.write_text(path.read_text().replace('["mytool"]', f'["{programs}"]').replace('["--version"]', version))
    ended = described.run(ALLOW)
    assert ended.code == 2 and words in ended.err, ended.shown
    ended = described.run(f"millrace plan -- {programs} in.fa")
    assert ended.code == 2 and words in ended.err, ended.shown


def test_renamed_interpreter_is_not_asked_for_its_version(described: Shell) -> None:
    """The word would name a script of the working folder."""
    path = described.work / "millrace-tools" / "mytool.toml"
    path.write_text(path.read_text().replace('["--version"]', '["script"]'))
    (described.root / "bin" / "mytool").unlink()
    (described.root / "bin" / "mytool").symlink_to("/bin/sh")
    (described.work / "script").write_text("touch ran\n")
    ended = described.run(f"{ALLOW} && millrace plan -- mytool -d nr -o out in.fa")
    assert ended.code == 0 and "version unknown" in ended.out, ended.shown
    assert not (described.work / "ran").exists()
