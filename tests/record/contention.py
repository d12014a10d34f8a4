"""How much kernels slow down beside a kernel that holds some of the GPU's SMs, as NCCL's do: JSON.

    python tests/record/contention.py --output contention.json        about four minutes on one GPU

For the figures of simulate/contention.py; the rows are in tests/data/accuracy/contention.json. A
kernel written in PTX holds a number of SMs on a stream of high priority, for longer than the
kernels that are timed beside it. Its blocks are like NCCL's in a profile: 640 threads with 96
registers and 101 KB of shared memory, which leave no room on an SM for others. `waiting` blocks do
nothing, as NCCL does for a peer; `moving` blocks copy memory meanwhile, as NCCL does. Each row has
the median time of a compiled function on the device alone and beside it, and its longest kernel,
from a profile. Products run as XLA chooses, and as cuBLAS's.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from slipstream.sources.load import load

SMS = (1, 8, 16, 24, 32)
THREADS, SHARED_BYTES, HOLD_S = 640, 82240 + 21568, 0.25
KEPT = 74
"""values that each thread keeps in registers: with those of the loop, 96"""
BUFFER_BYTES = 1 << 30
CUBLAS = {"xla_gpu_enable_triton_gemm": False}
PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry hold(.param .u64 ns, .param .u64 data, .param .u64 bytes)
.maxntid {threads}, 1, 1
{{
  .reg .u64 %t<8>;  .reg .u32 %r<8>;  .reg .f32 %f<4>;  .reg .pred %p<3>;  .reg .f32 %k<{kept}>;
  ld.param.u64 %t0, [ns];
  ld.param.u64 %t1, [data];
  ld.param.u64 %t2, [bytes];
  mov.u64 %t3, %globaltimer;
  mov.u32 %r0, %ctaid.x;  mov.u32 %r1, %ntid.x;  mov.u32 %r2, %tid.x;  mov.u32 %r3, %nctaid.x;
  mad.lo.u32 %r4, %r0, %r1, %r2;
  mul.wide.u32 %t4, %r4, 16;
  mul.lo.u32 %r5, %r1, %r3;
  mul.wide.u32 %t5, %r5, 16;
  setp.eq.u64 %p0, %t2, 0;
{load}
AGAIN:
  @%p0 bra CLOCK;
  add.u64 %t6, %t1, %t4;
  ld.global.v4.f32 {{%f0, %f1, %f2, %f3}}, [%t6];
  st.global.v4.f32 [%t6], {{%f1, %f2, %f3, %f0}};
  add.u64 %t4, %t4, %t5;
  setp.ge.u64 %p2, %t4, %t2;
  @%p2 mul.wide.u32 %t4, %r4, 16;
CLOCK:
  mov.u64 %t6, %globaltimer;
  sub.u64 %t7, %t6, %t3;
  setp.lt.u64 %p1, %t7, %t0;
  @%p1 bra AGAIN;
  setp.eq.u64 %p1, %t0, 0;
{store}
  ret;
}}
"""


def ptx() -> bytes:
    """The kernel: what it loads first, and would store if it held SMs for no time, stays in
    registers."""
    load = [f"  ld.volatile.global.f32 %k{i}, [%t1+{4 * i}];" for i in range(KEPT)]
    store = [f"  @%p1 st.volatile.global.f32 [%t1+{4 * i}], %k{i};" for i in range(KEPT)]
    return PTX.format(
        threads=THREADS, kept=KEPT, load="\n".join(load), store="\n".join(store)
    ).encode()


class Holder:
    """Holds SMs on a stream of its own, in the context that JAX uses."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, module = ctypes.c_void_p(), ctypes.c_void_p()
        self.function, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.data = ctypes.c_uint64()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxSetCurrent", context)
        self._call("cuModuleLoadData", ctypes.byref(module), ptx())
        self._call("cuModuleGetFunction", ctypes.byref(self.function), module, b"hold")
        self._call("cuFuncSetAttribute", self.function, 8, SHARED_BYTES)
        least, most = ctypes.c_int(), ctypes.c_int()
        self._call("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(most))
        self._call("cuStreamCreateWithPriority", ctypes.byref(self.stream), 1, most)
        registers = ctypes.c_int()
        self._call("cuFuncGetAttribute", ctypes.byref(registers), 4, self.function)
        self.registers = registers.value
        self._call("cuMemAlloc_v2", ctypes.byref(self.data), ctypes.c_size_t(BUFFER_BYTES))

    def hold(self, sms: int, moving: bool) -> None:
        values = (
            ctypes.c_uint64(round(HOLD_S * 1e9)),
            self.data,
            ctypes.c_uint64(BUFFER_BYTES if moving else 0),
        )
        arguments = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
        shape = (sms, 1, 1, THREADS, 1, 1, SHARED_BYTES)
        self._call("cuLaunchKernel", self.function, *shape, self.stream, arguments, None)

    def wait(self) -> None:
        self._call("cuStreamSynchronize", self.stream)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.cuda, name)(*arguments)
        if code:
            raise SystemExit(f"{name} failed with CUDA error {code}")


@dataclass(frozen=True)
class Work:
    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)


def works() -> Iterator[Work]:
    """Products by size, attention, elementwise work and reductions."""

    def normal(*shape: int) -> Any:
        return jax.random.normal(jax.random.key(0), shape, jnp.bfloat16)

    def attention(x: Any) -> Any:
        return jax.nn.dot_product_attention(x, x, x, is_causal=True, implementation="cudnn")

    for m, n, k in ((2048, 2048, 2048), (8192, 3072, 768), (8192, 8192, 8192), (8192, 28672, 8192)):
        operands = (normal(m, k), normal(k, n))
        yield Work(f"product {m} {n} {k}", lambda a, b: a @ b, operands)
        yield Work(f"cuBLAS product {m} {n} {k}", lambda a, b: a @ b, operands, CUBLAS)
    yield Work("attention 4 4096 16 128", attention, (normal(4, 4096, 16, 128),))
    large = (normal(16384, 8192),)
    yield Work("elementwise", lambda x: jnp.tanh(x) + 1, large)
    yield Work("copy", lambda x: x + 1, large)
    yield Work("reduction of rows", lambda x: jnp.sum(x.astype(jnp.float32), 1), large)
    yield Work("reduction of columns", lambda x: jnp.sum(x.astype(jnp.float32), 0), large)


def device_us(run: Callable[[], None], calls: int) -> tuple[float, str]:
    """The median over calls of the time of all kernels but the holder's, and the longest one."""
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder)
        run()
        jax.profiler.stop_trace()
        events = load(folder).events
    rows = [i for i in range(len(events)) if events.text("instruction", i)]
    times = [int(events["duration_ps"][i]) / 1e6 for i in rows]
    each = len(times) // calls
    longest = events.text("name", rows[times.index(max(times))])
    sums = (sum(times[at : at + each]) for at in range(0, each * calls, each))
    return statistics.median(sums), longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("contention.json"))
    output = parser.parse_args().output
    jax.block_until_ready(jnp.zeros(8))  # creates the context
    holder = Holder()
    found = []
    for work in works():
        compiled = jax.jit(work.function).lower(*work.arguments).compile(work.options)
        compiled(*work.arguments).block_until_ready()

        def calls(
            compiled: Any = compiled,
            arguments: tuple[Any, ...] = work.arguments,
            sms: int = 0,
            moving: bool = False,
        ) -> None:
            if sms:
                holder.hold(sms, moving)
                time.sleep(0.002)  # it is on the device before the first kernel
            for _ in range(8):
                compiled(*arguments).block_until_ready()
            holder.wait()

        alone, kernel = device_us(calls, 8)
        for sms in SMS:
            for moving in (False, True):
                beside, _ = device_us(lambda: calls(sms=sms, moving=moving), 8)  # noqa: B023
                row = {"work": work.name, "kernel": kernel, "sms": sms, "moving": moving}
                found.append({**row, "alone_us": round(alone, 2), "beside_us": round(beside, 2)})
                print(json.dumps(found[-1]), flush=True)
    about = {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "registers": holder.registers,
    }
    output.write_text(json.dumps({**about, "rows": found}))


if __name__ == "__main__":
    main()
