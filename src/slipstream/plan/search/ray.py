"""Combinations on a Ray cluster: bounds and lowering here, compiles and simulations there.

    search ─ thread ─┐   a few processes here        ┌─ node ─ compile ─ simulate
           ─ thread ─┼─► bounds, StableHLO ──────────┤
           ─ thread ─┘                               └─ node ─ compile ─ simulate

Nodes need Slipstream and the same JAX, but nothing of the user's code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue

from slipstream.compiler.closing import Closing
from slipstream.compiler.compile import known_config
from slipstream.compiler.session import CompilerSession
from slipstream.compiler.time_limit import TimeLimit
from slipstream.compiler.workers import Workers
from slipstream.errors import SlipstreamError
from slipstream.plan.search.evaluation import Evaluation, Known, LoweredTask, failed_outcome
from slipstream.plan.search.facts import EvaluationSpec
from slipstream.plan.search.simulated_step import simulated_step
from slipstream.plan.space.search_space import Settings, combination_of
from slipstream.tune.outcome import Outcome
from slipstream.tune.ray.cluster import Cluster


@dataclass(frozen=True)
class NodeSpec:
    """What a node needs; picklable."""

    spec: EvaluationSpec

    def runner(self, seen: dict[str, Outcome]) -> NodeEvaluation:
        return NodeEvaluation(self.spec, seen)


class NodeEvaluation(Closing):
    """Compiles and simulates lowered combinations, one after the other, in one process."""

    def __init__(self, spec: EvaluationSpec, seen: dict[str, Outcome]) -> None:
        self._spec = spec
        self._seen = seen
        self._workers = Workers()

    def evaluate(self, task: LoweredTask) -> Outcome:
        spec, limit = self._spec, TimeLimit(self._spec.timeout_s, self._workers.abort)
        try:
            with (
                limit,
                CompilerSession(
                    task.target,
                    spec.machine,
                    known_config(spec.machine),
                    workers=self._workers,
                    program_only=True,
                ) as session,
            ):
                table = spec.costs.for_scheduler if spec.costs is not None else None
                return simulated_step(session.compile(costs=table), task.facts, spec, self._seen)
        except SlipstreamError as error:
            return failed_outcome(error, spec.timeout_s if limit.is_passed else None)

    def close(self) -> None:
        """Also ends a compile that another thread is waiting for."""
        self._workers.abort()
        self._workers.close()


class RayEvaluation:
    """Evaluates combinations for one thread of the search."""

    def __init__(self, local: SimpleQueue[Evaluation], cluster: Cluster, known: Known) -> None:
        self._local = local
        self._cluster = cluster
        self._known = known

    def evaluate(self, settings: Settings) -> Outcome:
        evaluation = self._local.get()
        try:
            found = evaluation.lowered(settings)
        finally:
            self._local.put(evaluation)
        if isinstance(found, Outcome):
            return found
        outcome = self._cluster.evaluate(found, str(combination_of(settings)))
        self._known.add(settings, outcome)
        return outcome


class RayEvaluations:
    """The runners of a search on a cluster, which share a few evaluations on this machine."""

    def __init__(self, cluster: Cluster, local: Sequence[Evaluation], known: Known) -> None:
        self._cluster = cluster
        self._known = known
        self._local: SimpleQueue[Evaluation] = SimpleQueue()
        for one in local:
            self._local.put(one)

    @contextmanager
    def runner(self) -> Iterator[RayEvaluation]:
        with self._cluster.runner() as cluster:
            yield RayEvaluation(self._local, cluster, self._known)
