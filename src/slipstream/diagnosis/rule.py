"""A rule: a question, and a function from evidence to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from slipstream.analyses.op_groups import op_groups
from slipstream.analyses.ops import Op
from slipstream.diagnosis.evidence import Evidence
from slipstream.results.diagnosis import Abstention, Exhibit, Finding

RuleResults = Iterator[Finding | Abstention]
MOST_EXHIBITS = 5


@dataclass(frozen=True)
class Rule:
    """One rule; `check` yields findings, abstentions, or nothing."""

    name: str
    question: str
    check: Callable[[Evidence], RuleResults]
    needs_gpu: bool = True
    needs_program: bool = True

    def apply(self, evidence: Evidence) -> RuleResults:
        """Run the rule; it abstains if what it needs was not recorded."""
        if self.needs_gpu and not evidence.is_gpu:
            yield Abstention(self.name, "it applies to GPUs, and none was recorded")
        elif self.needs_program and evidence.program is None:
            yield Abstention(self.name, "the profile has no copy of the program")
        else:
            yield from self.check(evidence)


def exhibits(ops: Iterable[Op], evidence: Evidence, note: str = "") -> tuple[Exhibit, ...]:
    """The longest ops, as exhibits of a finding; of equal ops in several layers, one."""
    steps = max(1, len(evidence.profile.steps))
    by_name = {op.instruction: op for op in ops}
    found = []
    for group in op_groups(by_name.values())[:MOST_EXHIBITS]:
        op = by_name[group.instruction]
        found.append(
            Exhibit(
                op.instruction,
                op.per_step_us,
                round(op.count / steps),
                op.source,
                group.description,
                note,
                group.instructions,
                group.per_step_us,
                round(group.count / steps),
            )
        )
    return tuple(found)
