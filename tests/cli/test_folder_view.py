"""What tasks see of the user's folder: what the command by itself sees, whoever runs it, wherever; or it is refused."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from parameter_choice import again, crossed
from shell import Shell

#: Without the right to mount anything, as an ordinary user.
NO_MOUNTS = "setpriv --bounding-set -sys_admin --inh-caps -sys_admin"

#: Who runs both commands, and where. Each line runs the words that follow it.
PLACES = {
    "root": "",
    "user namespaces": NO_MOUNTS,
    "no user namespaces": (
        "unshare --user --map-root-user sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; "
        f'exec {NO_MOUNTS} "$@"\' sh'
    ),
    # Links are followed on the other side, as by sshfs; every look asks anew, as on NFS without a cache.
    "sshfs": (
        'unshare --mount sh -c \'env -i PATH="$PATH" bindfs -o allow_other,nonempty "$PWD" "$PWD" && cd "$PWD" && "$@"; '
        'code=$?; here=$PWD; cd /; umount --lazy "$here"; exit $code\' sh'
    ),
    "nfs": (
        'unshare --mount sh -c \'env -i PATH="$PATH" bindfs -o allow_other,nonempty,attr_timeout=0,entry_timeout=0,'
        'negative_timeout=0 "$PWD" "$PWD" && cd "$PWD" && "$@"; '
        'code=$?; here=$PWD; cd /; umount --lazy "$here"; exit $code\' sh'
    ),
}

#: A container that shows its working directory and the system's programs, and nothing else.
CONTAINER = r"""#!/bin/sh
exec unshare --mount --map-root-user sh -c '
  here=$PWD; mount -t tmpfs none /mnt && cd /mnt || exit 1
  for each in /usr /bin /lib /lib64 /dev "$here"; do mkdir -p ".$each" && mount --rbind "$each" ".$each" || exit 1; done
  cd /mnt && exec chroot . sh -c "cd \"$here\" && exec \"\$@\"" sh "$@"' sh "$@"
"""

SCRIPT = "printf '#!/bin/sh\\nwhile read x; do echo \"$x %s\"; done\\n' {words} > tool; chmod +x tool; seq 5 > in.txt"

#: Starts soon.
PYTHON = f"{shlex.quote(os.path.realpath(sys.executable))} -IS"

#: What prepares the folder, and the command. Everything is made in ``proj``, which has a neighbour, ``beside``.
SCRIPTS = {
    "folder above": ("echo OUT > ../beside/settings", "$(cat ../beside/settings)"),
    "find": ("touch a.ini b.ini", '$(find . -maxdepth 1 -type f -name "*.ini" | sort | tr "\\n" " ")'),
    "grep": ("echo key > a.ini", "$(grep -r key --include=*.ini .)"),
    "stat": ("echo key > a.ini; ln -s a.ini link", '$(stat -c "%F %s %a" a.ini link) $(stat -c "%F %a" .)'),
    "scandir": ("touch a.ini", f"$({PYTHON} -c \"import os; print([e.name for e in os.scandir() if e.name[-1] == 'i' and e.is_file(follow_symlinks=False)])\")"),
    "where": ("", '$(pwd) $(pwd -P) $PWD $(readlink /proc/self/cwd)'),
    "many files": ("echo key > key.ini; seq 3000 | sed 's/^/old/' | xargs touch", "$(cat key.ini)"),
    "container": ("echo key > a.ini", "$(./container cat a.ini)"),
}  # fmt: skip


#: Where it matters that NFS asks anew.
FRESH = ("folder above", "many files")


@pytest.fixture
def project(shell: Shell) -> Shell:
    shell.run("mkdir proj beside")
    return shell


def compared(shell: Shell, place: str, prepare: str, command: str, *options: str) -> tuple[int, str, str]:
    """Run a command by itself and through Millrace in the same place; exit code, what it said, and what the first wrote."""
    if "bindfs" in PLACES[place] and not shutil.which("bindfs"):
        pytest.skip("bindfs is not installed")
    before = f"cd proj; {prepare}\n"
    alone = shell.run(f"{before}{PLACES[place]} sh -c {shlex.quote(f'{command} > ../serial')}")
    assert alone.code == 0, alone.shown
    left = files(shell.work / "proj")
    through = f"millrace run -q {' '.join(options)} -- {command} > ../parallel"
    ended = shell.run(f"cd proj; rm -f out; {PLACES[place]} sh -c {shlex.quote(through)}")
    assert files(shell.work / "proj") <= left | {
        "out",
        *(each for each in files(shell.work / "proj") if ".millrace" in each),
    }
    return ended.code, ended.shown, (shell.work / "serial").read_text()


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("case", "place"),
    [
        again(case, place) if place == "nfs" and case not in FRESH else (case, place)
        for case in SCRIPTS
        for place in PLACES
        # The container itself needs what that place has not.
        if (case, place) != ("container", "no user namespaces")
    ],
)
def test_script_sees_the_folder_or_is_refused(project: Shell, place: str, case: str) -> None:
    prepare, words = SCRIPTS[case]
    (project.work / "proj" / "container").write_text(CONTAINER)
    (project.work / "proj" / "container").chmod(0o755)
    prepare = f"{prepare or ':'}\n{SCRIPT.format(words=shlex.quote(words))}"
    code, shown, serial = compared(project, place, prepare, "./tool < in.txt", "--format lines --batch 2")
    if code == 0:
        assert (project.work / "parallel").read_text() == serial, shown
    else:
        assert place == "no user namespaces" and code == 5 and "looks at more of its folder" in shown, shown
        assert not (project.work / "parallel").read_text()


BLAST = """
awk '/^>/ {{ n++ }} n <= 300' {data}/proteins_db.faa > ../beside/d.fa
makeblastdb -in ../beside/d.fa -dbtype prot -out ../beside/d > /dev/null
awk '/^>/ {{ n++ }} n <= 4' ../beside/d.fa > q.fa
"""

#: How a search finds its database.
DATABASES = {
    "alias": ("printf 'TITLE x\\nDBLIST ../beside/d\\n' > x.pal", "-db x"),
    "ncbirc": ("printf '[BLAST]\\nBLASTDB=../beside\\n' > .ncbirc", "-db d"),
    "argument": ("", "-db ../beside/d"),
}


@pytest.mark.parametrize(("case", "place"), crossed(DATABASES, PLACES))
def test_search_opens_its_database_in_the_view(project: Shell, data: Path, place: str, case: str) -> None:
    prepare, database = DATABASES[case]
    prepare = BLAST.format(data=shlex.quote(str(data))) + (prepare or ":")
    command = f"blastp -query q.fa {database} -outfmt 6 -out out"
    code, shown, _ = compared(project, place, f"{prepare}\n", f"{command} && cat out", "--batch 2")
    assert code == 0, shown
    serial = (project.work / "serial").read_bytes()
    assert (project.work / "proj" / "out").read_bytes() == serial and serial, shown


#: A ligand with two atoms, and where it is docked: the receptor is named by the configuration alone.
LIGAND = """ROOT
ATOM      1  C   LIG A   1       0.000   0.000   0.000  1.00  0.00    +0.000 C 
ATOM      2  O   LIG A   1       1.400   0.000   0.000  1.00  0.00    +0.000 OA
ENDROOT
TORSDOF 0
"""
DOCKING = "\n".join([
    "receptor = ../beside/r.pdbqt", "center_x = 15.19", "center_y = 53.903", "center_z = 16.917", "size_x = 10", "size_y = 10",
    "size_z = 10", "exhaustiveness = 1", "max_evals = 500", "",
])  # fmt: skip


@pytest.mark.parametrize("place", ["root", again("user namespaces"), "no user namespaces"])
def test_docking_opens_the_receptor_of_its_configuration(project: Shell, data: Path, place: str) -> None:
    if not shutil.which("vina"):
        pytest.skip("vina is not installed")
    folder = project.work / "proj"
    shutil.copy(data / "1iep_receptor.pdbqt", project.work / "beside" / "r.pdbqt")
    (folder / "conf.txt").write_text(DOCKING)
    for name in ("l1.pdbqt", "l2.pdbqt", "l3.pdbqt"):
        (folder / name).write_text(LIGAND)
    command = "vina --config conf.txt --batch l1.pdbqt l2.pdbqt l3.pdbqt --dir out --seed 1 --cpu 1"
    alone = project.run(f"cd proj; mkdir out; {command} > /dev/null; mv out ../serial")
    assert alone.code == 0, alone.shown
    line = f"cd proj; mkdir out; {PLACES[place]} millrace run -q -- {command} > /dev/null; code=$?; diff -r out ../serial; exit $code"
    ended = project.run(line)
    assert (ended.code, ended.out) == (0, "") and len(os.listdir(project.work / "serial")) == 3, ended.shown


def test_killed_run_leaves_no_mounts_or_files(project: Shell) -> None:
    project.tool("tool", 'echo mine > made; touch "$MARK/begun"; sleep 600; cat')
    mounts = Path("/proc/self/mountinfo").read_text()
    line = "cd proj; seq 9 > in.txt; exec millrace run --format lines --batch 1 --verify 0 -- tool < in.txt"
    environ = {**os.environ, "PATH": f"{project.root / 'bin'}:{os.environ['PATH']}", "MARK": str(project.root)}
    with subprocess.Popen(
        ["bash", "-c", line], cwd=project.work, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        try:
            deadline = time.monotonic() + 300
            while not (project.root / "begun").exists():
                assert time.monotonic() < deadline and run.poll() is None, "no task is at work"
                time.sleep(0.05)
            assert not (project.work / "proj" / "made").exists()
        finally:
            run.kill()
    deadline = time.monotonic() + 300
    while sleepers(project.work) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not sleepers(project.work)
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert {each for each in files(project.work / "proj") if ".millrace" not in each} == {"in.txt"}


def sleepers(work: Path) -> list[str]:
    """Processes whose working directory is the folder, as they see it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd").startswith(str(work)):
                found.append(process.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    "does",
    ["rm -r old; mkdir old; echo new > old/b; ls old", "mv old older; ls older", "rm -f log; ls | grep -c log || true"],
    ids=["made anew", "renamed", "removed"],
)
def test_each_task_starts_with_the_original_folder(project: Shell, does: str) -> None:
    script = f"while read x; do ({does}); done < in.txt > out.txt"
    project.run(f"cd proj; mkdir old; touch old/a log; seq 1 > in.txt; printf '%s\\n' {shlex.quote(script)} > s.sh")
    run = "millrace run -q --verify 0 --format lines --batch 1 --slots 2 --input in.txt --output out.txt -- sh s.sh"
    ended = project.run(f"cd proj; cp -r . ../serial; (cd ../serial; sh s.sh); seq 1 6 > in.txt; {run}")
    assert ended.code == 0, ended.shown
    assert (project.work / "proj/out.txt").read_text() == (project.work / "serial/out.txt").read_text() * 6
    assert "a" in os.listdir(project.work / "proj/old") and "log" in os.listdir(project.work / "proj")


def test_mounts_below_the_folder_are_visible(project: Shell) -> None:
    if os.geteuid():
        pytest.skip("only root can mount there")
    project.run("mkdir proj/sub; echo inner > beside/note; seq 7 > proj/in.txt")
    inner = 'mount --bind "$PWD/beside" proj/sub; cd proj; "$@"'
    command = "sh -c 'while read x; do echo $x $(cat sub/note); done'"
    ended = project.run(
        f"unshare --mount sh -c {shlex.quote(inner)} sh millrace run -q --format lines -- {command} < proj/in.txt"
    )
    assert (ended.code, ended.out) == (0, "".join(f"{n} inner\n" for n in range(1, 8))), ended.shown


@pytest.mark.parametrize(
    ("source", "dest"),
    [("../beside/q.txt", "../beside/out"), ("$PWD/q.txt", "$PWD/out"), ("link/q.txt", "link/out"), ("link.txt", "out")],
)
def test_inputs_and_outputs_elsewhere_keep_their_names(project: Shell, source: str, dest: str) -> None:
    project.run("cd proj; seq 7 > q.txt; cp q.txt ../beside; ln -s ../beside link; ln -s ../beside/q.txt link.txt")
    project.tool(
        "tool",
        'while read x; do echo "$x $1 $2 $(readlink -f "$1") $(ls "$(dirname "$1")" | grep -cx q.txt)"; done < "$1" > "$2"; touch "$1.log"',
    )
    alone = project.run(f"cd proj; tool {source} {dest}; cat {dest}; rm {dest} {source}.log")
    run = f'millrace run -q --format lines --batch 2 --input "{source}" --output "{dest}" -- tool {source} {dest}'
    ended = project.run(f"cd proj; {run}; cat {dest}")
    assert (ended.code, ended.out) == (0, alone.out), ended.shown
    assert not [each for each in files(project.work) if each.endswith(".log")]


def test_command_without_its_file_names_is_refused_without_a_view(project: Shell) -> None:
    prepare = "cd proj; seq 7 > in.txt; echo 'cat in.txt > out.txt' > s.sh"
    run = "millrace run --format lines --input in.txt --output out.txt -- sh s.sh"
    ended = project.run(f"{prepare}; {PLACES['no user namespaces']} {run}")
    assert ended.code == 2 and "tasks cannot be shown the working folder as it is here" in ended.shown, ended.shown
    assert files(project.work / "proj") == {"in.txt", "s.sh"}
    assert project.run(f"{prepare}; {run} && cmp in.txt out.txt").code == 0


def test_doctor_and_plan_report_what_tasks_see(project: Shell) -> None:
    plan = "millrace plan --format lines -- ./tool < in.txt"
    prepare = f"cd proj; {SCRIPT.format(words='')}; "
    good = project.run(f"{prepare}millrace doctor; {plan}")
    assert "tasks see this folder as it is" in good.out and "view:" not in good.out.partition("tools:")[2], good.shown
    bad = project.run(f"{prepare}{PLACES['no user namespaces']} millrace doctor; {PLACES['no user namespaces']} {plan}")
    assert "no overlay over this folder (no user namespace for this user" in bad.out, bad.shown
    assert "view: tasks work among links to what is in the folder (no user namespace" in bad.out, bad.shown
