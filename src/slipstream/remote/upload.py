"""Files written to buckets: checked before the work, uploaded when they are complete."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from slipstream.errors import BadInput
from slipstream.remote.paths import RemotePath, any_path
from slipstream.remote.systems import WEB, callback, protocol_of, reaching, shown


def check_writable(place: str) -> None:
    """Raise an error if a URL can't be written to: no such protocol or bucket, no credentials.

    Commands call it before minutes of work. Credentials that may write but not list are accepted,
    and nothing is written for the check: whether a file may be written shows when it is.
    """
    path = any_path(place)
    if not isinstance(path, RemotePath):
        return
    if protocol_of(place) in WEB:
        raise BadInput(f"{shown(place)} can only be read; expected a file, or gs://… or s3://…")
    if path.has_folders:
        return
    try:
        path.bucket.info()
    except FileNotFoundError:
        raise no_bucket(path) from None
    except BadInput as error:
        if not isinstance(error.__cause__, PermissionError):
            raise


def upload(file: Path, target: RemotePath, moved: Callable[[int], None] | None = None) -> None:
    """Copy a complete file to a bucket; a reader sees the old one or the new one.

    `moved` is called with the bytes so far.
    """
    try:
        with reaching(target):
            if target.has_folders:
                target.system.makedirs(target.key.rpartition("/")[0], exist_ok=True)
            target.system.put_file(os.fspath(file), target.key, callback=callback(moved))
    except FileNotFoundError:
        if not file.exists():
            raise
        raise no_bucket(target) from None


def no_bucket(path: RemotePath) -> BadInput:
    """The error for a bucket that is not there; one with a typing error must not be created."""
    bucket = path.parts[1] if len(path.parts) > 1 else ""
    return BadInput(
        f"{shown(path)}: there is no bucket {bucket}, or these credentials can't see it; check its "
        "name, or create it (Slipstream creates no buckets)"
    )
