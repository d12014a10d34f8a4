"""Candidates timed as jobs: the user's command, launched anew for every timing.

    settings ─► XLA_FLAGS and variables ─► a short run of the job ─► the time of a step
                                             └ its first results, compared with the baseline's

If two runs of the baseline differ from each other, candidates' results are *not checked*, and the
report says so.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slipstream.bench.timed_run import DIED, HUNG, MEMORY, TimedRunFailed, TimedRuns
from slipstream.errors import BadInput
from slipstream.experiment.compare_outputs import largest_difference, read_results
from slipstream.flags.catalogue.catalogue import Catalogue
from slipstream.results.tuning import CRASH, DIFFERENT, HANG, OUT_OF_MEMORY, REFUSED
from slipstream.tune.apply import as_flags
from slipstream.tune.measure.ab_window import BASELINE, JOBS, NULL, ArmFailed
from slipstream.tune.measure.in_process import CHECKED
from slipstream.writing import empty_folder, file_name, mark_folder

RUNS = "runs"
"""subfolder of the study with the logs of failed runs"""
FLAGS = "XLA_FLAGS"
LEAST_PATIENCE_S, PATIENCE_FACTOR = 60.0, 10.0
"""a candidate hangs if it takes this many times as long as the baseline, and at least this long"""
_KINDS = {HUNG: HANG, MEMORY: OUT_OF_MEMORY, DIED: CRASH}
Command = tuple[str, ...]


@dataclass(frozen=True)
class _BaselineRun:
    """The program and results of the baseline's first run."""

    content: str
    results: Mapping[str, Any] | None
    seconds: float
    doubt: str = ""
    """why results can't be compared, according to the second run"""
    is_repeated: bool = False


class Launched:
    """The user's job, on whatever devices its command uses."""

    schedule = JOBS

    def __init__(
        self,
        runs: TimedRuns,
        folder: Path,
        catalogue: Catalogue,
        *,
        tolerance: float = 0.01,
        defaults: Mapping[str, str] | None = None,
        costs: Path | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._runs = runs
        self._folder = folder / RUNS
        self._catalogue = catalogue
        self._tolerance = tolerance
        self._defaults = dict(defaults or {})
        """of knobs that are placeholders in the command"""
        self._costs = costs
        self._progress = progress
        self._arms: dict[str, tuple[Command, dict[str, str]]] = {}
        self._checks: dict[str, str] = {}
        self._baseline: _BaselineRun | None = None
        self._count = 0
        empty_folder(self._folder)
        mark_folder(self._folder)

    def compile_ahead(self, candidates: Mapping[str, Mapping[str, str]]) -> None:
        """Nothing to do: each job compiles for itself."""

    def prepare(self, name: str, settings: Mapping[str, str]) -> int | None:
        """Starts nothing: each run is checked when it is timed."""
        self._arms[name] = self._settings(settings)
        return None

    def time(self, name: str) -> float:
        # The baseline and the null arm have no settings and are never prepared.
        command, variables = self._arms.get(name) or self._settings({})
        self._count += 1
        folder = self._folder / f"{self._count:04}-{file_name(name.replace(' ', '-'))}"
        self._progress(f"run {self._count}: {name}")
        began = time.monotonic()
        try:
            facts = self._runs.time(folder, variables, command, self._patience_s())
            self._check_settings(variables, facts)
            self._check(name, folder, facts, time.monotonic() - began)
        except TimedRunFailed as failed:
            raise self._failure(name, _KINDS[failed.kind], failed.why) from None
        shutil.rmtree(folder)
        return float(facts["step_s"])

    def results_check(self, name: str) -> str:
        """Whether a candidate's results match the baseline's, or why that is unknown."""
        return self._checks.get(name, "not checked: it was not run")

    def close(self) -> None:
        """Nothing to do: no process runs between two timings."""

    def _settings(self, settings: Mapping[str, str]) -> tuple[Command, dict[str, str]]:
        command, base = self._runs.command, self._runs.base
        typed, variables = settings_for(settings, command, base, self._catalogue, self._costs)
        return fill_placeholders(typed, self._defaults), variables

    def _patience_s(self) -> float:
        if self._baseline is None:
            return self._runs.timeout_s
        return min(
            self._runs.timeout_s, max(LEAST_PATIENCE_S, PATIENCE_FACTOR * self._baseline.seconds)
        )

    def _failure(self, name: str, status: str, why: str) -> Exception:
        if name not in (BASELINE, NULL):
            return ArmFailed(status, why)
        return BadInput(
            f"the job can't be measured as it is: {why}; expected a command that calls its "
            f"jitted step more than {self._runs.start + self._runs.steps} times, see: --capture"
        )

    def _check_settings(self, variables: Mapping[str, str], facts: Mapping[str, Any]) -> None:
        """BadInput if the script overrides settings, or the launcher doesn't forward them."""
        seen = facts.get("environment") or {}
        for name, value in variables.items():
            has = str(seen.get(name) or "")
            lost = value not in has if name != FLAGS else _lost(value, has)
            if lost:
                raise BadInput(
                    f"{name} was set to {value!r} for the job, but is {has!r} inside it: the "
                    "script sets it, or the launcher doesn't forward it; set it in the "
                    "environment instead (mpirun: -x NAME)"
                )

    def _check(self, name: str, folder: Path, facts: Mapping[str, Any], seconds: float) -> None:
        content, results = str(facts["content"]), read_results(folder)
        known = self._baseline
        if known is None:
            if name != BASELINE:
                return
            self._baseline = _BaselineRun(content, results, seconds)
            return
        if not known.is_repeated and name in (BASELINE, NULL):
            doubt = self._difference(known, content, results)
            if doubt:
                doubt = f"two runs of the baseline also differ ({doubt})"
            elif not results:
                doubt = "the step has no results that are small enough to compare"
            self._baseline = replace(known, doubt=doubt or "", is_repeated=True)
            return
        if name not in (BASELINE, NULL):
            self._check_candidate(name, known, content, results)

    def _check_candidate(
        self, name: str, known: _BaselineRun, content: str, results: Mapping[str, Any] | None
    ) -> None:
        if known.doubt or not known.is_repeated:
            self._checks[name] = f"not checked: {known.doubt or 'the baseline ran only once'}"
            return
        if different := self._difference(known, content, results):
            raise ArmFailed(DIFFERENT, different)
        self._checks[name] = CHECKED

    def _difference(
        self, known: _BaselineRun, content: str, results: Mapping[str, Any] | None
    ) -> str | None:
        if content != known.content:
            return "the job runs another program than the baseline: its code depends on a setting"
        if not results or not known.results:
            return None if bool(results) == bool(known.results) else "one run has no results"
        found = largest_difference(dict(known.results), dict(results))
        if found <= self._tolerance:
            return None
        return (
            f"results differ from the baseline's by {found:.2g} of the largest value; "
            f"{self._tolerance:g} is allowed"
        )


def settings_for(
    settings: Mapping[str, str],
    command: Command,
    base: Mapping[str, str],
    catalogue: Catalogue,
    costs: Path | None = None,
) -> tuple[Command, dict[str, str]]:
    """The command and variables for a candidate; the user's own settings stay, and come last."""
    if taken := set_already(base) & settings.keys():
        raise ArmFailed(REFUSED, f"{', '.join(sorted(taken))}: already set in the environment")
    typed = {name for name in settings if is_placeholder(name, command)}
    rest = {name: value for name, value in settings.items() if name not in typed}
    flags = as_flags(rest, catalogue, str(costs) if costs is not None else None)
    variables = {name: value for name, value in flags.items() if not name.startswith("xla_")}
    words = [f"--{name}={value}" for name, value in flags.items() if name.startswith("xla_")]
    if words:
        variables[FLAGS] = " ".join([*words, base.get(FLAGS, "")]).strip()
    return fill_placeholders(command, {name: settings[name] for name in typed}), variables


def is_placeholder(name: str, command: Sequence[str]) -> bool:
    """Whether a knob is a placeholder in the command: `srun --ntasks-per-node={processes} …`."""
    return any(f"{{{name}}}" in word for word in command)


def placeholders_in(names: Iterable[str], command: Sequence[str]) -> tuple[str, ...]:
    """The knobs that are placeholders in the command."""
    return tuple(name for name in names if is_placeholder(name, command))


def fill_placeholders(command: Sequence[str], values: Mapping[str, str]) -> Command:
    """A command with values in place of its placeholders."""
    words = list(command)
    for name, value in values.items():
        words = [word.replace(f"{{{name}}}", value) for word in words]
    return tuple(words)


def set_already(base: Mapping[str, str]) -> set[str]:
    """Flags and variables that the user's environment sets."""
    return set(base) | {word.partition("=")[0].removeprefix("--") for word in _words(base)}


def _words(base: Mapping[str, str]) -> list[str]:
    text = base.get(FLAGS, "")
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _lost(value: str, has: str) -> bool:
    return not set(value.split()) <= set(has.split())
