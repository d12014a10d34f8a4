"""Folders copied to where fsspec can write: gs://, s3://, memory:// and the like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slipstream.errors import Missing


def is_remote(place: str) -> bool:
    return "://" in place


class Upload:
    """Copies folders under one URL."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def copy(self, folder: Path, name: str) -> str:
        """Every file of the folder; the URL under which they are now."""
        target = f"{self.url}/{name}" if name else self.url
        system, root = self._system(target)
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                place = f"{root.rstrip('/')}/{file.relative_to(folder).as_posix()}"
                system.makedirs(place.rpartition("/")[0], exist_ok=True)
                system.put_file(str(file), place)
        return target

    def _system(self, target: str) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs

            system, root = url_to_fs(target)
        except ImportError as error:
            raise Missing(
                f"writing to {self.url} needs {error.name or 'fsspec'}, which is not installed: "
                "pip install 'slipstream[cloud]'"
            ) from None
        return system, str(root)
