"""What has processes to end: closed when its `with` block is left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A context manager by its `close`."""

    @abstractmethod
    def close(self) -> None:
        """End what it has."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
