"""The costs phase: the recordings of all ranks become one cost table for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slipstream.consensus.kvstore import poll
from slipstream.costs.table import ProgramCosts
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
LONGEST_WAIT_S = 300.0
"""for the other ranks' profiles, or for the first rank's costs"""


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
    """The first rank extracts and merges the costs; the others wait for it."""
    file = run_dir.costs / FILE
    try:
        if not rank.is_first:
            return _awaited(run_dir)
        return _extracted(run_dir, rank, policy, file)
    except (SlipstreamError, ProfilerFailed, OSError) as problem:
        if rank.is_first and rank.count > 1:
            _tell_others(run_dir, str(problem))
        return Costs(file, {}, str(problem))


def _tell_others(run_dir: RunDir, why: str) -> None:
    """Don't let the other ranks wait in vain: all jobs have to start at about the same time."""
    try:
        mark_folder(run_dir.costs)
        write_json(run_dir.costs / FAILED, {"why": why})
    except (SlipstreamError, OSError):
        # On a full disk files can't be written, but they can be removed.
        with suppress(OSError):
            (run_dir.profile / DONE).unlink()


def _extracted(run_dir: RunDir, rank: Rank, policy: str, file: Path) -> Costs:
    from slipstream.costs.merge import merge_costs
    from slipstream.experiment.prepare import costs_of_program
    from slipstream.sources.hlo.reader import read_program

    tables, coverages = [], []
    for index in range(rank.count):
        own = run_dir.of(index)
        _wait_for(own.profile)
        (program,) = (own.profile / "programs").glob("*.hlo.pb")
        recording = recording_of(own.profile)
        table, coverage = costs_of_program(recording, policy, read_program(program))
        tables.append(replace(table, programs=tuple(map(_without_number, table.programs))))
        coverages.append(coverage)
    table = merge_costs(tables) if len(tables) > 1 else tables[0]
    run_dir.clear(run_dir.costs)
    files = [Path(written) for written in table.write(file)]
    facts = {
        "instructions": len(table),
        "coverage": coverage_facts(min(coverages, key=lambda one: one.share)),
        "policy": policy,
        "ranks": rank.count,
        "profile": _profile_digest(run_dir),
        "xla": _xla_report(run_dir.profile / "log.txt"),
    }
    mark_done(run_dir.costs, files, facts)
    return Costs(file, facts)


def _without_number(costs: ProgramCosts) -> ProgramCosts:
    """Every process numbers its programs on its own."""
    return replace(costs, program=costs.program.partition("(")[0])


def _awaited(run_dir: RunDir) -> Costs:
    first = run_dir.of(0).profile / DONE
    return Costs(run_dir.costs / FILE, _wait_for(run_dir.costs, lambda: not first.exists()))


def _wait_for(phase: Path, has_failed: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        facts = done_facts(phase)
        if facts is None and (failed := read_json(phase / FAILED)) is not None:
            raise ProfilerFailed(str(failed.get("why")))
        if facts is None and has_failed():
            raise ProfilerFailed("the first rank could not make costs")
        return facts

    facts = poll(look, LONGEST_WAIT_S, every_s=0.2)
    if facts is None:
        raise ProfilerFailed(f"{phase} did not appear within {LONGEST_WAIT_S:.0f} s")
    return facts


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
