"""Steps of two slices with one planted trouble each: `diagnose` names it first."""

import pytest

from slipstream.diagnosis.diagnose import diagnose
from slipstream.machines.topology import machine
from slipstream.results.diagnosis import Diagnosis
from slipstream.simulate.engine import simulate
from slipstream.sources.hlo.reader import program_from_text

HEAD = """
HloModule jit_step, is_scheduled=true, num_partitions=16

fused (a: bf16[1024,1024]) -> bf16[1024,1024] {
  a = bf16[1024,1024]{1,0} parameter(0)
  ROOT b = bf16[1024,1024]{1,0} multiply(a, a)
}

ENTRY main (w: bf16[1024,1024], g: f32[ROWS,1024]) -> bf16[1024,1024] {
  w = bf16[1024,1024]{1,0:T(8,128)(2,1)} parameter(0)
  g = f32[ROWS,1024]{1,0:T(8,128)} parameter(1)
  token = token[] after-all()
"""
ENDS = (
    "channel_id=2, is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="
    '"xla_megascale_runtime",_xla_host_transfer_rendezvous="all-reduce.1_0",'
    '_xla_megascale_reduce_operation="SUM",_xla_megascale_target="{1,2}x{0:15}",'
    '_xla_megascale_transfer_type="ALL_REDUCE"}'
)
SEND = f"  send = (f32[ROWS,1024]{{1,0}}, u32[], token[]) send(GRADIENT, token), {ENDS}\n"
RECEIVE = f"""  recv = (f32[ROWS,1024]{{1,0}}, u32[], token[]) recv(token), {ENDS}
  sent = token[] send-done(send), channel_id=2, is_host_transfer=true
  arrived = (f32[ROWS,1024]{{1,0}}, token[]) recv-done(recv), channel_id=2, is_host_transfer=true
  summed = f32[ROWS,1024]{{1,0}} get-tuple-element(arrived), index=0
"""
COPY = """  copied = f32[ROWS,1024]{0,1:T(8,128)} copy(g), \
backend_config={"window_config":{"estimated_cycles":"4500000"}}
"""


def compute(number: int, ms: float, operand: str = "w") -> str:
    """A kernel of so many milliseconds on a v5e."""
    config = f'{{"window_config":{{"estimated_cycles":"{round(ms * 1.503e6)}"}}}}'
    return (
        f"  kernel.{number} = bf16[1024,1024]{{1,0}} fusion({operand}), kind=kLoop, calls=fused, "
        f"backend_config={config}\n"
    )


def last(number: int) -> str:
    return f"  ROOT r = bf16[1024,1024]{{1,0}} bitcast(kernel.{number})\n}}\n"


def diagnosed(body: str, rows: int, gradient: str = "g") -> Diagnosis:
    text = (HEAD + body).replace("ROWS", str(rows)).replace("GRADIENT", gradient)
    return diagnose(simulate(program_from_text(text), machine("2xv5e:4x4")))


# 8.4 MB take 2.9 ms between slices of v5e, 84 MB 27 ms.
HIDDEN = compute(1, 5) + SEND + compute(2, 20, "kernel.1") + RECEIVE + compute(3, 2, "kernel.2")
TOO_LATE = compute(1, 25) + SEND + RECEIVE + compute(3, 2, "kernel.1")
TOO_LARGE = SEND + compute(1, 5) + compute(2, 5, "kernel.1") + RECEIVE + compute(3, 2, "kernel.2")
COPIED = (
    compute(1, 2) + COPY + SEND + compute(2, 20, "kernel.1") + RECEIVE + compute(3, 1, "kernel.2")
)


@pytest.mark.parametrize(
    ("body", "rows", "gradient", "rule", "named"),
    [
        (TOO_LATE, 2048, "g", "slice-late", "send"),
        (TOO_LARGE, 20480, "g", "slice-bandwidth", "send"),
        (COPIED, 2048, "copied", "slice-copies", "copied"),
    ],
)
def test_the_planted_trouble_is_the_first(
    body: str, rows: int, gradient: str, rule: str, named: str
) -> None:
    first = diagnosed(body + last(3), rows, gradient).findings[0]
    assert first.rule == rule
    assert first.exhibits[0].name == named
    assert first.changes


def test_a_transfer_that_is_hidden_is_no_trouble() -> None:
    assert not diagnosed(HIDDEN + last(3), 2048).findings
