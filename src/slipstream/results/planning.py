"""The result of a plan: every combination of choices on a machine, and which one to run.

`slipstream.plan` computes it; it is defined here so that outputs can import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.inline import Inline
from slipstream.results.tuning import CRASH, HANG, NO_FIT, OK, REFUSED, SAME

CANNOT_WIN = "cannot win"
INVALID = "invalid"
FITTING = (OK, SAME)
"""statuses of combinations that could be run"""
FAILED = (NO_FIT, REFUSED, CRASH, HANG, INVALID)
SIMULATED, MEASURED, BOUND = "simulated", "measured", "bound"
PER_SECOND, PER_DEVICE, PER_DOLLAR, TIME = "work/s", "work/s/device", "work/$", "time"
"""objectives: the most work in a second, on each device or for each dollar, or the least time for
a fixed global batch"""

PRODUCTS, ATTENTION, TRAFFIC = "products", "attention", "memory traffic"
OTHER_KERNELS, RECOMPUTATION = "other kernels", "recomputation"
EXPOSED, COPIES, IDLE, BUBBLE, MEMORY = (
    "exposed communication",
    "exposed copies",
    "idle",
    "pipeline bubble",
    "memory",
)
"""kinds of limits"""
NVLINK, PCIE, NETWORK = "exposed NVLink", "exposed PCIe", "exposed network"
ICI = "exposed ICI"
COMMUNICATION_PARTS = (NVLINK, PCIE, ICI, NETWORK)
"""exposed communication, by the slowest link that it crosses"""
PARTS = (
    PRODUCTS, ATTENTION, TRAFFIC, OTHER_KERNELS, RECOMPUTATION, BUBBLE, *COMMUNICATION_PARTS,
    COPIES, IDLE,
)  # fmt: skip
"""names of the parts of a step, in the order in which they are shown"""

Choices = Mapping[str, int | float | str | bool | None]
"""the arguments of the build function, by name"""


@dataclass(frozen=True)
class Limit:
    """Something that a step spends its time on, or that fills the memory."""

    kind: str
    """`products`, `attention`, `memory traffic`, `other kernels`, `exposed communication`,
    `recomputation`, `pipeline bubble`, `exposed copies`, `idle` or `memory`"""
    share: float
    """of the step; of the device's memory for `memory`"""
    us: float | None
    """in a step; None for `memory`"""
    text: str
    """what it is in this program: which weights over which link"""


@dataclass(frozen=True)
class Candidate:
    """One combination of choices, and what is known about its step."""

    number: int
    """its place among the candidates of its machine"""
    choices: Choices
    status: str
    step_us: float | None = None
    """for `cannot win`, the least that the step can take"""
    low_us: float | None = None
    high_us: float | None = None
    """the 90% band of a simulated step, the 95% interval of a measured one"""
    work: float | None = None
    """in a step, over all devices: tokens or samples"""
    work_per_s: float | None = None
    """for `cannot win`, the most that it can be"""
    memory_bytes: int | None = None
    """peak of one device; for a bound, the least it can be"""
    basis: str = SIMULATED
    """`simulated`, `measured`, or `bound` if it was not compiled"""
    predicted_us: float | None = None
    """the simulated step of a candidate that was measured, or whose step was recalibrated"""
    measured_memory_bytes: int | None = None
    """the most that was allocated on a device while it was measured; where another candidate of the
    process had more, what XLA plans with there"""
    accumulate: int = 1
    """steps whose gradients are added up for one global batch"""
    accumulator_bytes: int = 0
    """the part of `memory_bytes` that their sum takes"""
    limits: tuple[Limit, ...] = ()
    """the largest first"""
    parts_us: Mapping[str, float] = field(default_factory=dict)
    """the parts of the step, which add up to it: names of PARTS, in that order"""
    same_program_as: int | None = None
    """the candidate that compiles to the same program"""
    flags: Mapping[str, str] = field(default_factory=dict)
    """XLA flags that `--flags` found for it"""
    flags_step_us: float | None = None
    """the simulated step with these flags"""
    why: str = ""
    """why it can't be run or can't win, or what is to be known about it"""

    @property
    def is_fitting(self) -> bool:
        return self.status in FITTING

    @property
    def step_memory_bytes(self) -> int | None:
        """The peak of a step alone, as it can be measured."""
        return self.memory_bytes - self.accumulator_bytes if self.memory_bytes else None

    @property
    def exposed_us(self) -> float:
        """Exposed communication of a step."""
        return sum(self.parts_us.get(part, 0.0) for part in COMMUNICATION_PARTS)


@dataclass(frozen=True)
class PlanCounts:
    """How much work the search did."""

    combinations: int
    """of the space; not all of them need be candidates"""
    bounded: int = 0
    """settled by bounds, without a compile"""
    compiled: int = 0
    same: int = 0
    """compiled to a program that was known already"""
    failed: int = 0
    """before their program was known"""
    measured: int = 0


@dataclass(frozen=True)
class Agreement:
    """How predicted steps and memory compare with what was measured, over several candidates."""

    measured: int
    """candidates that were predicted and measured"""
    failed: int
    """candidates that were predicted to run, and did not"""
    mean_error: float
    worst_error: float
    """of |predicted / measured - 1|, for the step"""
    rank_correlation: float | None
    """Spearman's, of predicted and measured throughput; None for fewer than five candidates"""
    recommended_behind: float | None
    """how far the candidate that was predicted best is behind the one that was measured best"""
    memory_mean_error: float | None = None
    memory_worst_error: float | None = None
    """the same for the peak of memory, where it was counted"""
    factor: float | None = None
    """by which the steps of other candidates were multiplied; None if they were left as predicted,
    or if each part has its own"""
    text: str = ""
    """the same in a sentence or two, and what became of the other predictions"""


@dataclass(frozen=True)
class MachinePlan:
    """The candidates on one machine."""

    machine: str
    devices: int
    candidates: tuple[Candidate, ...]
    """in the order in which they were tried"""
    best: Candidate | None
    ties: tuple[int, ...]
    """numbers of candidates whose order relative to the best is not certain, the best first"""
    pareto: tuple[int, ...]
    """numbers of candidates that no other beats in both throughput and memory, by memory"""
    counts: PlanCounts
    skipped: tuple[str, ...] = ()
    """combinations that were ruled out beforehand, and why"""
    reasons: tuple[str, ...] = ()
    """why the best one wins, and what would have to change for another to win"""
    memory_capacity_bytes: int = 0
    memory_limit_bytes: int = 0
    """what a candidate may use: the capacity less the margin"""
    price_per_hour: float | None = None
    """dollars for the whole machine"""
    stopped_because: str = ""
    agreement: Agreement | None = None
    """if candidates were measured"""

    def candidate(self, number: int) -> Candidate:
        return next(one for one in self.candidates if one.number == number)


@dataclass(frozen=True)
class ScalingPoint:
    """The best candidate on one machine, next to those of the other sizes."""

    machine: str
    devices: int
    choices: Choices
    step_us: float
    work_per_s: float
    work_per_s_per_device: float
    efficiency: float
    """throughput of each device relative to the smallest machine with the same chip"""
    exposed_share: float
    """of the step: exposed communication"""
    cost_per_work: float | None = None
    """dollars for one unit of work, if prices are known"""
    same_work: bool = False
    """whether the step does the same work as on the smallest machine (strong scaling)"""


@dataclass(frozen=True)
class Plan(Inline):
    """Which program to run on one or several machines."""

    target: str
    objective: str
    """one of the objectives above"""
    unit: str
    """of the work: `tokens`, `samples`, `steps`, or what `--work` is called"""
    machines: tuple[MachinePlan, ...]
    scaling: tuple[ScalingPoint, ...] = ()
    global_batch: float | None = None
    """work of a fixed global batch, if the objective is `time`"""
    jaxlib: str = ""
    seconds: float = 0.0
    folder: str = ""
    reasons: tuple[str, ...] = ()
    """how the machines compare, and where communication takes over"""
    strong: tuple[ScalingPoint, ...] = ()
    """strong scaling: the best candidates whose steps do the same work on several machines"""
    enums: Mapping[str, str] = field(default_factory=dict)
    """choices whose values are names of an enum's members: name to class"""
