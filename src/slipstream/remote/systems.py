"""File systems behind URLs, and what their libraries raise, as errors that say what to do next.

Each cloud's library has its own exceptions. `reaching` turns them into BadInput or Missing in one
place; it lets FileNotFoundError through, because a missing file is an answer.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from slipstream.errors import BadInput, Missing, SlipstreamError, missing_extra
from slipstream.masking import mask_text

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]+://")
LOCAL = ("file", "local")
WEB = ("http", "https")
OBJECT_STORES = frozenset(
    ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "r2", "tos")
)
"""protocols without folders: names have slashes in them, and `mkdir` would create a bucket"""
_FAILURES = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("aiohttp", "ClientError"),
    ("gcsfs.retry", "HttpError"),
    ("google.auth.exceptions", "GoogleAuthError"),
    ("requests", "RequestException"),
    ("azure.core.exceptions", "AzureError"),
    ("fsspec.exceptions", "FSTimeoutError"),
    ("fsspec.exceptions", "BlocksizeMismatchError"),
)
"""what the libraries raise, besides OSError; looked up only in modules that are loaded"""
_NO_CREDENTIALS = re.compile(
    r"credential|anonymous caller|token.{0,20}expired|InvalidAccessKeyId|SignatureDoesNotMatch"
    r"|InvalidClientTokenId|invalid_grant",
    re.IGNORECASE,
)
_SIGN_IN = {
    "s3": "sign in with: aws configure, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for a "
    "public bucket: export FSSPEC_S3_ANON=true",
    "gs": "sign in with: gcloud auth application-default login, or set "
    "GOOGLE_APPLICATION_CREDENTIALS; for a public bucket: export FSSPEC_GS_TOKEN=anon",
}
_NOWHERE = logging.NullHandler()
_ALIASES = {"s3a": "s3", "gcs": "gs"}


def is_url(place: object) -> bool:
    """Whether a text names something behind a protocol: `s3://bucket/key`."""
    return isinstance(place, str) and _URL.match(place) is not None


def protocol_of(url: str) -> str:
    """`s3` of `s3://bucket`; of a chain, the innermost."""
    return url.partition("://")[0].rpartition("::")[2].lower()


def shown(url: object) -> str:
    """A URL as messages show it: without a user or a password."""
    return mask_text(str(url))


def system_of(url: str) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path in it."""
    protocol = protocol_of(url)
    try:
        from fsspec.core import url_to_fs
        from fsspec.registry import get_filesystem_class
    except ImportError:
        raise missing_extra("fsspec", "cloud", f"{protocol}://") from None
    try:
        get_filesystem_class(protocol)
    except ImportError as error:
        raise _missing_library(protocol, error) from None
    except ValueError:
        raise BadInput(
            f"{shown(url)}: {protocol}:// is no protocol that fsspec knows; expected gs://, s3://, "
            "memory://, or another of https://filesystem-spec.readthedocs.io"
        ) from None
    if not url.partition("://")[2].strip("/"):
        raise BadInput(f"{url} names no bucket; expected {protocol}://BUCKET/NAME")
    # Without a handler of its own, a library's log goes to the terminal, tracebacks and all.
    for name in ("gcsfs", "s3fs", "adlfs"):
        logging.getLogger(name).addHandler(_NOWHERE)
    with reaching(url):
        system, path = url_to_fs(url)
    return system, str(path)


def _missing_library(protocol: str, error: ImportError) -> Missing:
    if protocol in ("s3", "s3a", "gs", "gcs"):
        package = "s3fs" if protocol in ("s3", "s3a") else "gcsfs"
        return missing_extra(package, "cloud", f"{protocol}://")
    from fsspec.registry import known_implementations

    hint = str(known_implementations.get(protocol, {}).get("err", "") or error)
    return Missing(f"{protocol}:// needs a package that is not installed: {hint}")


@contextmanager
def reaching(url: object) -> Iterator[None]:
    """Raise errors of a cloud's library as ours; a missing file stays FileNotFoundError."""
    try:
        yield
    except (SlipstreamError, FileNotFoundError):
        raise
    except failures() as error:
        raise unreachable(url, error) from error


def callback(moved: Callable[[int], None] | None) -> Any:
    """fsspec's way to tell of bytes that were moved."""
    from fsspec.callbacks import Callback, NoOpCallback

    if moved is None:
        return NoOpCallback()
    tell = moved

    class Telling(Callback):  # type: ignore[misc]
        def call(self, *_: Any, **__: Any) -> None:
            tell(int(self.value))

    return Telling()


def failures() -> tuple[type[BaseException], ...]:
    """What can be raised by the libraries that are loaded."""
    found: list[type[BaseException]] = [OSError, ValueError, NotImplementedError]
    for module, name in _FAILURES:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            found.append(kind)
    return tuple(found)


def unreachable(url: object, error: BaseException) -> SlipstreamError:
    """Why a URL can't be read or written, in a sentence with the next step."""
    text, place = _one_line(error), shown(url)
    protocol = protocol_of(str(url))
    sign_in = _SIGN_IN.get(_ALIASES.get(protocol, protocol), "check how this machine signs in")
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "CredentialsError" in str(kinds) or "GoogleAuthError" in kinds:
        return Missing(f"{place}: this machine has no valid credentials ({text}); {sign_in}")
    if _NO_CREDENTIALS.search(text):
        return Missing(f"{place}: the credentials of this machine don't work ({text}); {sign_in}")
    if isinstance(error, PermissionError) or " 403" in text or "Forbidden" in text:
        return BadInput(
            f"{place}: no permission ({text}); ask the bucket's owner for it, or {sign_in}"
        )
    if isinstance(error, IsADirectoryError):
        return BadInput(f"{place} is a folder; name a file in it")
    return BadInput(
        f"{place} can't be reached ({text}); check the name, the network, and the endpoint if you "
        "set one (AWS_ENDPOINT_URL, STORAGE_EMULATOR_HOST)"
    )


def _one_line(error: BaseException) -> str:
    text = " ".join(mask_text(str(error)).split()) or type(error).__name__
    return text if len(text) <= 160 else f"{text[:160]}…"
