"""Rules for replicas of files, from site, user and job files; and checks of URLs in commands. Pure.

A rule's ``*`` stands for the same letters, without ``/``, in the path and in each place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

import msgspec

from millrace.core.errors import RefusedError

#: Kinds of URL that can be read.
SCHEMES = ("file", "ftp", "hdfs", "http", "https", "s3", "sftp")

#: Prefixes of URLs that are taken for files of a command; others are for the tool.
FETCHED = tuple(f"{scheme}://" for scheme in SCHEMES if scheme != "file")

#: Option before a path in the same argument: ``--db=``, or ``-o`` right before a URL.
_OPTION = rf"--?[A-Za-z][\w-]*=|-[A-Za-z](?={'|'.join(FETCHED)})"

#: Parts of names of URL parameters that act as a password.
_SECRET = r"(?i)sig|token|key|pass|pwd|secret|credential|auth"

_HINT = (
    "credentials in a URL end up in logs and lists of processes: bring them where its client looks, such as ~/.netrc, "
    "~/.aws/credentials or ~/.ssh/config"
)


class ReplicaRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A rule: the bytes of ``path`` are also at each of these places."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    at: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...]


def check_replica_rules(rules: Iterable[ReplicaRule], where: str = "") -> None:
    """Check that the rules are valid.

    Raises:
        RefusedError: A rule is invalid.
    """
    for rule in rules:
        try:
            _check_rule(rule)
        except RefusedError as error:
            raise RefusedError(f"{where + ': ' if where else ''}replica: {error.message}", error.hint) from error


def _check_rule(rule: ReplicaRule) -> None:
    if not rule.path.startswith("/"):
        raise RefusedError(f"{rule.path}: not an absolute path", "name the file as /folder/file")
    stars = rule.path.count("*")
    if stars > 1:
        raise RefusedError(f"{rule.path}: more than one *", 'as in: path = "/db/nr.*"')
    for place in rule.at:
        check_place(place)
        if place.count("*") != stars:
            raise RefusedError(
                f"{redact_place(place)}: as many * as in {rule.path} are needed",
                'as in: path = "/db/nr.*", at = ["s3://bucket/nr.*"]',
            )


def is_url(text: str) -> bool:
    """Tell whether a text is meant as a URL.

    >>> is_url("s3://bucket/nr.faa"), is_url("/db/nr.faa"), is_url("db:nr")
    (True, False, False)
    """
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


def find_option_prefix(word: str) -> str:
    """Return the option before the value in the same argument; empty: none.

    >>> find_option_prefix("--db=s3://bucket/nr"), find_option_prefix("-Os3://bucket/out.sdf"), find_option_prefix("s3://bucket/nr?a=b")
    ('--db=', '-O', '')
    """
    return found[0] if (found := re.match(_OPTION, word)) else ""


def has_url_arguments(words: Iterable[str]) -> bool:
    """Tell whether arguments name files by URLs.

    >>> has_url_arguments(["-db", "s3://bucket/nr"]), has_url_arguments(["-db", "nr", "cat https://host/x"])
    (True, True)
    """
    return any(part.startswith(FETCHED) for word in words for part in word[len(find_option_prefix(word)) :].split(" "))


def check_url_arguments(words: Iterable[str], known_tool: bool) -> None:
    """Check that a command's URLs can be read, and may be written down in reports and logs.

    Args:
        known_tool: Whether Millrace knows the tool: then no argument is a URL for the tool itself.

    Raises:
        RefusedError: A URL cannot be read, or has a query (``?``), which no list of words can tell from a password.
    """
    for word in words:
        value = word[len(find_option_prefix(word)) :]
        for part in value.split(" ") if known_tool else [value]:
            if part.startswith(FETCHED):
                check_place(part)
            if part.startswith(FETCHED) and "?" in part:
                raise RefusedError(
                    f"{redact_place(part)}: what stands behind ? may be as good as a password, and a command ends up in reports and logs",
                    "an object whose name has a ? is to be fetched by hand, and its copy named: millrace data stage URL"
                    if part.startswith("s3://")
                    else "leave it out if the server does not need it (a ? in a name is %3F); else fetch the file by hand, and name that",
                )
            if known_tool and is_url(part) and not part.startswith(FETCHED):
                scheme = part.partition("://")[0]
                raise RefusedError(
                    f"{redact_place(part)}: {scheme}:// is not known in a command",
                    f"known are {', '.join(FETCHED)}; many servers have the same files by https://"
                    if scheme.lower() != "file"
                    else "name the path alone, as in: /db/nr",
                )


def check_place(text: str) -> None:
    """Check that a text is an absolute path, or a readable URL without credentials.

    Raises:
        RefusedError: It is neither.
    """
    if not is_url(text):
        if not text.startswith("/"):
            raise RefusedError(f"{text}: neither an absolute path nor a URL", "as in: /db/nr.faa or s3://bucket/nr.faa")
        return
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise RefusedError(f"{redact_place(text)}: not a URL: {error}", "as in: https://host/folder/file") from error
    if parts.scheme not in SCHEMES:
        raise RefusedError(f"{redact_place(text)}: cannot read {parts.scheme}://", f"known are {', '.join(SCHEMES)}")
    if parts.password is not None or (parts.username is not None and parts.scheme != "sftp"):
        raise RefusedError(f"{redact_place(text)}: holds a user name or password", _HINT)
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if re.search(_SECRET, name):
            raise RefusedError(f"{redact_place(text)}: a parameter of it is as good as a password", _HINT)
    if parts.scheme in ("http", "https") and "#" in text:
        raise RefusedError(
            f"{redact_place(text)}: what stands behind # is for browsers", "leave it out; a # in a name is %23"
        )
    if parts.scheme != "file" and not parts.hostname:
        raise RefusedError(f"{redact_place(text)}: names no {'bucket' if parts.scheme == 's3' else 'host'}", "as in: https://host/folder/file")  # fmt: skip
    if (parts.hostname or "").startswith("-"):  # ssh would take it for an option
        raise RefusedError(f"{redact_place(text)}: not the name of a host", "as in: sftp://host/folder/file")


def redact_place(place: str) -> str:
    """Return a place without credentials, as it may be shown.

    >>> redact_place("https://me:secret@host/nr.faa?token=abc"), redact_place("sftp://me@host/nr.faa")
    ('https://host/nr.faa?...', 'sftp://me@host/nr.faa')
    >>> redact_place("https://host/nr.faa#part?x")
    'https://host/nr.faa'
    """
    if not is_url(place):
        return place
    scheme, _, rest = place.partition("://")
    host, slash, path = rest.partition("/")
    user, at, name = host.rpartition("@")
    if at and scheme == "sftp" and ":" not in user:
        name = host
    if scheme.lower() in ("http", "https"):
        path, name = path.partition("#")[0], name.partition("#")[0]
    path, mark, _ = path.partition("?")
    return f"{scheme}://{name.partition('?')[0]}{slash}{path}{'?...' if mark or '?' in name else ''}"


def find_replicas(path: str, rules: Sequence[ReplicaRule]) -> tuple[str, ...]:
    """Return the places of a file's replicas, in the order of the rules.

    Args:
        path: Absolute.

    >>> find_replicas("/db/nr.00.psq", [ReplicaRule(path="/db/nr.*", at=("s3://bucket/nr.*", "/scratch/nr.*"))])
    ('s3://bucket/nr.00.psq', '/scratch/nr.00.psq')
    """
    found: dict[str, None] = {}
    for rule in rules:
        before, star, after = rule.path.partition("*")
        pattern = re.escape(before) + ("([^/]*)" if star else "") + re.escape(after)
        if match := re.fullmatch(pattern, path):
            middle = match[1] if star else ""
            found.update(dict.fromkeys(place.replace("*", middle) for place in rule.at))
    found.pop(path, None)
    return tuple(found)
