"""Costs of one watched program, out of a recording of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from slipstream.costs.coverage import Coverage, check_profile
from slipstream.costs.extract import extract_costs
from slipstream.costs.table import CostTable
from slipstream.errors import BadInput
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.profiler import check_recorded
from slipstream.profile.program import Program
from slipstream.sources.hlo.reader import program_from_proto
from slipstream.sources.load import load


def costs_of(
    profile_folder: Path, policy: str, watched: CompiledProgram
) -> tuple[CostTable, Coverage]:
    """The table of this program alone, and how much of the step it covers.

    A recording of another program gives no costs: that is an error, not an empty table.
    """
    (module, *_) = watched.original.hlo_modules()
    own = program_from_proto(module.as_serialized_hlo_module_proto(), source=watched.name)
    return costs_of_program(profile_folder, policy, own)


def costs_of_program(profile_folder: Path, policy: str, own: Program) -> tuple[CostTable, Coverage]:
    """As `costs_of`, for a program that was saved."""
    profile = load(profile_folder)
    check_recorded(profile)
    table = extract_costs(profile, policy)
    fitting = [
        part
        for part in table.programs
        if part.program.partition("(")[0] == own.name
        and (own.fingerprint is None or part.fingerprint in (None, own.fingerprint))
    ]
    if not fitting:
        seen = ", ".join(part.program for part in table.programs)
        raise BadInput(
            f"the recording in {profile_folder} is of {seen}, not of {own.name}; record it again"
        )
    best = max(fitting, key=lambda part: part.total_us)
    one = CostTable((replace(best, is_bound=False),), table.policy, table.facts)
    return one, check_profile(one, profile)
