"""Where else a file is: what site, user and job files say, and what ``millrace data locate`` makes of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from shell import Shell
from web_server import Web

from millrace.core.errors import RefusedError
from millrace.core.job import make_job
from millrace.core.replica_rules import ReplicaRule, find_replicas
from millrace.host import site_defaults


def rule(path: str, *at: str) -> str:
    return f"[[replica]]\npath = {json.dumps(path)}\nat = {json.dumps(at)}\n"


def test_star_matches_within_one_name() -> None:
    rules = [ReplicaRule(path="/db/nr.*", at=("s3://b/x/nr.*", "/c/nr.*")), ReplicaRule(path="/db/nr.psq", at=("/d/psq", "/db/nr.psq"))]  # fmt: skip
    assert find_replicas("/db/nr.psq", rules) == ("s3://b/x/nr.psq", "/c/nr.psq", "/d/psq")
    assert (
        find_replicas("/db/nr.00/psq", rules)
        == find_replicas("/db/nt.psq", rules)
        == find_replicas("/db/nrxpsq", rules)
        == ()
    )


def test_replica_rules_of_user_precede_those_of_site(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site.toml").write_text("nice = 3\nslots = 2\n" + rule("/db/a", "/site/a"))
    (environment / "config" / "millrace.toml").write_text("nice = 4\n" + rule("/db/a", "/user/a"))
    monkeypatch.setenv("MILLRACE_CONFIG", str(tmp_path / "site.toml"))
    assert find_replicas("/db/a", site_defaults.read_settings(os.environ).replica) == ("/user/a", "/site/a")
    found = site_defaults.merge_defaults(site_defaults.read_defaults(os.environ))
    assert (found["nice"], found["slots"]) == (4, 2)


def test_user_file_overrides_site_and_yields_to_job_file(shell: Shell, environment: Path) -> None:
    user = environment / "config" / "millrace.toml"
    user.write_text("nice = 4\nslots = 3\n" + rule("/db/a", "/user/a"))
    (shell.work / "job.toml").write_text(
        'command = "tee2 in.fa o"\ninput = "in.fa"\noutput = "o"\nslots = 2\n' + rule("/db/a", "/job/a")
    )
    ended = shell.run("millrace plan job.toml")
    assert f"nice: 4, from {user}" in ended.out and "slots: 2, from job.toml" in ended.out, ended.shown
    assert f"{user}: nice = 4, slots = 3" in shell.run("millrace doctor").out


def test_replica_file_of_another_user_is_not_used(environment: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root, to give a file away")
    user = environment / "config" / "millrace.toml"
    user.write_text(rule("/db/a", "/theirs/a"))
    os.chown(user, 12345, 12345)
    assert site_defaults.read_settings(os.environ).replica == ()


@pytest.mark.parametrize(
    ("path", "at", "words"),
    [
        ("db/nr", ["/a"], "replica: db/nr: not an absolute path"),
        ("/db/*/nr.*", ["/a"], "replica: /db/*/nr.*: more than one *"),
        ("/db/nr.*", ["s3://b/nr"], "replica: s3://b/nr: as many * as in /db/nr.* are needed"),
        ("/db/nr", ["gopher://b/nr"], "replica: gopher://b/nr: cannot read gopher://"),
        ("/db/nr", ["https://u:word@h/nr"], "replica: https://h/nr: holds a user name or password"),
        ("/db/nr", ["https://u:word@h/nr", 3], "job.toml: replica: expected text"),
        ("/db/nr", 3, "job.toml: replica: expected a list of words"),
    ],
)
def test_invalid_rule_is_refused(path: str, at: object, words: str) -> None:
    with pytest.raises(RefusedError) as told:
        make_job({"command": ["x"], "replica": [{"path": path, "at": at}]}, "job.toml")
    assert told.value.message.startswith(words if words.startswith("job") else f"job.toml: {words}")
    assert "u:word" not in str(told.value)


def test_locate_shows_which_places_have_the_bytes(shell: Shell, environment: Path, web: Web) -> None:
    db = shell.root / "db"
    db.mkdir()
    (db / "nr.faa").write_bytes(b"x" * 5000)
    (db / "old").write_bytes(b"x" * 4999)
    url = web.put("nr.faa", b"x" * 5000)
    (environment / "config" / "millrace.toml").write_text(
        rule(f"{db}/nr.*", f"{web.url}/nr.*", f"{web.url}/nt.*") + rule(f"{db}/nr.faa", f"{db}/old")
    )
    ended = shell.run(f"cd {db} && millrace data locate nr.faa")
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in ended.out.splitlines() if line.startswith("  ")}
    assert lines[f"{db}/nr.faa"].startswith("5.0 kB") and lines[url].startswith("5.0 kB"), ended.shown
    assert lines[f"{web.url}/nt.faa"] == "no such file"
    assert lines[f"{db}/old"] == "has 4,999 bytes, not 5,000"
    assert ended.code == 0


@pytest.mark.parametrize("form", ["", "--json"])
def test_locate_without_a_place_exits_with_2(shell: Shell, form: str) -> None:
    ended = shell.run(f"millrace data locate {form} in.fa nowhere")
    assert ended.code == 2 and f"{shell.work}/in.fa" in ended.out and "no such file" in ended.out, ended.shown
    assert "nowhere: no place has it" in ended.err and "in.fa: no place" not in ended.err


def test_locate_prints_no_credentials(shell: Shell, web: Web) -> None:
    web.login = "a:b"
    for url in (f"{web.url.replace('//', '//me:mark-word@')}/nr", f"{web.url}/nr?token=mark-word", f"{web.url}/nr?v=mark-word"):  # fmt: skip
        ended = shell.run(f"millrace data locate '{url}'")
        assert "mark-word" not in ended.out + ended.err and web.url in ended.out + ended.err, ended.shown


def test_unknown_rule_key_suggests_the_nearest_one(shell: Shell, environment: Path) -> None:
    (environment / "config" / "millrace.toml").write_text('[[replica]]\npath = "/db/*"\natt = ["https://host/*"]\n')
    ended = shell.run("millrace data locate /db/x")
    assert ended.code == 2 and "[[replica]]: unknown key 'att'" in ended.err, ended.shown
