"""URLs in the tool's own arguments: the output is that of the command with their last parts, in a folder with these files."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import random
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hmmer_profiles import profile
from parameter_choice import some
from shell import Ended, Shell
from web_server import Web

LETTERS = "ACDEFGHIKLMNPQRSTVWY"

#: ``put(name, content)`` for a kind of server; returns the URL.
Put = Callable[[str, bytes], str]


def needs(*programs: str) -> None:
    if missing := [name for name in programs if not shutil.which(name)]:
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A cache of its own, which ``--stage`` names."""
    (tmp_path / "cache").mkdir()
    yield f"--stage {tmp_path}/cache"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a BLAST database of several volumes, its sequences, and queries that are like some of these."""
    needs("blastp", "makeblastdb")
    folder, chance = tmp_path_factory.mktemp("database"), random.Random(16)
    entries = ["".join(chance.choices(LETTERS, k=chance.randint(60, 400))) for _ in range(400)]
    (folder / "all.faa").write_text("".join(f">s{k} protein {k}\n{entry}\n" for k, entry in enumerate(entries)))
    (folder / "q.faa").write_text("".join(f">q{k}\n{entries[k * 9][:80]}\n" for k in range(24)))
    subprocess.run(
        ["makeblastdb", "-in", "all.faa", "-dbtype", "prot", "-out", "nr", "-title", "some proteins", "-max_file_sz", "50KB"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    assert len(list(folder.glob("nr.*.psq"))) > 1 and (folder / "nr.pal").exists()
    return folder


def serial(folder: Path, *words: str) -> bytes:
    return subprocess.run(words, cwd=folder, check=True, capture_output=True).stdout


def files_of(folder: Path, pattern: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob(pattern))}


@pytest.fixture
def put(request: pytest.FixtureRequest, tmp_path: Path) -> Put:
    kind = request.param
    server = request.getfixturevalue(kind)
    if kind == "web":
        return lambda name, content: server.put(f"db/{name}", content)
    if kind == "hdfs":
        return lambda name, content: server(f"urls/{name}", content)
    if kind in ("sftp", "ftp"):

        def write(name: str, content: bytes) -> str:
            (tmp_path / "served").mkdir(exist_ok=True)
            (tmp_path / "served" / name).write_bytes(content)
            return f"{server}/served/{name}" if kind == "ftp" else f"{server}{tmp_path}/served/{name}"

        return write

    def upload(name: str, content: bytes) -> str:
        import boto3

        boto3.client("s3").put_object(Bucket="blast", Key=f"db/{name}", Body=content)
        return f"{server}/db/{name}"

    return upload


def serve(put: Put, files: dict[str, bytes]) -> str:
    """Put files there; the URL of their folder."""
    return [put(name, content) for name, content in files.items()][-1].rpartition("/")[0]


@pytest.mark.parametrize("put", some(["web", "bucket", "sftp", "ftp", "hdfs"], "hdfs"), indirect=True)
def test_a_blast_database_behind_a_url_is_all_its_files(put: Put, database: Path, shell: Shell, own_cache: str) -> None:
    url = serve(put, {**files_of(database, "nr.*"), **files_of(database, "q.faa")})
    for form in ("7", "0"):  # which tell the name, and the title
        wanted = serial(database, "blastp", "-query", "q.faa", "-db", "nr", "-evalue", "1e-3", "-outfmt", form)
        done = shell.run(
            f"millrace run {own_cache} --batch 5 -- blastp -query {url}/q.faa -db {url}/nr -evalue 1e-3 -outfmt {form}"
        )
        assert done.code == 0, done.shown
        assert done.out == wanted.decode()
    assert b"# Database: nr\n" in serial(
        database, "blastp", "-query", "q.faa", "-db", "nr", "-evalue", "1e-3", "-outfmt", "7"
    )


@pytest.mark.slow
@pytest.mark.parametrize("put", ["web"], indirect=True)
def test_fragments_of_a_url_database_are_exact(put: Put, database: Path, shell: Shell, own_cache: str) -> None:
    url = serve(put, files_of(database, "nr.*"))
    shutil.copy(database / "q.faa", shell.work)
    wanted = serial(database, "blastp", "-query", "q.faa", "-db", "nr", "-evalue", "1e-3", "-outfmt", "6")
    done = shell.run(
        f"millrace run {own_cache} --fragments 3 -- blastp -query q.faa -db {url}/nr -evalue 1e-3 -outfmt 6 -out hits"
    )
    assert done.code == 0, done.shown
    assert (shell.work / "hits").read_bytes() == wanted


def test_a_server_that_lists_nothing_is_asked_for_each_file(
    web: Web, database: Path, shell: Shell, own_cache: str
) -> None:
    web.lists = False
    url = serve(web.put, files_of(database, "nr.*"))
    shutil.copy(database / "q.faa", shell.work)
    wanted = serial(database, "blastp", "-query", "q.faa", "-db", "nr", "-evalue", "1e-3", "-outfmt", "7")
    done = shell.run(f"millrace run {own_cache} -- blastp -query q.faa -db {url}/nr -evalue 1e-3 -outfmt 7")
    assert done.code == 0, done.shown
    assert done.out == wanted.decode()


@pytest.mark.slow
def test_packed_ncbi_volumes_are_unpacked_once(web: Web, database: Path, shell: Shell, own_cache: str) -> None:
    files = files_of(database, "nr.*")
    volumes = sorted({name[:5] for name in files if name[3:5].isdigit()})
    for volume in volumes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, content in files.items():
                if name.startswith(volume) or (volume == volumes[0] and not name[3:5].isdigit()):
                    entry = tarfile.TarInfo(name)
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
        web.put(f"{volume}.tar.gz", packed.getvalue())
    shutil.copy(database / "q.faa", shell.work)
    wanted = serial(database, "blastp", "-query", "q.faa", "-db", "nr", "-evalue", "1e-3", "-outfmt", "7")
    for _ in range(2):
        done = shell.run(f"millrace run {own_cache} -- blastp -query q.faa -db {web.url}/nr -evalue 1e-3 -outfmt 7")
        assert done.code == 0, done.shown
        assert done.out == wanted.decode()
    assert web.n_downloads == len(volumes), "each once"


@pytest.mark.parametrize("pack", ["gz", "bz2", "zst"])
def test_packed_file_has_its_unpacked_name(pack: str, web: Web, shell: Shell, own_cache: str) -> None:
    text = "".join(f">r{k}\n{'ACGT' * 50}\n" for k in range(500)).encode()
    if pack == "zst":
        from millrace import _core

        packed = bytes(_core.pack(text))
    else:
        packed = (gzip.compress if pack == "gz" else bz2.compress)(text)
    url = web.put(f"set.fa.{pack}", packed)
    shell.tool("both", 'cat "$1"; echo "$1 $2"; cksum < "$2"')
    for _ in range(2):
        done = shell.run(f"millrace run {own_cache} --batch 500 --verify 0 --input in.fa -- both in.fa {url}")
        assert done.code == 0, done.shown
    (shell.work / "set.fa").write_bytes(text)
    wanted = subprocess.run(
        [shell.root / "bin" / "both", "in.fa", "set.fa"], cwd=shell.work, capture_output=True
    ).stdout
    assert done.out == wanted.decode()
    assert web.n_downloads == 1


def test_hmmer_database_is_fetched_with_its_pressed_files(
    web: Web, shell: Shell, own_cache: str, tmp_path: Path
) -> None:
    needs("hmmscan", "hmmbuild", "hmmpress")
    folder, chance = tmp_path / "profiles", random.Random(3)
    folder.mkdir()
    family = ["".join(chance.choices(LETTERS, k=90)) for _ in range(3)]
    for k, entry in enumerate(family):
        rows = "\n".join(
            f"s{n} {''.join(c if chance.random() < 0.8 else chance.choice(LETTERS) for c in entry)}" for n in range(5)
        )
        (folder / f"{k}.sto").write_text(f"# STOCKHOLM 1.0\n#=GF ID fam{k}\n{rows}\n//\n")
        serial(folder, "hmmbuild", f"{k}.hmm", f"{k}.sto")
    (folder / "some.hmm").write_bytes(b"".join((folder / f"{k}.hmm").read_bytes() for k in range(3)))
    serial(folder, "hmmpress", "some.hmm")
    (folder / "q.faa").write_text("".join(f">q{k}\n{family[k % 3]}\n" for k in range(12)))
    wanted = serial(folder, "hmmscan", "some.hmm", "q.faa")
    url = serve(web.put, files_of(folder, "some.hmm*"))
    shutil.copy(folder / "q.faa", shell.work)
    done = shell.run(f"millrace run {own_cache} --batch 3 -- hmmscan {url}/some.hmm q.faa")
    assert done.code == 0, done.shown
    assert _without_times(done.out) == _without_times(wanted.decode())
    assert "# target HMM database:             some.hmm\n" in done.out


def _without_times(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith(("# CPU time", "# Mc/sec"))]


def stopped(shell: Shell, web: Web, options: str) -> str:
    """A run that ends half done; its command."""
    url = web.put("set.fa", b">x\nACGT\n")
    shell.tool(
        "pick",
        'text=$(cat "$1"); [ ! -e stop ] || case $text in *r2*) exit 9;; esac; { echo "$text"; cat "$2"; } > "$3"',
    )
    (shell.work / "stop").touch()
    command = f"millrace run {options} --batch 1 --verify 0 --retries 0 --max-quarantined 0 --input in.fa --output out -- pick in.fa {url} out"
    assert shell.run(command).code not in (0, 2)
    (shell.work / "stop").unlink()
    return command


def test_a_run_is_resumed_with_the_same_bytes_alone(web: Web, shell: Shell, own_cache: str) -> None:
    command = stopped(shell, web, own_cache)
    old, tag = web.files["set.fa"], web.tags["set.fa"]
    web.put("set.fa", b">x\nTTTT\n")
    refused = shell.run(command)
    assert refused.code == 2, refused.shown
    assert f"database {web.url}/set.fa, set.fa: was 8 bytes, version {tag}" in refused.err
    web.put("set.fa", old)
    done = shell.run(command)
    assert done.code == 0, done.shown
    assert (shell.work / "out").read_text() == ">r1\nMKV\n>x\nACGT\n>r2\nMAA\n>x\nACGT\n>r3\nMLL\n>x\nACGT\n"
    assert web.n_downloads == 2, "each version once"


def test_file_changed_during_the_run_is_reported(web: Web, shell: Shell, own_cache: str) -> None:
    """The output is that of the version at the start."""
    url = web.put("set.fa", b">x\nACGT\n")
    shell.tool(
        "wait",
        'while [ ! -e "$GO" ]; do case $(cat "$1") in *r1*) break;; esac; sleep 0.05; done; cat "$1" "$2" > "$3"',
    )
    go = shell.root / "go"
    process = subprocess.Popen(
        ["bash", "-c", f"GO={go} millrace run {own_cache} --batch 1 --verify 0 --input in.fa --output out -- wait in.fa {url} out"],
        cwd=shell.work, env={**os.environ, "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}", "MARK": str(shell.root)},
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not (shell.work / "out").exists():
        assert process.poll() is None, process.communicate()[1]
    web.put("set.fa", b">x\nTTTT\n")
    go.touch()
    said = process.communicate()[1]
    assert process.returncode == 0, said
    assert f"{url}: has changed since; the output is that of the file as it was at the start" in said
    assert (shell.work / "out").read_text().count("ACGT") == 3


def run(shell: Shell, options: str, url: str) -> Ended:
    return shell.run(f"millrace run {options} --batch 1 --verify 0 --input in.fa --output out -- pick in.fa {url} out")


@pytest.mark.slow
def test_unreadable_url_is_reported_before_the_start(web: Web, shell: Shell, own_cache: str) -> None:
    url = web.put("set.fa", b">x\nACGT\n")
    said = {}
    for name, place, code in (
        ("gone", f"{web.url}/no.fa", 1),
        ("kind", "gopher://host/no.fa", 0),
        ("password", url.replace("://", "://me:mark-secret@"), 2),
        ("signature", f"{url}?X-Amz-Signature=mark-secret", 2),
        ("folder", f"{web.url}/db/", 2),
        ("option", f"{web.url}/-rf", 2),
    ):
        if code:
            done = run(shell, own_cache, place)
            assert done.code == code, (name, done.shown)
            assert "mark-secret" not in done.err
            said[name] = done.err
    web.status = 403
    said["denied"] = run(shell, own_cache, url).err
    web.status, web.login = 0, "me:mark-secret"
    said["login"] = run(shell, own_cache, url).err
    web.login = ""
    web.tells_digest = web.spoil = True
    wrong = run(shell, own_cache, url)
    web.spoil = web.tells_digest = False
    assert wrong.code == 5 and "has another checksum than the server says" in wrong.err
    output = shell.run(f"millrace run {own_cache} --input in.fa --output {web.url}/out -- tee2 in.fa out")
    assert output.code == 2 and "cannot be written" in output.err
    for name, words in {
        "gone": "no.fa: no such file", "password": "holds a user name or password", "signature": "is as good as a password",
        "folder": "names no file", "option": "names no file", "denied": "permission denied (403)", "login": "wants a name and a password",
    }.items():  # fmt: skip
        assert words in said[name], name
    assert shell.run_dirs() == [] and not (shell.work / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("way", some(["run", "plan", "slurm -N 1 -t 10 --dry-run"], "run"))
def test_url_query_and_fragment_parts_are_refused_unlogged(way: str, web: Web, shell: Shell, own_cache: str) -> None:
    """They may hold secrets."""
    url = web.put("set.fa", b">x\nACGT\n")
    options = f"{own_cache} --keep-run-dir" if way == "run" else ""
    for ending, words in (
        ("?u=mark-secret-word", "as good as a password"),
        ("?mark-secret-word", "as good as a password"),
        ("#mark-secret-word", "what stands behind # is for browsers"),
        ("#mark-secret-word?x", "what stands behind # is for browsers"),
    ):
        for rest in (
            f"--input in.fa --output out -- see in.fa '{url}{ending}' out",
            f"--input in.fa --shared '{url}{ending}' --output out -- see in.fa --set='{url}{ending}' out",
            f"-- blastp -query in.fa -db 'nr {url}{ending}' -out out",
        ):
            done = shell.run(f"MILLRACE_LOG={shell.root}/log millrace {way} {options} {rest}")
            assert done.code == 2, done.shown
            assert words in done.err
            assert "mark-secret-word" not in done.shown
    shell.tool("see", 'cat "$1" "$2" > "$3"')
    assert "mark-secret-word" not in shell.run("millrace runs").shown
    files = [path for path in shell.root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in files if b"mark-secret-word" in path.read_bytes()] == []
    assert shell.run_dirs() == [] and web.n_downloads == 0


def test_a_url_may_stand_right_behind_a_short_option(web: Web, shell: Shell, own_cache: str) -> None:
    url = web.put("set.fa", b">x\nACGT\n")
    shell.tool("see", 'cat "$1" "${2#-s}" > "$3"')
    done = shell.run(
        f"millrace run {own_cache} --batch 3 --verify 0 --input in.fa --output out -- see in.fa -s{url} out"
    )
    assert done.code == 0, done.shown
    assert (shell.work / "out").read_bytes() == (shell.work / "in.fa").read_bytes() + b">x\nACGT\n"


def test_an_object_with_a_question_mark_is_fetched_by_hand(bucket: str, shell: Shell, own_cache: str) -> None:
    """The refusal said to write %3F, which is another object in S3."""
    import boto3

    url = f"{bucket}/what?.fa"
    boto3.client("s3").put_object(Bucket="blast", Key="what?.fa", Body=b">x\nACGT\n")
    done = shell.run(f"millrace run --input in.fa --output out -- tee2 '{url}' out")
    assert done.code == 2 and "its copy named: millrace data stage" in done.err, done.shown
    done = shell.run(f"cat \"$(millrace data stage --to {shell.root} '{url}')\"")
    assert done.out == ">x\nACGT\n", done.shown


def test_unsupported_url_schemes_are_refused_for_known_tools(shell: Shell) -> None:
    for url, hint in (
        ("gopher://host/blast/db/nr", "by https://"),
        ("HTTPS://host/nr", "by https://"),
        ("file:///db/nr", "name the path alone"),
    ):
        done = shell.run(f"millrace run -- blastp -query in.fa -db {url} -out out")
        assert done.code == 2, done.shown
        assert f"{url}: {url.partition(':')[0]}:// is not known in a command" in done.err and hint in done.err
    done = shell.run("millrace run --verify 0 --input in.fa -- tee gopher://host/x < in.fa")
    assert "is not known in a command" not in done.err, "for the tool"


def test_command_reads_an_ftp_url_and_writes_none(ftp: str, tmp_path: Path, shell: Shell, own_cache: str) -> None:
    (tmp_path / "set.fa").write_bytes(b">x\nACGT\n")
    shell.tool("pick", 'sed "s/MKV/$(tail -n 1 "$2")/" "$1" > "$3"')
    done = run(shell, own_cache, f"{ftp}/set.fa")
    serial = shell.run(f"pick in.fa {tmp_path}/set.fa serial && cmp serial out && ! cmp -s in.fa out")
    assert done.code == serial.code == 0, (done.shown, serial.shown)
    done = shell.run(f"millrace run --input in.fa --output {ftp}/out -- tee2 in.fa {ftp}/out")
    assert done.code == 2 and f"{ftp}/out: cannot be written" in done.err, done.shown


def test_plan_shows_each_url_and_its_copy(
    web: Web, database: Path, shell: Shell, own_cache: str, tmp_path: Path
) -> None:
    url = serve(web.put, {**files_of(database, "nr.*"), **files_of(database, "q.faa")})
    done = shell.run(f"millrace plan {own_cache} -- blastp -query {url}/q.faa -db {url}/nr -evalue 1e-3 -outfmt 7")
    assert done.code == 0, done.shown
    shown = [line.split() for line in done.out.splitlines() if line.startswith("fetched:")]
    assert {words[1] for words in shown} >= {f"{url}/q.faa,", f"{url}/nr.pal,", f"{url}/nr.00.psq,"}
    assert all(Path(words[-1]).is_relative_to(tmp_path / "cache") and Path(words[-1]).is_file() for words in shown)
    assert "millrace-names" not in done.out


def test_sequence_file_as_database_is_refused_with_a_hint(
    web: Web, database: Path, shell: Shell, own_cache: str
) -> None:
    url = serve(web.put, files_of(database, "q.faa"))
    done = shell.run(f"millrace run {own_cache} -- blastp -query {url}/q.faa -db {url}/q.faa")
    assert done.code == 1, done.shown
    assert "is there as one file, and not as a database" in done.err and "makeblastdb" in done.err


def test_one_url_as_query_and_subject(web: Web, database: Path, shell: Shell, own_cache: str) -> None:
    url = web.put("q.faa", (database / "q.faa").read_bytes())
    wanted = serial(database, "blastp", "-query", "q.faa", "-subject", "q.faa", "-evalue", "1e-3", "-outfmt", "6")
    done = shell.run(f"millrace run {own_cache} --batch 5 -- blastp -query {url} -subject {url} -evalue 1e-3 -outfmt 6")
    assert done.code == 0, done.shown
    assert done.out == wanted.decode()


def test_credentials_are_in_no_file_message_or_list_of_processes(
    web: Web, shell: Shell, own_cache: str, environment: Path
) -> None:
    # Another test's word may be in the list of processes just then.
    web.login = "me:mark-netrc-word"
    (environment / ".netrc").write_text("machine localhost login me password mark-netrc-word\n")
    (environment / ".netrc").chmod(0o600)
    url = web.put("set.fa", b">x\nACGT\n")
    shell.tool("see", 'cat "$1" "$2" > "$3"; cat /proc/*/cmdline >> "$COUNT" 2>/dev/null; true')
    done = shell.run(
        f"MILLRACE_LOG={shell.root}/log millrace run -vv {own_cache} --keep-run-dir --batch 1 --verify 0 "
        f"--input in.fa --output out -- see in.fa {url} out; millrace report out.millrace -o report.html; millrace data list --to {shell.root}/cache"
    )
    assert done.code == 0, done.shown
    assert "mark-netrc-word" not in done.shown
    files = [path for path in shell.root.rglob("*") if path.is_file() and not path.is_symlink()]
    assert any("out.millrace" in str(path) for path in files)
    assert [path for path in files if b"mark-netrc-word" in path.read_bytes()] == []


def test_unsupported_hdfs_search_is_reported(hdfs: Callable[[str, bytes], str], shell: Shell, own_cache: str) -> None:
    url = hdfs("whole/set.faa", b">s\nMKV\n")
    (shell.work / "q.faa").write_text(">q\nMKV\n")
    shell.tool("scan", 'cat "$1" > /dev/null && exec cat')
    told = f"{url}: fetched as a whole and passed on from node to node"
    for hosts, is_told in (("--hosts a,b", True), ("", False)):
        done = shell.run(f"millrace plan {own_cache} {hosts} --input q.faa --shared {url} -- scan {url} q.faa")
        assert (told in done.err) == is_told, done.shown


SEARCHED = [
    ("hmmsearch", 3, "fragments: 3; the blocks in HDFS, each searched by a node that holds it where one does"),
    ("hmmsearch", 1, "set.faa: fetched as a whole and passed on from node to node"),
    ("hmmsearch --tformat uniprot", 3, "the file in HDFS is fetched as a whole and passed on from node to node"),
    ("jackhmmer", 3, "set.faa: fetched as a whole and passed on from node to node"),
]


@pytest.mark.parametrize(("program", "n_blocks", "told"), SEARCHED)
def test_hdfs_sequences_are_searched_by_block_if_possible(
    hdfs: Callable[[str, bytes], str], shell: Shell, own_cache: str, program: str, n_blocks: int, told: str
) -> None:
    needs("hmmsearch", "hmmbuild")
    one = b"MKVLAAGIVGLCAKAYMKVLAAG" * 20
    each = 1000 * n_blocks + (n_blocks - 1) * 1100  # of 485 bytes
    url = hdfs(f"{n_blocks}/set.faa", b"".join(b">s%d\n%s\n" % (k, one) for k in range(each)))
    asked = b">q\nMKVLAAGIVGLCAKAYMKV\n"
    (shell.work / "q.faa").write_bytes(asked)
    (shell.work / "q.hmm").write_bytes(profile(asked, "q"))
    query = "q.faa" if program == "jackhmmer" else "q.hmm"
    for hosts, is_told in (("--hosts a,b", True), ("", False)):
        done = shell.run(f"millrace plan {own_cache} {hosts} -- {program} {query} {url}")
        assert (told in done.out + done.err) == is_told, done.shown
