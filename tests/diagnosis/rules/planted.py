"""Steps with one trouble each, and the same steps without it.

Programs are HLO text, events are what a recording of them could hold; times are in µs.
"""

from __future__ import annotations

from collections.abc import Sequence

from builders import STEP, ProfileBuilder, profile
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program
from slipstream.sources.hlo.reader import program_from_text

Event = tuple[str, float] | tuple[str, float, float]
"""instruction, µs, and µs that are hidden behind the event before it"""
STEPS = 3
LINE = 'source_file="model.py" source_line=7'


def program(*lines: str, others: str = "") -> Program:
    """A program of one computation; the last line is its root."""
    *first, last = lines
    body = "\n".join(f"  {line}" for line in (*first, f"ROOT {last}"))
    return program_from_text(
        f"HloModule jit_step, is_scheduled=true\n\n{others}\nENTRY main {{\n{body}\n}}\n"
    )


def recorded(found: Program, events: Sequence[Event], steps: int = STEPS) -> Profile:
    """A few steps of a program; collectives and copies on streams of their own."""
    built = profile().with_program(STEP, found)
    for _ in range(steps):
        for name, us, *hidden in events:
            _add(built, found, name, us, hidden[0] if hidden else 0.0)
        built.execution_of()
    return built.build()


def _add(built: ProfileBuilder, found: Program, name: str, us: float, hidden: float) -> None:
    instruction = found.instruction(name)
    if instruction.collective is not None:
        built.all_reduce(us, hidden, name)
    elif instruction.opcode == "copy-start":
        to_host = instruction.shape.elements[0].memory_space == 5
        kind = "MemcpyD2H" if to_host else "MemcpyH2D"
        built.kernel(name, us, kind, f"Stream #30({kind})", hidden=hidden)
    else:
        built.kernel(name, us, hidden=hidden)


# Attention.

HEADS, TOKENS, HEAD = 64, 2048, 128
_SCORES = f"bf16[{HEADS},{TOKENS},{TOKENS}]{{2,1,0}}"
_VALUES = f"bf16[{HEADS},{TOKENS},{HEAD}]{{2,1,0}}"
_SOFTMAX = f"""\
%max (a: bf16[], b: bf16[]) -> bf16[] {{
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %m = bf16[] maximum(%a, %b)
}}

%softmax (s: {_SCORES}) -> {_SCORES} {{
  %s = {_SCORES} parameter(0)
  %low = bf16[] constant(-inf)
  %most = bf16[{HEADS},{TOKENS}]{{1,0}} reduce(%s, %low), dimensions={{2}}, to_apply=%max
  %wide = {_SCORES} broadcast(%most), dimensions={{0,1}}
  %less = {_SCORES} subtract(%s, %wide)
  ROOT %exp = {_SCORES} exponential(%less)
}}
"""


def attention() -> Profile:
    """q kᵀ, a softmax and a product with v, each through memory."""
    found = program(
        f"q = {_VALUES} parameter(0)",
        f"dot.1 = {_SCORES} dot(q, q), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, "
        f"lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}, metadata={{{LINE}}}",
        f"fusion.1 = {_SCORES} fusion(dot.1), kind=kInput, calls=%softmax, metadata={{{LINE}}}",
        f"dot.2 = {_VALUES} dot(fusion.1, q), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={1}",
        others=_SOFTMAX,
    )
    return recorded(found, [("dot.1", 400), ("fusion.1", 600), ("dot.2", 400)])


def fused_attention() -> Profile:
    """The same by one call of cuDNN."""
    found = program(
        f"q = {_VALUES} parameter(0)",
        f"custom-call.1 = ({_VALUES}, u8[0]{{0}}) custom-call(q, q, q), "
        'custom_call_target="__cudnn$fmhaSoftmax"',
    )
    return recorded(found, [("custom-call.1", 300)])


# Wrong results.


def summed(flat: str) -> Profile:
    """Gradients of two types in one all-reduce; `flat` is what the second is laid there as."""
    size = 1024 if flat == "f32" else 512
    found = program(
        "final = f32[512]{0} parameter(0)",
        "scale = bf16[2,512]{1,0} parameter(1)",
        f"bitcast.1 = f32[{size}]{{0}} bitcast(scale), metadata={{{LINE}}}",
        f"fusion.1 = f32[{size}]{{0}} fusion(bitcast.1), kind=kLoop, calls=%doubled",
        f"all-reduce.1 = f32[{size}]{{0}} all-reduce(fusion.1), replica_groups={{{{0,1}}}}, "
        "to_apply=%sum",
        others=f"""\
%sum (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}}

%doubled (d: f32[{size}]) -> f32[{size}] {{
  %d = f32[{size}]{{0}} parameter(0)
  ROOT %e = f32[{size}]{{0}} add(%d, %d)
}}
""",
    )
    return recorded(found, [("fusion.1", 1000), ("all-reduce.1", 2)])


# Matrix products.


def products(dtype: str, precision: str = "") -> Profile:
    """Two large products in one type."""
    shape = f"{dtype}[8192,8192]{{1,0}}"
    asks = f", operand_precision={{{precision},{precision}}}" if precision else ""
    dims = f"lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{asks}"
    found = program(
        f"p = {shape} parameter(0)",
        f"dot.1 = {shape} dot(p, p), {dims}, metadata={{{LINE}}}",
        f"dot.2 = {shape} dot(dot.1, p), {dims}",
    )
    return recorded(found, [("dot.1", 3000), ("dot.2", 3000)])


def mixed_products() -> Profile:
    """Products of bfloat16, and one of float32 among them."""
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    found = program(
        "p = bf16[8192,8192]{1,0} parameter(0)",
        "f = f32[8192,8192]{1,0} parameter(1)",
        f"dot.1 = bf16[8192,8192]{{1,0}} dot(p, p), {dims}",
        f"dot.2 = f32[8192,8192]{{1,0}} dot(f, f), {dims}, metadata={{{LINE}}}",
        "tuple.1 = (bf16[8192,8192]{1,0}, f32[8192,8192]{1,0}) tuple(dot.1, dot.2)",
    )
    return recorded(found, [("dot.1", 1500), ("dot.2", 3000)])


def odd_products(columns: int, rows: int = 8192) -> Profile:
    """A product whose result has so many rows and columns."""
    found = program(
        f"x = bf16[{rows},8192]{{1,0}} parameter(0)",
        f"w = bf16[8192,{columns}]{{1,0}} parameter(1)",
        f"dot.1 = bf16[{rows},{columns}]{{1,0}} dot(x, w), lhs_contracting_dims={{1}}, "
        f"rhs_contracting_dims={{0}}, metadata={{{LINE}}}",
    )
    return recorded(found, [("dot.1", 12000)])


# Data movement.


def moved(work: str, us: float) -> Profile:
    """A product, and a kernel that only moves its result."""
    shape = "bf16[8192,8192]{1,0}"
    found = program(
        f"p = {shape} parameter(0)",
        f"dot.1 = {shape} dot(p, p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
        f"{work}, metadata={{{LINE}}}",
    )
    return recorded(found, [("dot.1", 1500), ("moved.1", us)])


TRANSPOSE = "moved.1 = bf16[8192,8192]{1,0} transpose(dot.1), dimensions={1,0}"
RELAYOUT = "moved.1 = bf16[8192,8192]{0,1} copy(dot.1)"
KEPT = "moved.1 = bf16[8192,8192]{1,0} copy(dot.1)"
CONVERT = "moved.1 = f32[8192,8192]{1,0} convert(dot.1)"
NEGATE = "moved.1 = bf16[8192,8192]{1,0} negate(dot.1)"


def resharded(kind: str = "all-to-all", name: str = "mul", us: float = 900) -> Profile:
    """Activations that are split along 0, and then along 2 or not at all."""
    lines = [
        "x = bf16[8,2048,4096]{2,1,0} parameter(0)",
        "negate.1 = bf16[8,2048,4096]{2,1,0} negate(x)",
    ]
    said = f'metadata={{op_name="jit(f)/jvp(f)/{name}" {LINE}}}'
    if kind == "all-to-all":
        lines += [
            "bitcast.1 = bf16[8,2048,2,2048]{3,2,1,0} bitcast(negate.1)",
            "all-to-all.1 = bf16[8,2048,2,2048]{3,2,1,0} all-to-all(bitcast.1), "
            f"replica_groups={{{{0,1}}}}, dimensions={{2}}, {said}",
            "moved.1 = bf16[16,2048,2048]{2,1,0} custom-call(all-to-all.1), "
            'custom_call_target="mine"',
        ]
    else:
        lines += [
            "all-gather.1 = bf16[16,2048,4096]{2,1,0} all-gather(negate.1), "
            f"replica_groups={{{{0,1}}}}, dimensions={{0}}, {said}",
            "moved.1 = bf16[16,2048,4096]{2,1,0} custom-call(all-gather.1), "
            'custom_call_target="mine"',
        ]
    return recorded(program(*lines), [("negate.1", 1000), (f"{kind}.1", us), ("moved.1", 1000)])


# Calls of Python.


def callbacks(us: float) -> Profile:
    """A step that calls Python for `us`: a copy to the host, the call, and a copy back."""
    found = program(
        "p = bf16[8192]{0} parameter(0)",
        "negate.1 = bf16[8192]{0} negate(p)",
        "callback.1 = bf16[8192]{0} custom-call(negate.1), "
        f'custom_call_target="xla_ffi_python_gpu_callback", metadata={{{LINE}}}',
        "negate.2 = bf16[8192]{0} negate(callback.1)",
    )
    built = profile().with_program(STEP, found)
    for _ in range(STEPS):
        built.kernel("negate.1", 1000)
        built.kernel("callback.1", 5, "MemcpyD2H", "Stream #30(MemcpyD2H)").idle(us)
        built.kernel("callback.1", 5, "MemcpyH2D", "Stream #31(MemcpyH2D)")
        built.kernel("negate.2", 1000).execution_of()
    return built.build()


def remat(rows: int = 8192, again: bool = True) -> Profile:
    """A product that the backward pass does again, or not; `rows` make it large."""
    shape, weight = f"bf16[{rows},8192]{{1,0}}", "bf16[8192,8192]{1,0}"
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    path = "jit(f)/transpose(jvp(f))/checkpoint/rematted_computation" if again else "jit(f)/jvp(f)"
    found = program(
        f"x = {shape} parameter(0)",
        f"w = {weight} parameter(1)",
        f'dot.1 = {shape} dot(x, w), {dims}, metadata={{op_name="jit(f)/jvp(f)/dot_general"}}',
        f'dot.2 = {shape} dot(x, w), {dims}, metadata={{op_name="{path}/dot_general" {LINE}}}',
        f'add.1 = {shape} add(dot.1, dot.2), metadata={{op_name="jit(f)/transpose(jvp(f))/add"}}',
    )
    return recorded(found, [("dot.1", 2000), ("dot.2", 2000), ("add.1", 100)])


# Copies to the host.


def offloaded(size: int = 256 << 20, compute: float = 1000.0, wait: float = 5000.0) -> Profile:
    """A value goes to host memory and comes back, and the step waits for it."""
    count = size // 4
    host, device = f"f32[{count}]{{0:S(5)}}", f"f32[{count}]{{0}}"
    found = program(
        f"p = {device} parameter(0)",
        f"add.1 = {device} add(p, p)",
        f"copy-start.1 = ({host}, {device}, u32[]) copy-start(add.1), metadata={{{LINE}}}",
        f"copy-done.1 = {host} copy-done(copy-start.1)",
        f"copy-start.2 = ({device}, {host}, u32[]) copy-start(copy-done.1), metadata={{{LINE}}}",
        f"copy-done.2 = {device} copy-done(copy-start.2)",
        f"add.2 = {device} add(copy-done.2, p)",
    )
    events = [("add.1", compute), ("copy-start.1", wait), ("copy-start.2", wait)]
    return recorded(found, [*events, ("add.2", compute)])


_COPY = """\
%slice (p: f32[67108864]) -> f32[67108864] {
  %p = f32[67108864]{0} parameter(0)
  ROOT %s = f32[67108864]{0:S(5)} slice(%p), slice={[0:67108864]}
}
"""


def captured(is_captured: bool) -> Profile:
    """A copy to the host that six products could hide, inside a CUDA graph or outside."""
    shape, value = "bf16[8192,8192]{1,0}", "f32[67108864]{0}"
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    lines = [f"p = {shape} parameter(0)", f"v = {value} parameter(1)"]
    lines += [
        f"copy-begin.1 = (({value}), {value[:-1]}:S(5)}}, u32[]) fusion-start(v), kind=kLoop, "
        f"calls=%slice, metadata={{{LINE}}}",
        *(f"dot.{i} = {shape} dot({f'dot.{i - 1}' if i else 'p'}, p), {dims}" for i in range(6)),
        f"copy-end.1 = {value[:-1]}:S(5)}} fusion-done(copy-begin.1)",
        f"all.1 = ({shape}, {value[:-1]}:S(5)}}) tuple(dot.5, copy-end.1)",
    ]
    found = program(*lines, others=_COPY)
    built = profile().with_program(STEP, found)
    for _ in range(STEPS):
        graph = "command_buffer" if is_captured else ""
        lane = "Stream #14(Compute)" if is_captured else "Stream #30(MemcpyD2H)"
        built.kernel(graph or "copy-begin.1", 4000, "MemcpyD2H", lane, instruction="copy-begin.1")
        if not is_captured:
            built.idle(-4000)
        for i in range(6):
            built.kernel(graph or f"dot.{i}", 1500, f"gemm_{i}", instruction=f"dot.{i}")
        built.execution_of()
    return built.build()


# Collectives.

_REDUCER = """\
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}
"""


def gathers(count: int, mib: int = 1, us: float = 40.0) -> Profile:
    """So many all-gathers of so many MiB, of weights that are all there when the step begins."""
    shard, whole = f"bf16[{mib << 18}]{{0}}", f"bf16[{mib << 19}]{{0}}"
    lines = [f"p{i} = {shard} parameter({i})" for i in range(count)]
    for i in range(count):
        lines += [
            f"all-gather-start.{i} = ({shard}, {whole}) all-gather-start(p{i}), "
            f"replica_groups={{{{0,1}}}}, dimensions={{0}}, metadata={{{LINE}}}",
            f"all-gather-done.{i} = {whole} all-gather-done(all-gather-start.{i})",
        ]
    taken = ", ".join(f"all-gather-done.{i}" for i in range(count))
    lines += [f'fusion.1 = {whole} custom-call({taken}), custom_call_target="mine"']
    events = [(f"all-gather-start.{i}", us) for i in range(count)]
    return recorded(program(*lines), [*events, ("fusion.1", 800)])


def synchronous(count: int, is_sync: bool) -> Profile:
    """All-reduces one after the other, each before a product that does not need it."""
    shape = "bf16[2048,2048]{1,0}"
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    lines, events = [f"p = {shape} parameter(0)"], []
    end = "" if is_sync else "-start"
    for i in range(count):
        # Each needs the one before it, so that they can't be combined.
        before = "p" if i == 0 else f"all-reduce.{i - 1}" if is_sync else f"done.{i - 1}"
        lines.append(
            f"all-reduce{end}.{i} = {shape} all-reduce{end}({before}), "
            f"replica_groups={{{{0,1}}}}, to_apply=%sum, metadata={{{LINE}}}"
        )
        lines.append(f"dot.{i} = {shape} dot(p, p), {dims}")
        events += [(f"all-reduce{end}.{i}", 100.0), (f"dot.{i}", 100.0)]
        if not is_sync:
            lines.append(f"done.{i} = {shape} all-reduce-done(all-reduce-start.{i})")
            events[-1] = (f"dot.{i}", 100.0, 100.0)
    last = f"all-reduce.{count - 1}" if is_sync else f"done.{count - 1}"
    taken = ", ".join(f"dot.{i}" for i in range(count))
    lines.append(f'fusion.1 = {shape} custom-call({last}, {taken}), custom_call_target="mine"')
    return recorded(program(*lines, others=_REDUCER), [*events, ("fusion.1", 10.0)])


def late_gather(us: float, early: bool = False) -> Profile:
    """A collective that is needed right after it, begun late, though its input was there."""
    shard, whole = "bf16[4194304]{0}", "bf16[8388608]{0}"
    start = (
        f"all-gather-start.1 = ({shard}, {whole}) all-gather-start(p), "
        f"replica_groups={{{{0,1}}}}, dimensions={{0}}, metadata={{{LINE}}}"
    )
    compute = f"negate.1 = {shard} negate(p)"
    first = (start, compute) if early else (compute, start)
    found = program(
        f"p = {shard} parameter(0)",
        *first,
        f"all-gather-done.1 = {whole} all-gather-done(all-gather-start.1)",
        f"add.1 = {whole} add(all-gather-done.1, all-gather-done.1)",
    )
    events: list[Event] = [("negate.1", 1000), ("all-gather-start.1", us), ("add.1", 100)]
    if early:
        events[1] = ("all-gather-start.1", us, 1000)
    return recorded(found, events)


def straggling(late: float) -> Profile:
    """Six steps of two hosts, of which the second comes `late` µs later to an all-gather."""
    found = program(
        "p = bf16[1000,1000]{1,0} parameter(0)",
        "dot.1 = bf16[1000,1000]{1,0} dot(p, p), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}",
        "all-gather.1 = bf16[2000,1000]{1,0} all-gather(dot.1), replica_groups={{0,1}}, "
        "dimensions={0}",
    )
    built = profile().with_program(STEP, found)
    for number, work in enumerate((1000.0, 1000.0 + late)):
        if number:
            built.host("other").device("GPU:1").execution_of()
        for step in range(6):
            built.at(2000 * step).kernel("dot.1", work)
            built.all_reduce(2000 * step + 1002 + late - built.devices[-1].at, op="all-gather.1")
            built.execution_of()
    return built.build()


# Copies of no program.


def transfers(us: float) -> Profile:
    """Three steps, each of which begins with a copy of its input to the device."""
    built = profile()
    for _ in range(STEPS):
        # Launches of copies outside programs have a range of their own, without a program.
        built.kernel("copy", us, "MemcpyH2D", "Stream #30(MemcpyH2D)", instruction="")
        built.kernel("dot.1", 1000).execution_of()
    return built.build()


# Idle time.


def idle(us: float, *doing: str, launch: float = 1.0) -> Profile:
    """Three steps of two kernels; before the second the host is busy with `doing` for `us`."""
    built = profile()
    for step in range(STEPS):
        at, first = step * (1000 + us), 2 * step + 1
        built.at(at).launch(first, at=at - 3).kernel("dot.1", 500, correlation=first)
        for name in doing:
            built.host_event(name, at + 500, us - 5)
        built.idle(us).launch(first + 1, at=at + 500 + us - 5)
        built.kernel("dot.2", 500, correlation=first + 1).execution_of()
    return built.build()
