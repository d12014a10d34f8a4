"""The costs phase: the recordings of all ranks become one cost table for all of them.

Every rank extracts the costs of its own recording, all at the same time, and writes them next to
it. The first rank merges these small tables; the others wait for the result.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.consensus.kvstore import poll
from slipstream.errors import SlipstreamError
from slipstream.jaxhooks.profiler import ProfilerFailed
from slipstream.run.agent.precomputed import coverage_facts
from slipstream.run.nsys import recording_of
from slipstream.run.rank import Rank
from slipstream.run.run_dir import (
    DONE,
    FAILED,
    RunDir,
    done_facts,
    mark_done,
    read_json,
    sha256,
    write_json,
)
from slipstream.writing import mark_folder

FILE = "costs.pb"
OWN = "costs.json"
"""the costs of one rank, next to its recording"""
LONGEST_WAIT_S = 60.0
"""for the other ranks' costs, or for those of all ranks: they work at the same time"""
READERS = 16
"""files that are read at once"""


@dataclass(frozen=True)
class Costs:
    """A cost file, or the reason there is none."""

    file: Path
    facts: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None

    @property
    def digest(self) -> str | None:
        return sha256(self.file) if self.problem is None else None

    @property
    def text(self) -> str:
        share = self.facts["coverage"]["share"]
        shown = "all" if share >= 0.9995 else f"{share:.1%}"
        return f"{self.facts['instructions']} instructions · {shown} of device time has a cost"


def reused_costs(run_dir: RunDir) -> Costs | None:
    """The costs of an earlier run, if they come from the profile that is here now."""
    facts = done_facts(run_dir.costs)
    if facts is None or facts.get("profile") != _profile_digest(run_dir):
        return None
    return Costs(run_dir.costs / FILE, facts)


def make_costs(run_dir: RunDir, rank: Rank, policy: str) -> Costs:
    """Every rank extracts its own costs; the first merges them, and the others wait for it."""
    file = run_dir.costs / FILE
    try:
        if rank.is_first:
            (run_dir.costs / FAILED).unlink(missing_ok=True)
        own = _write_own(run_dir, policy)
        if not rank.is_first:
            return _awaited(run_dir)
        return _merged(run_dir, rank, policy, own)
    except (SlipstreamError, ProfilerFailed, OSError) as problem:
        if rank.is_first and rank.count > 1:
            _tell(run_dir, run_dir.costs / FAILED, {"why": str(problem)})
        return Costs(file, {}, str(problem))


def _write_own(run_dir: RunDir, policy: str) -> dict[str, Any]:
    """Extract the costs of this rank's recording, and leave them for the first rank."""
    stamp = _stamp(run_dir, policy)
    try:
        found = stamp | _extracted(run_dir, policy)
    except (SlipstreamError, ProfilerFailed, OSError) as problem:
        _tell(run_dir, run_dir.profile / OWN, stamp | {"problem": str(problem)})
        raise
    if run_dir.rank != 0:
        _tell(run_dir, run_dir.profile / OWN, found)
    return found


def _stamp(run_dir: RunDir, policy: str) -> dict[str, Any]:
    """Tells costs of this recording and policy from earlier ones."""
    return {"policy": policy, "profile": sha256(run_dir.profile / DONE)}


def _extracted(run_dir: RunDir, policy: str) -> dict[str, Any]:
    from slipstream.experiment.prepare import costs_of_program
    from slipstream.experiment.shared_costs import message_of
    from slipstream.sources.hlo.reader import read_program

    (program,) = (run_dir.profile / "programs").glob("*.hlo.pb")
    recording = recording_of(run_dir.profile)
    table, coverage = costs_of_program(recording, policy, read_program(program))
    return {"table": message_of(table), "coverage": coverage_facts(coverage)}


def _merged(run_dir: RunDir, rank: Rank, policy: str, own: dict[str, Any]) -> Costs:
    from slipstream.experiment.shared_costs import merge_messages, ranks_to_merge

    ranks = ranks_to_merge(range(rank.count))
    end = time.monotonic() + LONGEST_WAIT_S
    with ThreadPoolExecutor(min(len(ranks), READERS)) as pool:
        others = pool.map(lambda index: _of_rank(run_dir.of(index), policy, end), ranks[1:])
        found = [own, *others]
    table = merge_messages([one["table"] for one in found])
    run_dir.clear(run_dir.costs)
    file = run_dir.costs / FILE
    files = [Path(written) for written in table.write(file)]
    facts = {
        "instructions": len(table),
        "coverage": min((one["coverage"] for one in found), key=lambda facts: facts["share"]),
        "policy": policy,
        "ranks": len(found),
        "profile": _profile_digest(run_dir),
        "xla": _xla_report(run_dir.profile / "log.txt"),
    }
    mark_done(run_dir.costs, files, facts)
    return Costs(file, facts)


def _of_rank(run_dir: RunDir, policy: str, end: float) -> dict[str, Any]:
    """The costs of another rank, once it has extracted them."""

    def look() -> dict[str, Any] | None:
        found = read_json(run_dir.profile / OWN)
        if not (run_dir.profile / DONE).exists():
            raise ProfilerFailed(f"rank {run_dir.rank} could not make costs")
        return found if found and found.items() >= _stamp(run_dir, policy).items() else None

    found = poll(look, end - time.monotonic(), every_s=0.2)
    if found is None:
        raise ProfilerFailed(
            f"rank {run_dir.rank} extracted no costs within {LONGEST_WAIT_S:.0f} s"
        )
    if "problem" in found:
        raise ProfilerFailed(f"rank {run_dir.rank}: {found['problem']}")
    return found


def _tell(run_dir: RunDir, file: Path, message: Mapping[str, Any]) -> None:
    """Don't let other ranks wait in vain: all jobs have to start at about the same time."""
    try:
        if file.parent == run_dir.costs:
            mark_folder(run_dir.costs)
        write_json(file, message)
    except (SlipstreamError, OSError):
        # On a full disk files can't be written, but they can be removed.
        with suppress(OSError):
            (run_dir.profile / DONE).unlink()


def _awaited(run_dir: RunDir) -> Costs:
    phase, first = run_dir.costs, run_dir.of(0).profile / DONE

    def look() -> dict[str, Any] | None:
        facts = done_facts(phase)
        if facts is None and (failed := read_json(phase / FAILED)) is not None:
            raise ProfilerFailed(str(failed.get("why")))
        if facts is None and not first.exists():
            raise ProfilerFailed("the first rank could not make costs")
        return facts

    facts = poll(look, LONGEST_WAIT_S, every_s=0.2)
    if facts is None:
        raise ProfilerFailed(f"{phase} did not appear within {LONGEST_WAIT_S:.0f} s")
    return Costs(phase / FILE, facts)


def _profile_digest(run_dir: RunDir) -> str:
    """The identity of the first rank's profile: the hash of its files' hashes."""
    return sha256(run_dir.of(0).profile / DONE)


def _xla_report(log: Path) -> dict[str, Any]:
    """What XLA logged about the costs, if the profile run compiled with them."""
    from slipstream.compiler.messages import parse_messages

    try:
        messages = parse_messages(log.read_text(errors="replace"))
    except OSError:
        return {}
    said = {message.code: message.text for message in messages}
    if "pgle-used" not in said:
        return {}
    # XLA's checker logs only if something is missing.
    missing = said.get("pgle-missing", "0").split()[0]
    return {"used": said["pgle-used"], "missing": int(missing) if missing.isdigit() else None}
