"""The steps, executions and collectives of all hosts, on one clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cached_property

import numpy as np

from slipstream.analyses.skew import MatchedCollectives, match_rows
from slipstream.fleet.digest import Digest
from slipstream.fleet.totals import ProgramKey
from slipstream.profile.data_quality import clock_skew
from slipstream.profile.events import Array, Table
from slipstream.profile.host_merge import clock_shifts, merge_hosts
from slipstream.profile.one_run import apart_ns
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.kinds import COMMUNICATION
from slipstream.profile.timeline.runs import Runs
from slipstream.profile.timeline.steps import Steps

LEFT_OUT = "; left out: "
"""before each of the things that a rule for steps left out"""
MOST_NOTES = 3


class OneClock:
    """Digests of one run, put on one clock as `merge_hosts` does it with whole profiles."""

    def __init__(self, digests: Sequence[Digest]) -> None:
        self._digests = digests

    @cached_property
    def names(self) -> dict[ProgramKey, str]:
        """Each program's name in this run: where several share one, later ones get a host's."""
        found: dict[ProgramKey, str] = {}
        for one in self._digests:
            for name, content in one.hashes.items():
                if (name, content) not in found:
                    taken = set(found.values())
                    free = (name, *_numbered(f"{name}@{one.profile.hosts[0].name}", len(taken)))
                    found[name, content] = next(text for text in free if text not in taken)
        return found

    @cached_property
    def profile(self) -> Profile:
        """The collectives of all hosts, with the steps and executions of all events."""
        found = merge_hosts(
            [replace(one.profile, events=self._renamed(one), warnings=()) for one in self._digests],
            [one.recorded for one in self._digests],
        )
        found.__dict__["event_kinds"] = np.full(len(found.events), COMMUNICATION, np.uint8)
        found.__dict__["steps"] = self.steps
        found.__dict__["runs"] = self._runs(found)
        return found.with_warnings(*clock_skew(found))

    @cached_property
    def matched(self) -> MatchedCollectives:
        """Collectives that several devices recorded."""
        rows = np.flatnonzero(np.concatenate([one.comparable for one in self._digests]))
        notes = list(dict.fromkeys(note for one in self._digests for note in one.notes))
        return match_rows(self.profile, rows, notes)

    @cached_property
    def steps(self) -> Steps:
        """The steps of every device."""
        parts = [part for part in self._placed if part[0] in self._counted]
        basis, rule = _rule([one.steps for one, _, _ in parts])
        return Steps(
            basis,
            rule,
            np.concatenate([one.steps.device + device for one, device, _ in parts]),
            np.concatenate([one.steps.number for one, _, _ in parts]),
            np.concatenate([one.steps.start_ps + shift for one, _, shift in parts]),
            np.concatenate([one.steps.end_ps + shift for one, _, shift in parts]),
        )

    @cached_property
    def splits(self) -> Array:
        """Of each step, as `step_splits` returns them."""
        return np.concatenate([one.splits for one in self._counted])

    @cached_property
    def _counted(self) -> list[Digest]:
        """Recordings with steps: the others' only step is the whole recording, if all are so."""
        return [one for one in self._digests if one.has_steps] or list(self._digests)

    @cached_property
    def _placed(self) -> list[tuple[Digest, int, int]]:
        """(recording, number of devices in those before it, what to add to its times)."""
        counts = [len(one.profile.devices) for one in self._digests]
        firsts = [sum(counts[:place]) for place in range(len(counts))]
        shifts = [0]
        if len(self._digests) > 1:
            apart = apart_ns([one.recorded for one in self._digests])
            shifts, _ = clock_shifts([one.profile for one in self._digests], apart)
        return list(zip(self._digests, firsts, shifts, strict=True))

    def _renamed(self, one: Digest) -> Table:
        events = one.profile.events
        return events.replace([self._name(one, text) for text in events.texts])

    def _name(self, one: Digest, text: str) -> str:
        return self.names.get((text, one.hashes.get(text, "")), text)

    def _runs(self, merged: Profile) -> Runs:
        index = {text: place for place, text in enumerate(merged.events.texts)}
        parts = []
        for one, device, shift in self._placed:
            texts = [index[self._name(one, text)] for text in one.profile.events.texts]
            moved = replace(
                one.runs,
                device=one.runs.device + device,
                program=np.array(texts, np.int32)[one.runs.program],
                start_ps=one.runs.start_ps + shift,
                end_ps=one.runs.end_ps + shift,
            )
            parts.append(moved)
        names = [field.name for field in fields(Runs)]
        return Runs(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _numbered(name: str, most: int) -> tuple[str, ...]:
    return (name, *(f"{name}#{number}" for number in range(2, most + 3)))


def _rule(steps: Sequence[Steps]) -> tuple[str, str]:
    """The basis of most hosts, and their rule with what it left out on how many of them."""
    basis = Counter(one.basis for one in steps).most_common(1)[0][0]
    parts = [one.rule.split(LEFT_OUT) for one in steps]
    rules = Counter(rule for rule, *_ in parts).most_common()
    text = rules[0][0]
    if len(rules) > 1:
        text += f" (on {rules[0][1]} of {len(steps)} hosts)"
    notes = Counter(note for _, *left in parts for note in left)
    for note, count in notes.most_common(MOST_NOTES):
        text += f"{LEFT_OUT}{note}{_on(count, len(steps))}"
    return basis, text


def _on(count: int, hosts: int) -> str:
    return f" on {count} of {hosts} hosts" if count < hosts else " on each host" * (hosts > 1)
