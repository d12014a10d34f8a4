"""Environment variables that JAX, XLA's runtime, NCCL and CUDA read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """One environment variable."""

    name: str
    kind: str
    """bool, int, float, string, path, size, enum"""
    default: str | None
    doc: str
    source: str
    values: tuple[str, ...] = ()
    """what it may be, where that is a closed list"""


SETTINGS: dict[str, Setting] = {}
