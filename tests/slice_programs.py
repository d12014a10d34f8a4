"""Programs of two slices of 16 v5e, with one transfer between the slices and a planted trouble."""

from slipstream.profile.program import Program
from slipstream.sources.hlo.reader import program_from_text

MACHINE = "2xv5e:4x4"
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


def slice_program(body: str, rows: int, gradient: str = "g") -> Program:
    """A step whose gradient has so many rows of 1024 f32."""
    return program_from_text(slice_text(body, rows, gradient))


def slice_text(body: str, rows: int, gradient: str = "g") -> str:
    return (HEAD + body).replace("ROWS", str(rows)).replace("GRADIENT", gradient)


# 8.4 MB take 2.9 ms between slices of v5e, 84 MB 27 ms.
HIDDEN = compute(1, 5) + SEND + compute(2, 20, "kernel.1") + RECEIVE + compute(3, 2, "kernel.2")
TOO_LATE = compute(1, 25) + SEND + RECEIVE + compute(3, 2, "kernel.1")
TOO_LARGE = SEND + compute(1, 5) + compute(2, 5, "kernel.1") + RECEIVE + compute(3, 2, "kernel.2")
COPIED = (
    compute(1, 2) + COPY + SEND + compute(2, 20, "kernel.1") + RECEIVE + compute(3, 1, "kernel.2")
)
