"""S3 and compatible stores by ``boto3``: credentials, regions and endpoints as for every AWS client.

Each request for bytes names the ETag of the wanted version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from millrace.storage.clients.base import (
    PIECE_BYTES,
    DeniedError,
    ExpiredError,
    FileLocation,
    FileStatus,
    LocationError,
    UnreachableError,
    extract_first_line,
    ignore_token,
    import_client,
)

_EXPIRED = frozenset(["ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"])
_DENIED = frozenset(
    ["AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AuthFailure"]
)
_MISSING = frozenset(["NoSuchKey", "NoSuchBucket", "NoSuchUpload", "404", "NotFound"])
_CHANGED = frozenset(["PreconditionFailed", "412", "InvalidRange", "416"])
_LATER = frozenset(["SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "500", "503"])


#: Bytes of a part of an upload, and most parts of one upload: a little below S3's limit of 10,000.
PART_BYTES, MAX_PARTS = 16 << 20, 9_000


class S3Location(FileLocation):
    """An object, or the objects whose names begin with a folder's."""

    def __init__(self, url: str, shown: str) -> None:
        super().__init__(url, shown)
        boto3 = import_client("boto3", "s3", shown)
        self._errors = import_client("botocore.exceptions", "s3", shown)
        parts = urlsplit(url, allow_fragments=False)
        # Object names are not quoted in URLs, also with a ?.
        key = parts.path.lstrip("/") + (f"?{parts.query}" if parts.query else "")
        self._object = {"Bucket": parts.netloc, "Key": key}
        with self._translate_errors():
            session = boto3.session.Session()
            unsigned = (
                {}
                if session.get_credentials()
                else {"signature_version": import_client("botocore", "s3", shown).UNSIGNED}
            )
            config = import_client("botocore.config", "s3", shown).Config(
                connect_timeout=10, read_timeout=60, retries={"total_max_attempts": 3, "mode": "standard"}, **unsigned
            )
            self._client = session.client("s3", config=config)

    def query_status(self) -> FileStatus:
        with self._translate_errors(), self._explain_refusal():
            head = self._client.head_object(**self._object)
        mtime_ns = int(head["LastModified"].timestamp()) * 10**9
        return FileStatus(
            size=head["ContentLength"], version=head["ETag"], mtime_ns=mtime_ns, checksum=_read_checksum(head)
        )

    def stream_bytes(self, offset: int, length: int, about: FileStatus) -> Iterator[bytes]:
        if not length:
            return
        with self._translate_errors():
            answer = self._client.get_object(
                **self._object, IfMatch=about.version, Range=f"bytes={offset}-{offset + length - 1}"
            )
            with closing(answer["Body"]) as body:
                yield from body.iter_chunks(PIECE_BYTES)

    def list_names(self, folders: bool = False) -> list[str]:
        prefix = self._object["Key"].rstrip("/") + "/" if self._object["Key"] else ""
        with self._translate_errors():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._object["Bucket"], Prefix=prefix, Delimiter="/"
            )
            if folders:
                found = (each["Prefix"].rstrip("/") for page in pages for each in page.get("CommonPrefixes", ()))
            else:
                found = (each["Key"] for page in pages for each in page.get("Contents", ()))
            return sorted(key[len(prefix) :] for key in found if len(key) > len(prefix))

    def check_writable(self) -> None:
        with self._translate_errors():
            upload = self._client.create_multipart_upload(**self._object)["UploadId"]
            self._client.abort_multipart_upload(**self._object, UploadId=upload)

    def write_file(self, pieces: Iterable[bytes], n_bytes: int, begun: Callable[[str], None] = ignore_token) -> None:
        parts = _cut_parts(pieces, max(PART_BYTES, -(-n_bytes // MAX_PARTS)))
        with self._translate_errors():
            if n_bytes <= PART_BYTES:
                self._client.put_object(**self._object, Body=b"".join(parts))
                return
            upload = self._client.create_multipart_upload(**self._object)["UploadId"]
            try:
                begun(upload)
                done = [
                    {"PartNumber": k, "ETag": self._client.upload_part(
                        **self._object, UploadId=upload, PartNumber=k, Body=part)["ETag"]}
                    for k, part in enumerate(parts, 1)
                ]  # fmt: skip
                self._client.complete_multipart_upload(**self._object, UploadId=upload, MultipartUpload={"Parts": done})
            except BaseException:
                with suppress(Exception):  # the first error is the one to report
                    self._client.abort_multipart_upload(**self._object, UploadId=upload)
                raise

    def discard_write(self, begun: str) -> bool:
        with self._translate_errors():
            try:
                self._client.abort_multipart_upload(**self._object, UploadId=begun)
            except self._errors.ClientError as error:
                if error.response["Error"]["Code"] not in _MISSING:
                    raise
                return False
        return True

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _explain_refusal(self) -> Iterator[None]:
        """Repeat a refused HEAD request as a GET: the answer to a HEAD has no error text."""
        try:
            yield
        except self._errors.ClientError as error:
            if error.response["Error"]["Code"] in ("400", "403"):
                self._client.get_object(**self._object, Range="bytes=0-0")["Body"].close()
            raise

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate errors of the client into our own."""
        try:
            yield
        except self._errors.ClientError as error:
            raise self._make_refusal_error(error.response["Error"]["Code"]) from error
        except (self._errors.NoCredentialsError, self._errors.CredentialRetrievalError, self._errors.ProfileNotFound,
                self._errors.PartialCredentialsError) as error:  # fmt: skip
            raise DeniedError(
                f"{self.shown}: {_lower_first_line(error)}", "see ~/.aws, or: aws configure list"
            ) from error
        except (self._errors.UnauthorizedSSOTokenError, self._errors.SSOTokenLoadError) as error:
            raise ExpiredError(f"{self.shown}: {_lower_first_line(error)}", "log in again: aws sso login") from error
        except (self._errors.HTTPClientError, self._errors.BotoCoreError, OSError) as error:
            raise UnreachableError(
                f"{self.shown}: no whole answer ({_lower_first_line(error)})",
                "see AWS_ENDPOINT_URL and the network, and try again",
            ) from error

    def _make_refusal_error(self, code: str) -> LocationError | Any:
        if code in _EXPIRED:
            return ExpiredError(
                f"{self.shown}: the credentials have expired ({code})", "log in again, or renew the token"
            )
        if code in _DENIED:
            return DeniedError(
                f"{self.shown}: permission denied ({code})",
                "see which credentials are used: aws sts get-caller-identity; a public bucket needs none",
            )
        if code in _MISSING:
            return self.make_missing_error()
        if code in _CHANGED:
            return self.make_changed_error()
        if code in _LATER:
            return UnreachableError(f"{self.shown}: the server cannot answer now ({code})", "try again later")
        return LocationError(
            f"{self.shown}: the server answered {code}", "see whether bucket, region and endpoint are right"
        )


def _cut_parts(pieces: Iterable[bytes], n_bytes: int) -> Iterator[bytes]:
    """Cut the same bytes into parts of one size; the last one is the rest."""
    part = bytearray()
    for piece in pieces:
        part += piece
        while len(part) >= n_bytes:
            yield bytes(part[:n_bytes])
            del part[:n_bytes]
    if part:
        yield bytes(part)


def _read_checksum(head: dict[str, Any]) -> str:
    """Return the MD5 of an object sent in one piece without an encryption key of its own; else an empty text."""
    tag = head["ETag"].strip('"')
    whole = re.fullmatch(r"[0-9a-f]{32}", tag) and head.get("ServerSideEncryption", "AES256") == "AES256"
    return f"md5:{tag}" if whole and "SSECustomerAlgorithm" not in head else ""


def _lower_first_line(error: BaseException) -> str:
    text = extract_first_line(error)
    return text[:1].lower() + text[1:]
