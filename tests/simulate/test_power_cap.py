"""The clock of a whole step."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from schedules import MACHINE, gather, gathered, kernel, program
from slipstream.analyses.summary import step_times
from slipstream.machines.topology import machine
from slipstream.profile.program import Program
from slipstream.simulate.engine import Simulation, simulation
from slipstream.simulate.power_cap import StepPower
from slipstream.simulate.prediction import predict
from slipstream.sources.hlo.reader import program_from_text

H200 = machine("H200")
SIDE = 8192
DOTS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def products(count: int, *more: str) -> Program:
    """Products one after another, each of the result of the one before."""
    shape = f"bf16[{SIDE},{SIDE}]{{1,0}}"
    first = f"%x0 = {shape} parameter(1)"
    dots = [f"%x{i + 1} = {shape} dot(%x{i}, %x0), {DOTS}" for i in range(count)]
    return program(first, *dots, *more, f"ROOT %t = ({shape}) tuple(%x{count})")


def clock_mhz(found: Simulation) -> float:
    assert found.power is not None
    return found.power.clock_hz / 1e6


def test_a_step_of_products_is_at_its_cap() -> None:
    found = simulation(products(20), H200)
    assert found.power is not None and found.power.is_capped
    assert found.power.watts == pytest.approx(700, rel=0.01)
    assert 1400 < clock_mhz(found) < 1700
    # Its kernels take as long as at this clock.
    at = H200.at(found.power.clock_hz / H200.gpu.clock_hz)
    slowed = simulation(products(20), replace(at, chip=replace(at.gpu, power_w=0)))
    walls = [step_times(one.profile).wall_us for one in (found, slowed)]
    assert walls[0] == pytest.approx(walls[1])


def test_a_step_that_waits_has_a_higher_clock() -> None:
    """For copies to the host, and for collectives, which are no kernels of its own."""
    copy = ("%c = u8[3000000000] parameter(2)",
            "%cs = (u8[3000000000]{0:S(5)}, u8[3000000000], u32[]) copy-start(%c)",
            "%cd = u8[3000000000]{0:S(5)} copy-done(%cs)")  # fmt: skip
    gathers = ("%c = u8[1000000000] parameter(2)",
               "%gs = (u8[1000000000], u8[8000000000]) all-gather-start(%c), "
               "replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}",
               "%gd = u8[8000000000] all-gather-done(%gs)")  # fmt: skip
    eight = machine("8xH200")
    busy = simulation(products(10), eight)
    for waits in (copy, gathers):
        waiting = simulation(products(10, *waits), eight)
        assert 1.1 * clock_mhz(busy) < clock_mhz(waiting) < 1.2 * clock_mhz(busy)
        # Kernels between waits are limited too, though the mean is far below the cap.
        assert waiting.power is not None and waiting.power.is_capped
        assert waiting.power.watts < 650
    # A shorter wait leaves less.
    some = [line.replace("000000000]", "00000000]") for line in gathers]
    found = simulation(products(10, *some), eight)
    assert clock_mhz(busy) < clock_mhz(found) < 1.1 * clock_mhz(busy)
    assert found.power is not None and found.power.watts == pytest.approx(700, rel=0.01)


def test_copies_do_not_slow_the_kernels_between_them() -> None:
    """Most of the energy is that of copies, and they take most of the time."""
    copies = [f"%c{i} = u8[300000000] copy(%c)" for i in range(4)]
    step = program("%c = u8[300000000] parameter(2)", *copies, kernel("b", "a", root=True))
    found = simulation(step, machine("8xH200"))
    assert found.power is not None and not found.power.is_capped


def test_recorded_bursts_are_as_fast_as_their_pauses_allow(data: Path) -> None:
    """Relative to the same without pauses; those of 200 ms are slower by up to 9%."""
    rows = json.loads((data / "accuracy" / "bursts.json").read_text())["rows"]
    errors = {}
    for number, count in enumerate((12, 36, 120)):
        step = StepPower(products(count), H200, {f"x{i + 1}": 1 for i in range(count)})
        steady = step.share()
        some = rows[7 * number : 7 * number + 7]
        for burst, pause, rate in some[1:]:
            share = step.share(step.kernels_us / steady * (burst + pause) / burst, steady)
            errors[burst, pause] = share / steady / (rate / some[0][2]) - 1
    short = [abs(error) for (burst, _), error in errors.items() if burst < 100]
    assert len(short) == 12 and sum(short) / 12 < 0.025 and max(short) < 0.045
    assert all(-0.01 < error < 0.1 for (burst, _), error in errors.items() if burst > 100)


def test_lower_caps_and_fewer_changing_bits() -> None:
    found = simulation(products(10), H200)
    lower = replace(H200, chip=replace(H200.gpu, power_w=500, static_w=117))
    assert clock_mhz(simulation(products(10), lower)) < 0.9 * clock_mhz(found)
    constant = replace(H200, activity=0.5)
    assert clock_mhz(simulation(products(10), constant)) > 1.1 * clock_mhz(found)


def test_without_a_known_cap_the_clock_is_the_highest() -> None:
    unknown = replace(H200, chip=replace(H200.gpu, power_w=0))
    found, capped = simulation(products(4), unknown), simulation(products(4), H200)
    assert found.power is None
    assert step_times(found.profile).wall_us < step_times(capped.profile).wall_us
    free = replace(H200, chip=replace(H200.gpu, power_w=10_000))
    wall_us = step_times(simulation(products(4), free).profile).wall_us
    assert step_times(found.profile).wall_us == pytest.approx(wall_us)
    # This Toy has no cap, and its peaks are those of its only clock.
    assert predict(program(kernel("b", "a", root=True)), MACHINE).power is None


@pytest.mark.parametrize(
    "lines",
    [
        ("ROOT %t = (f32[8]) tuple(%a)",),
        (gather("g", "a"), gathered("gd", "g"), "ROOT %t = (f32[16]) tuple(%gd)"),
        (kernel("b", "a", root=True),),
    ],
    ids=["nothing", "only communication", "a tiny kernel"],
)
def test_steps_that_draw_next_to_nothing(lines: tuple[str, ...]) -> None:
    found = predict(program(*lines), machine("2xH200"))
    assert found.power is not None and not found.power.is_capped
    assert found.power.clock_hz == found.power.highest_hz == 1.98e9
    assert found.power.watts == pytest.approx(117, abs=1)


def test_loops_of_unknown_length_draw_what_is_simulated() -> None:
    """The simulation runs such a loop once: so much energy, and so much time."""
    shape = f"bf16[{SIDE},{SIDE}]{{1,0}}"
    loop = (
        f"%body (p: ({shape})) -> ({shape}) {{\n  %p = ({shape}) parameter(0)\n"
        f"  %y0 = {shape} get-tuple-element(%p), index=0\n"
        f"  %y1 = {shape} dot(%y0, %y0), {DOTS}\n  ROOT %r = ({shape}) tuple(%y1)\n}}\n\n"
        f"%cond (q: ({shape})) -> pred[] {{\n  %q = ({shape}) parameter(0)\n"
        "  ROOT %k = pred[] constant(true)\n}\n"
    )
    made = program(
        f"%x = ({shape}) parameter(1)",
        f"ROOT %w = ({shape}) while(%x), condition=%cond, body=%body",
        others=loop,
    )
    assert made.executions("y1") is None
    found = simulation(made, H200)
    assert found.power is not None and found.power.is_capped


def test_time_that_overlaps_is_not_counted_twice() -> None:
    """A step shorter than its kernels together, as beside copies on other streams."""
    made = products(10)
    draw = StepPower(made, H200, {f"x{i}": 1 for i in range(1, 11)})
    alone = draw.share()
    busy_us = draw.kernels_us / alone
    assert draw.share(busy_us * 0.9, alone) < alone < draw.share(busy_us * 1.1, alone)


def test_clocks_of_training_steps_are_met(data: Path) -> None:
    """Steps of models on an H200; the energy of elementwise kernels was fitted to them."""
    measured = json.loads((data / "accuracy/variants.json").read_text())["variants"]
    groups = json.loads(gzip.decompress((data / "accuracy/variant_kernels.json.gz").read_bytes()))
    clocks = {
        group["name"]: clock_mhz(simulation(program_from_text(group["hlo"]), H200))
        for group in groups["groups"]
        # The work of Pallas kernels is not in the program's text.
        if group["name"] in measured and "pallas" not in group["name"]
    }
    assert len(clocks) == 5
    expected = {name: measured[name]["clock_mhz"] for name in clocks}
    assert clocks == pytest.approx(expected, rel=0.05)
