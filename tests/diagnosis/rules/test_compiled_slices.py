"""Steps of two slices from XLA's real compiler, one planted trouble each: `diagnose` names it."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from slipstream.compiler.compile import known_config
from slipstream.compiler.session import CompilerSession
from slipstream.compiler.targets import identify
from slipstream.compiler.workers import Workers
from slipstream.diagnosis.diagnose import diagnose
from slipstream.machines.topology import machine
from slipstream.results.diagnosis import Finding
from slipstream.simulate.engine import simulate

STEPS = Path(__file__).parents[2] / "slice_steps.py"
MACHINE = machine("2xv5e-4")
pytestmark = pytest.mark.skipif(
    find_spec("libtpu") is None, reason="libtpu is missing: pip install 'slipstream[tpu]'"
)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as found:
        yield found


def findings(step: str, workers: Workers) -> tuple[Finding, ...]:
    target = identify(f"{STEPS}:{step}")
    with CompilerSession(target, MACHINE, known_config(MACHINE), workers=workers) as session:
        return diagnose(simulate(session.compile().program, MACHINE)).findings


@pytest.mark.parametrize(
    ("step", "rule", "ms", "said"),
    [
        ("late", "slice-late", 43.2, "so late that 0% of it is hidden. The machine has 100 Gb/s"),
        ("large", "slice-bandwidth", 30.5, "of latency; from 346 Gb/s on they would be hidden."),
        ("copied", "slice-copies", 0.731, "2 copies take 731 µs of the step before their values"),
    ],
)
def test_a_planted_trouble_is_the_first(
    step: str, rule: str, ms: float, said: str, workers: Workers
) -> None:
    first = findings(step, workers)[0]
    assert first.rule == rule
    assert said in first.evidence
    assert first.gain.high_us == pytest.approx(1e3 * ms, rel=0.01)
    assert first.changes


@pytest.mark.parametrize("step", ["hidden", "split"])
def test_the_same_without_a_trouble(step: str, workers: Workers) -> None:
    assert findings(step, workers) == ()
