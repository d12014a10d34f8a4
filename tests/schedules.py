"""Small scheduled programs as HLO text, and what their instructions cost."""

from slipstream.machines.machine import Estimate, Fabric, Gpu, Machine
from slipstream.profile.program import Program
from slipstream.simulate.overheads import Overheads
from slipstream.sources.hlo.reader import program_from_text

GPU = Gpu("Toy", "Toy GPU", (9, 0), 10**9, 1e12, {"bf16": 1e12, "f32": 1e11}, 100, 1e9, 1e11, 1e10)
MACHINE = Machine("2xToy", GPU, Fabric("infiniband", 1e10, 5.0), gpus_per_host=2)
NOTHING = Overheads(0, 0, 0, 0, 0, 0, 0, 0, contention=0)
"""no launch overhead, and no contention: times are the instructions' costs"""


def program(*lines: str, others: str = "", flags: dict[str, str] | None = None) -> Program:
    """A program whose entry has these instructions, in schedule order; `%a` is its parameter."""
    body = "\n".join(f"  {line}" for line in lines)
    text = (
        f"HloModule toy, is_scheduled=true\n\n{others}\n"
        f"ENTRY %main (a: f32[8]) -> f32[8] {{\n  %a = f32[8] parameter(0)\n{body}\n}}\n"
    )
    return program_from_text(text, flags=flags)


def kernel(name: str, operand: str, root: bool = False) -> str:
    return f"{'ROOT ' * root}%{name} = f32[8] negate(%{operand})"


def gather(name: str, operand: str, sync: bool = False) -> str:
    config = ', backend_config={"collective_backend_config":{"is_sync":true}}' if sync else ""
    return (
        f"%{name} = (f32[8], f32[16]) all-gather-start(%{operand}), replica_groups={{{{0,1}}}}, "
        f"dimensions={{0}}, channel_id=1{config}"
    )


def gathered(name: str, start: str) -> str:
    return f"%{name} = f32[16] all-gather-done(%{start})"


def to_host(name: str, operand: str) -> str:
    return f"%{name} = (f32[8]{{0:S(5)}}, f32[8], u32[]) copy-start(%{operand})"


def to_device(name: str, operand: str) -> str:
    return f"%{name} = (f32[8], f32[8]{{0:S(5)}}, u32[]) copy-start(%{operand})"


def within(name: str, operand: str) -> str:
    return f"%{name} = (f32[8], f32[8], u32[]) copy-start(%{operand})"


def copied(name: str, start: str, on_host: bool = False) -> str:
    return f"%{name} = f32[8]{{0{':S(5)' if on_host else ''}}} copy-done(%{start})"


def costs(basis: str = "measured", **us: float) -> dict[str, Estimate]:
    """Microseconds by name; `_` in a keyword stands for `-`."""
    return {name.replace("_", "-"): Estimate(time, basis) for name, time in us.items()}
