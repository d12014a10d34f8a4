"""What if the network between slices or hosts were another one: one compile, many simulations.

Only what crosses the network takes another time: its own, by the ratio of the models for the two
bandwidths, and what another latency adds. All other estimates and the clock stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from slipstream.analyses.network.slack import slice_collectives
from slipstream.analyses.slack import slack
from slipstream.analyses.summary import step_times
from slipstream.errors import BadInput
from slipstream.machines.collectives import collective_time
from slipstream.machines.links import link_names, loads
from slipstream.machines.machine import Estimate, Fabric, Machine
from slipstream.machines.tpu.slices import is_slice_transfer, slice_estimate, slice_transfer
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.descriptions import moved_names, transfer_kind
from slipstream.profile.semantics.names import describe, source
from slipstream.results.what_if import NetworkCase, NetworkTransfer, NetworkWhatIf
from slipstream.simulate.engine import Simulation, all_waits, simulation

HIDDEN = 0.01
"""share of the step that waits may take if transfers count as hidden"""
CLOSE = 1.03
"""how exact the least bandwidth and the longest latency are"""
MOST_FASTER = 1000.0
"""a network this many times as fast stands for an unlimited one"""
GRID = {
    "tpu": ((50.0, 100.0, 200.0), (1_000.0, 2_000.0, 4_000.0)),
    "gpu": ((400.0, 800.0, 1_600.0, 3_200.0), (25.0, 50.0, 100.0)),
}
"""gigabits per second of a host, and microseconds, for a bare `network`"""
_FORMS = (
    "expected network (several bandwidths and latencies), network=50Gb/s (of a host), "
    "network=@2ms, network=50Gb/s@2ms, or several of them with commas"
)
_CASE = re.compile(r"(?P<rate>[^@]*)(?:@(?P<latency>.*))?")
_NUMBER = r"(\d+(?:\.\d+)?|\.\d+)\s*"
_RATE = re.compile(_NUMBER + r"([kKmMgGtT])(b/s|bit/s|bps|B/s|Bps)")
_LATENCY = re.compile(_NUMBER + r"(us|µs|μs|ms|s)")
_SCALES = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIMES = {"us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6}

Asked = tuple[float | None, float | None]
"""gigabits per second of a host, and microseconds; None: as the machine has it"""


def asked_networks(text: str) -> tuple[Asked, ...]:
    """The networks of a `--what-if`; empty for a bare `network`."""
    subject, equals, stated = text.partition("=")
    if subject.strip() != "network":
        raise BadInput(f"--what-if {text!r} does not begin with network; {_FORMS}")
    if not equals:
        return ()
    return tuple(_asked(part.strip(), text) for part in stated.split(","))


def _asked(part: str, text: str) -> Asked:
    matched = _CASE.fullmatch(part)
    assert matched is not None  # any text has this form
    rate, latency = matched["rate"].strip(), matched["latency"]
    if not rate and not (latency or "").strip():
        raise BadInput(f"--what-if {text!r} has an empty case; {_FORMS}")
    return (
        _gbps(rate, text) if rate else None,
        _latency_us(latency.strip(), text) if latency is not None else None,
    )


def _gbps(rate: str, text: str) -> float:
    matched = _RATE.fullmatch(rate)
    if matched is None:
        raise BadInput(
            f"--what-if {text!r}: {rate!r} is no bandwidth; expected a number and Gb/s (bits) or "
            "GB/s (bytes), such as 50Gb/s"
        )
    bits = 8.0 if matched[3].startswith("B") else 1.0
    found = float(matched[1]) * _SCALES[matched[2].lower()] * bits / 1e9
    if not found:
        raise BadInput(f"--what-if {text!r}: a network of 0 Gb/s never ends a transfer")
    return found


def _latency_us(latency: str, text: str) -> float:
    matched = _LATENCY.fullmatch(latency)
    if matched is None:
        raise BadInput(
            f"--what-if {text!r}: {latency!r} is no latency; expected a number and us, ms or s, "
            "such as 2ms"
        )
    return float(matched[1]) * _TIMES[matched[2]]


def check_network(machines: Sequence[Machine]) -> None:
    """Refuse machines that all lack a network, before anything is compiled."""
    if any(_has_network(machine) for machine in machines):
        return
    spec = machines[0].spec
    if machines[0].kind == "tpu":
        raise BadInput(
            f"--what-if network: {spec} is one slice, and nothing leaves it over the network "
            f"between slices; name several, such as --on 2x{spec}"
        )
    raise BadInput(
        f"--what-if network: {spec} is one NVLink domain, and nothing leaves it over the network; "
        "name several hosts, such as --on 4x8xH100"
    )


def _has_network(machine: Machine) -> bool:
    return machine.domain_of(machine.devices - 1) > 0


def network_what_if(
    program: Program,
    machine: Machine,
    step: Simulation,
    asked: Sequence[Asked] = (),
    command_buffers: bool | None = None,
) -> NetworkWhatIf | None:
    """The simulated step with other networks; None if the machine has no network.

    Without `asked`, every combination of the usual bandwidths and latencies.
    """
    if not _has_network(machine):
        return None
    return _Networks(program, machine, step, command_buffers).result(asked)


class _Networks:
    """A simulated step, and what in it crosses the network."""

    def __init__(
        self, program: Program, machine: Machine, step: Simulation, command_buffers: bool | None
    ) -> None:
        self.program, self.step, self.command_buffers = program, step, command_buffers
        power = step.power
        clock = power.clock_hz / power.highest_hz if power is not None else 1.0
        self.machine = machine.at(clock)
        # A calibrated collective would take the same time on any network.
        self.model = replace(self.machine, calibration={})
        self.sent = {
            start.name: sent
            for start in program.scheduled
            if start.name in step.estimates and (sent := _network_bytes(self.model, program, start))
        }
        self.gbps = machine.host_network_bandwidth * 8 / 1e9
        self.latency_us = machine.network.latency_us
        self.us = {name: self._modelled_us(name, self.model) for name in self.sent}
        self.now = self._case(step, self.gbps, self.latency_us)

    def result(self, asked: Sequence[Asked]) -> NetworkWhatIf:
        between = "slices" if self.machine.kind == "tpu" else "hosts"
        if not self.sent:
            return NetworkWhatIf(between, self.now, (), (), None, None)
        wanted = [self._filled(one) for one in asked or _grid(self.machine, self.latency_us)]
        faster, slower = self.gbps * MOST_FASTER, self.gbps / MOST_FASTER
        return NetworkWhatIf(
            between=between,
            now=self.now,
            transfers=self._transfers(),
            cases=tuple(self.at(*one) for one in wanted),
            hidden_from_gbps=_border(
                lambda gbps: self._is_hidden(gbps, self.latency_us), faster, slower
            ),
            hidden_to_latency_us=_border(lambda us: self._is_hidden(self.gbps, us), 0.1, 1e6),
        )

    def _filled(self, asked: Asked) -> tuple[float, float]:
        gbps, latency_us = asked
        return (
            self.gbps if gbps is None else gbps,
            self.latency_us if latency_us is None else latency_us,
        )

    def at(self, gbps: float, latency_us: float) -> NetworkCase:
        """The step with another network."""
        other = self._on(gbps, latency_us)
        changed = {name: self._estimate(name, other) for name in self.sent}
        step = simulation(
            self.program,
            other,
            estimates={**self.step.estimates, **changed},
            command_buffers=self.command_buffers,
        )
        return self._case(step, gbps, latency_us)

    def _on(self, gbps: float, latency_us: float) -> Machine:
        each = gbps * 1e9 / 8 / self.machine.gpus_per_host
        network: Fabric = replace(self.machine.network, bandwidth=each, latency_us=latency_us)
        return replace(self.model, network=network)

    def _estimate(self, name: str, machine: Machine) -> Estimate:
        """Known times by the models' ratio for the bandwidths, and what the latency adds."""
        known, modelled = self.step.estimates[name], self.us[name]
        same = replace(machine.network, latency_us=self.latency_us)
        at_rate = self._modelled_us(name, replace(machine, network=same))
        longer = self._modelled_us(name, machine) - at_rate
        scaled = known.us * (at_rate / modelled if modelled else 1.0)
        return replace(known, us=max(scaled + longer, 0.0))

    def _modelled_us(self, name: str, machine: Machine) -> float:
        instruction = self.program.instruction(name)
        if is_slice_transfer(instruction):
            return slice_estimate(machine, self.program, instruction).us
        collective = self.program.collective_of(instruction)
        assert collective is not None, name
        return collective_time(machine, collective, instruction, machine.devices).us

    def _is_hidden(self, gbps: float, latency_us: float) -> bool:
        case = self.at(gbps, latency_us)
        return case.wait_us <= HIDDEN * case.step_us

    def _case(self, step: Simulation, gbps: float, latency_us: float) -> NetworkCase:
        waits = {
            wait.instruction: wait.us for wait in all_waits(step) if wait.instruction in self.sent
        }
        step_us = step_times(step.profile).wall_us
        return NetworkCase(gbps, latency_us, step_us, sum(waits.values()), waits)

    def _transfers(self) -> tuple[NetworkTransfer, ...]:
        given = self._slack_us()
        found = [self._transfer(name, given.get(name, 0.0)) for name in self.sent]
        unbounded = float("inf")

        def order(one: NetworkTransfer) -> tuple[float, float]:
            return -one.wait_us, -(unbounded if one.needs_gbps is None else one.needs_gbps)

        return tuple(sorted(found, key=order))

    def _transfer(self, name: str, slack_us: float) -> NetworkTransfer:
        start = self.program.instruction(name)
        collective = self.program.collective_of(start)
        assert collective is not None, name
        times = self.step.executions.get(name, 0)
        return NetworkTransfer(
            instruction=name,
            kind=transfer_kind(start) if is_slice_transfer(start) else collective.kind,
            description=_description(self.program, start),
            source=source(self.program, start),
            times=times,
            bytes=self.sent[name],
            slack_us=slack_us,
            needs_gbps=self._needs(name, slack_us),
            us=self._took_us(start) / max(times, 1),
            wait_us=self.now.waits.get(name, 0.0),
        )

    def _needs(self, name: str, slack_us: float) -> float | None:
        """The least bandwidth at which a transfer takes no longer than its slack."""
        start = self.program.instruction(name)
        if is_slice_transfer(start):
            modelled = self.us[name]
            slower = self.step.estimates[name].us / modelled if modelled else 1.0
            sent = slice_transfer(self.model, self.program, start)
            return sent.needs_gbps(slack_us, self.model.gpus_per_host, slower)

        def fits(gbps: float) -> bool:
            return self._estimate(name, self._on(gbps, self.latency_us)).us <= slack_us

        return _border(fits, self.gbps * MOST_FASTER, 1e-6 * self.gbps)

    def _took_us(self, start: Instruction) -> float:
        """In the step, all its executions together."""
        events = self.step.profile.events
        label = (self.program.wrapped(start.name) or start).name
        if label not in events.texts:
            return 0.0
        rows = events["instruction"][:] == events.texts.index(label)
        return float(events["duration_ps"][:][rows].sum()) / 1e6

    def _slack_us(self) -> dict[str, float]:
        """What each transfer may take without a wait, by its start."""
        if self.machine.kind == "tpu":
            found = slice_collectives(self.step.profile, self.machine.slices)
            return {one.send: max(one.slack_us, 0.0) for one in found}
        rows = {row.instruction: row for row in slack(self.step.profile).rows}
        given = {}
        for name in self.sent:
            start = self.program.instruction(name)
            row = rows.get((self.program.wrapped(name) or start).name)
            if row is not None and name not in self.step.inline:
                hidden = row.total_us - self.now.waits.get(name, 0.0)
                given[name] = max(hidden / row.count, 0.0) + row.median_slack_us
        return given


def _description(program: Program, start: Instruction) -> str:
    """`all-reduce ∂w1`: of a transfer between slices, its collective."""
    if not is_slice_transfer(start):
        return describe(program, start)
    named = moved_names(program, start)
    return f"{transfer_kind(start)} {named or start.name}"


def _network_bytes(machine: Machine, program: Program, start: Instruction) -> float:
    """Bytes that one device sends over the network in one execution."""
    if start.is_done or program.collective_of(start) is None:
        return 0.0
    names = link_names(machine)
    found = (load for load in loads(machine, program, start) if names[load.link] in _NETWORK)
    return sum(load.bytes for load in found)


_NETWORK = ("network", "network out")


def _grid(machine: Machine, latency_us: float) -> list[Asked]:
    rates, latencies = GRID[machine.kind]
    return [(gbps, us) for us in (latency_us, *latencies) for gbps in rates]


def _border(is_good: Callable[[float], bool], best: float, worst: float) -> float | None:
    """The value nearest to `worst` that is still good; None if not even `best` is."""
    if not is_good(best):
        return None
    if is_good(worst):
        return worst
    good, bad = best, worst
    while max(good, bad) / min(good, bad) > CLOSE:
        middle = (good * bad) ** 0.5
        good, bad = (middle, bad) if is_good(middle) else (good, middle)
    return good
