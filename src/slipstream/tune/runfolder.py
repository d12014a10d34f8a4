"""A folder of `slipstream run` as something to tune: its hot program, and what it cost."""

from __future__ import annotations

import json
from pathlib import Path

from slipstream.errors import BadInput


def as_target(given: str) -> tuple[str, str | None]:
    """What to compile, and the recording to take costs from where there is one."""
    folder = Path(given)
    if not folder.is_dir():
        return given, None
    rank = folder / "profile" / "rank0"
    programs = sorted((rank / "programs").glob("*.stablehlo"), key=lambda file: file.stat().st_size)
    if not programs:
        raise BadInput(
            f"{given} is a folder without a program (profile/rank0/programs/*.stablehlo); expected "
            "one that slipstream run wrote, or FILE.py:FUNCTION"
        )
    recording = rank / "profiles"
    has_recording = any(recording.rglob("*.xplane.pb"))
    return str(programs[-1]), str(recording) if has_recording else None


def command_of(given: str) -> tuple[str, ...] | None:
    """The job that `slipstream run` ran there."""
    try:
        facts = json.loads((Path(given) / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    command = facts.get("command")
    return tuple(command) if isinstance(command, list) else None
