"""What a plan is to make large or small, and what a step is worth by it.

work/s, work/s/device, work/$     the least time for a unit of work; they differ in which of
                                  several machines is best
time                              the least time for a fixed global batch, for which gradients
                                  of several steps are added up
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipstream.did_you_mean import no_such
from slipstream.errors import BadInput
from slipstream.machines.gpus import gpus as all_gpus
from slipstream.machines.machine import Machine
from slipstream.machines.tpus import tpus
from slipstream.plan.space.choices import Choice
from slipstream.plan.space.expression import check_names, work_of
from slipstream.plan.space.parameters import Value
from slipstream.plan.space.space import sizes_of
from slipstream.results.planning import PER_DEVICE, PER_DOLLAR, PER_SECOND, TIME

OBJECTIVES = (PER_SECOND, PER_DEVICE, PER_DOLLAR, TIME)
MARGIN = 0.08
"""share of a device's memory that stays free by default: 5% that JAX's allocator leaves to CUDA and
NCCL (XLA_PYTHON_CLIENT_MEM_FRACTION=.95), and 3% that is lost between buffers"""


@dataclass(frozen=True)
class Objective:
    """What to make best, the work of a step, and the memory that it may use."""

    kind: str = PER_SECOND
    work: str = ""
    """an expression; empty to recognise the batch among the arguments"""
    unit: str = ""
    """what the work is called; empty for what was recognised"""
    global_batch: float | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    """dollars per hour of one GPU, by its name; the empty name for any"""
    margin: float = MARGIN

    def work_in(self, choices: Mapping[str, Value], machine: Machine, seen: float | None) -> float:
        """The work of one step; `seen` is what the arguments show."""
        if self.work:
            return work_of(self.work, {**sizes_of(machine), **choices})
        if seen is None:
            raise BadInput(
                "which of the arguments is the batch can't be told, so neither can the work of a "
                "step; say it: --work 'batch * 8192', or --work 1 to compare steps"
            )
        return seen

    def accumulated(self, work: float) -> int:
        """The steps that make up the global batch; BadInput if they don't."""
        if self.kind != TIME or self.global_batch is None:
            return 1
        steps = self.global_batch / work
        if steps < 1 or abs(steps - round(steps)) > 1e-9 * steps:
            raise BadInput(
                f"a step does {work:,.0f} {self.unit or 'units of work'}, of which no whole number "
                f"makes a global batch of {self.global_batch:,.0f}"
            )
        return round(steps)

    def memory_limit(self, capacity_bytes: int) -> int:
        """What a program may use of a device."""
        return int(capacity_bytes * (1 - self.margin))

    def price_per_hour(self, machine: Machine) -> float | None:
        """Dollars for the whole machine; None if no price is known."""
        price = self.prices.get(machine.chip.name, self.prices.get(""))
        return None if price is None else price * machine.devices

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "prices": dict(self.prices)}


def check_objective(objective: Objective, gpus: set[str]) -> Objective:
    """The objective itself, or BadInput if something that it needs is missing."""
    if objective.kind not in OBJECTIVES:
        raise BadInput(no_such("objective", objective.kind, OBJECTIVES))
    if objective.kind == TIME and objective.global_batch is None:
        raise BadInput("the objective time needs the work of a batch: --global-batch 4194304")
    if objective.kind != TIME and objective.global_batch is not None:
        raise BadInput("--global-batch is for the objective time; add --objective time")
    known = dict.fromkeys((*sorted(gpus), *all_gpus(), *tpus()))
    for name in objective.prices:
        if name and name not in known:
            raise BadInput(f"--price {name}=…: {no_such('GPU or TPU', name, known)}")
    unpriced = sorted(name for name in gpus if {name, ""}.isdisjoint(objective.prices))
    if objective.kind == PER_DOLLAR and unpriced:
        raise BadInput(
            f"the objective work/$ needs a price of one GPU-hour: --price {unpriced[0]}=2.50"
        )
    return objective


def check_work(work: str, choices: Sequence[Choice], machine: Machine) -> None:
    """BadInput if `--work` can be computed for no combination."""
    if work:
        sizes = {name: (size,) for name, size in sizes_of(machine).items()}
        check_names(work, {**sizes, **{one.name: one.values for one in choices}})
