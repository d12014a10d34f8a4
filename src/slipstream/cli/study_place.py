"""Folders of studies and plans that may be in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slipstream.cli.common import note
from slipstream.errors import SlipstreamError
from slipstream.remote.paths import any_path, is_remote, local_copy

_NAMES = (".slipstream", "study.json", "plan.json", "program.bin", "study.sqlite3", "flags")
_COSTS = ("costs", "costs.pb", "costs.pb.json", "costs.pbtxt", "costs.pbtxt.json")


@contextmanager
def working_folder(study: str, default: str) -> Iterator[Path]:
    """The folder to work in: that of the study, or one that is copied to its bucket."""
    if not is_remote(study):
        yield any_path(study)
        return
    from slipstream.remote.mirroring import Mirroring, local_folder
    from slipstream.remote.systems import shown
    from slipstream.remote.upload import check_writable

    check_writable(study)
    folder = local_folder(study, default)
    mirroring = Mirroring(study, folder, _NAMES + _COSTS, lambda text: note(f"warning: {text}"))
    mirroring.start()
    note(f"working in {folder}, copied to {shown(study)}")
    try:
        yield folder
    except SlipstreamError as error:
        raise type(error)(str(error).replace(str(folder), study)) from None
    finally:
        mirroring.finish()


def readable_folder(study: str) -> Path:
    """The folder of a study to look at, or a copy of it if it is in a bucket."""
    folder = any_path(study)
    return local_copy(folder) if folder.exists() else folder


def named(study: str) -> str:
    """A study's folder as it was named, for what the next command is given."""
    return study if is_remote(study) else str(any_path(study))
