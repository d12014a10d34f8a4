"""Votes before a comparison: what each rank compiled must be the same program, arm for arm."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.consensus.consensus import Message
from slipstream.experiment.variants import Arm
from slipstream.profile.program import Program


def vote_of(arms: Sequence[Arm], costs: bytes | None) -> dict[str, Any]:
    """What a rank says when its programs are ready."""
    return {
        "costs": hashlib.sha256(costs or b"").hexdigest(),
        "arms": {arm.name: _described(arm) for arm in arms},
    }


def disagreement(votes: Mapping[int, Message], is_shared: bool = True) -> str | None:
    """Why the ranks must stay with the original program; None where nothing speaks against it."""
    for rank, vote in sorted(votes.items()):
        if "problem" in vote:
            return f"rank {rank}: {vote['problem']}" if is_shared else str(vote["problem"])
    first, vote = min(votes.items())
    for rank, other in votes.items():
        if other["costs"] != vote["costs"]:
            return f"ranks {first} and {rank} compiled with different costs"
        if other["arms"].keys() != vote["arms"].keys():
            return f"ranks {first} and {rank} compiled other sets of programs"
    names = list(vote["arms"])
    # Where the ranks' original programs differ (each tunes its own kernels), only the order of the
    # collectives must be the same; else everything must.
    key = "content" if _agree(votes, "original", "content") else "collectives"
    for name in names:
        errors = {rank: v["arms"][name]["error"] for rank, v in votes.items()}
        failed = {rank: error for rank, error in errors.items() if error}
        if failed and len(failed) < len(errors):
            rank, error = min(failed.items())
            return f"rank {rank} could not make the program {name!r}: {error}"
        if not failed and not (_agree(votes, name, key) and _agree(votes, name, "flags")):
            return f"the program {name!r} is not the same on all ranks"
    return None


def _agree(votes: Mapping[int, Message], name: str, key: str) -> bool:
    return len({vote["arms"].get(name, {}).get(key) for vote in votes.values()}) == 1


def _described(arm: Arm) -> dict[str, str | None]:
    program = arm.program
    return {
        "error": arm.error,
        "flags": json.dumps(dict(arm.variant.flags), sort_keys=True),
        "content": program.content_hash if program else None,
        "collectives": collective_order(program) if program else None,
    }


def collective_order(program: Program) -> str:
    """Identifies which collectives run in which order, on what, and among whom."""
    digest = hashlib.sha256()
    for name in sorted(program.computations):
        for i in program.computations[name].instructions:
            if i.collective is not None:
                line = f"{name} {i.opcode} {i.shape} {i.collective}\n"
                digest.update(line.encode())
    return digest.hexdigest()[:32]
