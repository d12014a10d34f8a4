"""`slipstream doctor`: rules over what is known of a machine, its environment and a program.

A rule is a function from facts to findings.  It says nothing about what isn't known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from slipstream.doctor.machine_facts import MachineFacts, is_false, number
from slipstream.doctor.nccl import nccl_rules
from slipstream.doctor.problems import ERROR, LEVELS, NOTE, WARNING, Problem
from slipstream.doctor.profiling import profiling_rules
from slipstream.profile.program import Program
from slipstream.profile.semantics.float32_products import float32_matmuls

LEAST_DRIVER = {"jax-cuda12-plugin": (525, 60), "jax-cuda13-plugin": (580, 65)}
"""the first driver that runs what the plugin was built with"""
MULTI_HOST_SYSCTLS = {
    "net.ipv4.tcp_rmem": (4096, 41_943_040, 314_572_800),
    "net.ipv4.tcp_slow_start_after_idle": (0,),
    "net.ipv4.tcp_no_metrics_save": (1,),
    "net.core.optmem_max": (131_072,),
}
"""what Google's multi-slice recipes (AI-Hypercomputer) set; the Megascale guide names no values"""
MOST_MATMULS = 5
"""how many float32 matmuls a finding names"""
LEAST_SHARE = 0.01
"""float32 matmuls with less of the program's operations are left alone"""

Rule = Callable[[MachineFacts], Iterator[Problem]]


def examine(facts: MachineFacts, program: Program | None = None) -> tuple[Problem, ...]:
    """What is wrong, worst first."""
    found = [finding for rule in RULES for finding in rule(facts)]
    if program is not None:
        found += _matmuls(program)
    return tuple(sorted(found, key=lambda finding: LEVELS.index(finding.level)))


# JAX and its plugin.


def _versions(facts: MachineFacts) -> Iterator[Problem]:
    packages = facts.packages
    jax, jaxlib = packages.get("jax"), packages.get("jaxlib")
    if jax is None or jaxlib is None:
        missing = "jax" if jax is None else "jaxlib"
        yield Problem(
            "no-jax", NOTE, f"{missing} is not installed in this Python",
            "profiles can be read without it, but nothing can be compiled or run",
            "pip install 'jax[cuda13]'",
        )  # fmt: skip
        return
    if _release(jaxlib)[:3] > _release(jax)[:3]:
        yield Problem(
            "jax-jaxlib", ERROR, f"jaxlib {jaxlib} is newer than jax {jax}",
            "jax refuses to start with a jaxlib newer than itself",
            f"pip install 'jax[cuda13]=={jaxlib}'",
        )  # fmt: skip
    elif _release(jaxlib)[:2] < _release(jax)[:2]:
        yield Problem(
            "jax-jaxlib", WARNING, f"jaxlib {jaxlib} is older than jax {jax}",
            "jax takes only jaxlibs from its own minimum on, and its flags follow jaxlib",
            f"pip install 'jaxlib=={jax}'",
        )  # fmt: skip


def _plugins(facts: MachineFacts) -> Iterator[Problem]:
    packages = facts.packages
    plugins = [name for name in packages if re.fullmatch(r"jax-cuda\d+-plugin", name)]
    jaxlib = packages.get("jaxlib")
    for name in plugins:
        for part in (name, name.replace("plugin", "pjrt")):
            version = packages.get(part)
            if version and jaxlib and _release(version)[:3] != _release(jaxlib)[:3]:
                yield Problem(
                    "plugin-version", ERROR, f"{part} {version} goes with jaxlib {version}, "
                    f"not with jaxlib {jaxlib}",
                    "jax ignores a plugin of another version and computes on the CPU",
                    f"pip install '{part}=={jaxlib}'",
                )  # fmt: skip
    if len(plugins) > 1:
        yield Problem(
            "two-plugins", WARNING, f"{' and '.join(plugins)} are both installed",
            "which CUDA a process gets then depends on the order they load in",
            f"pip uninstall {plugins[0]} {plugins[0].replace('plugin', 'pjrt')}",
        )  # fmt: skip
    if facts.gpus and not plugins and "jax" in packages:
        yield Problem(
            "no-plugin", ERROR, f"{_gpu_words(facts)} here, but jax has no CUDA plugin",
            "jax computes on the CPU and says so in one log line only",
            "pip install 'jax[cuda13]'",
        )  # fmt: skip


def _drivers(facts: MachineFacts) -> Iterator[Problem]:
    gpus = facts.gpus or ()
    for plugin, least in LEAST_DRIVER.items():
        drivers = {gpu.driver for gpu in gpus if plugin in facts.packages}
        for driver in sorted(drivers):
            if _release(driver) and _release(driver) < least:
                yield Problem(
                    "driver", ERROR, f"the driver {driver} is older than {plugin} needs "
                    f"({least[0]}.{least[1]})",
                    "CUDA refuses to start with a driver older than its toolkit",
                    f"sudo apt-get install nvidia-open-{least[0]}"
                    if plugin.startswith("jax-cuda13")
                    else "sudo apt-get install cuda-drivers",
                )  # fmt: skip
    if len({gpu.name for gpu in gpus}) > 1:
        yield Problem(
            "mixed-gpus", WARNING, f"GPUs of several kinds: "
            f"{', '.join(sorted({gpu.name for gpu in gpus}))}",
            "one program for all of them runs at the pace of the slowest",
            "export CUDA_VISIBLE_DEVICES=<indices of one kind, see: nvidia-smi -L>",
        )  # fmt: skip


def _nvlink(facts: MachineFacts) -> Iterator[Problem]:
    if facts.gpus and len(facts.gpus) > 1 and facts.links and not facts.has_nvlink:
        yield Problem(
            "no-nvlink", NOTE, f"{len(facts.gpus)} GPUs without NVLink between them",
            "collectives go over PCIe, at a tenth of the speed: prefer data parallelism, and "
            "large combine thresholds",
            "nvidia-smi topo -m",
        )  # fmt: skip
    elif facts.has_nvlink and not all(link.startswith("NV") for link in facts.links or ()):
        yield Problem(
            "some-nvlink", WARNING, "some pairs of GPUs have NVLink between them, others none",
            "a collective over all of them goes at the speed of the slowest pair",
            "nvidia-smi topo -m",
        )  # fmt: skip
    if facts.inactive_nvlinks:
        yield Problem(
            "nvlink-down", WARNING, f"{facts.inactive_nvlinks} NVLinks are inactive",
            "collectives have that much less bandwidth",
            "nvidia-smi nvlink -s && sudo systemctl restart nvidia-fabricmanager",
        )  # fmt: skip


# Memory, queues, processes.


def _memory(facts: MachineFacts) -> Iterator[Problem]:
    environment = facts.environment
    text = environment.get("XLA_PYTHON_CLIENT_MEM_FRACTION") or environment.get(
        "XLA_CLIENT_MEM_FRACTION"
    )
    fraction = number(text)
    if text is not None and (fraction is None or fraction <= 0):
        yield _fraction(ERROR, text, "it is no share of the memory; jax stops at the first use")
    elif fraction is not None and fraction > 1:
        yield _fraction(WARNING, text, "more than there is: it pages to host memory, slowly")
    elif fraction is not None and fraction > 0.95:
        yield _fraction(WARNING, text, "NCCL, cuBLAS and CUDA graphs need room outside the pool")
    elif fraction is not None and fraction < 0.5:
        yield _fraction(NOTE, text, "most of the GPU's memory stays unused")
    if is_false(environment.get("XLA_PYTHON_CLIENT_PREALLOCATE")):
        yield Problem(
            "no-preallocation", NOTE, "XLA_PYTHON_CLIENT_PREALLOCATE is off",
            "memory is taken piece by piece and breaks up: large programs run out of it earlier",
            "unset XLA_PYTHON_CLIENT_PREALLOCATE",
        )  # fmt: skip
    if environment.get("XLA_PYTHON_CLIENT_ALLOCATOR", "").lower() == "platform":
        yield Problem(
            "platform-allocator", WARNING, "XLA_PYTHON_CLIENT_ALLOCATOR is platform",
            "every buffer is a cudaMalloc and a cudaFree, and both wait for the GPU",
            "unset XLA_PYTHON_CLIENT_ALLOCATOR",
        )  # fmt: skip


def _fraction(level: str, value: str | None, why: str) -> Problem:
    what = f"XLA_PYTHON_CLIENT_MEM_FRACTION is {value}"
    return Problem("memory", level, what, why, "export XLA_PYTHON_CLIENT_MEM_FRACTION=0.9")


def _connections(facts: MachineFacts) -> Iterator[Problem]:
    if _visible(facts) < 2 and facts.hosts < 2:
        return
    value = facts.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    if value != "1":
        yield Problem(
            "connections", NOTE, f"CUDA_DEVICE_MAX_CONNECTIONS is {value or 'not set'}",
            "with 1, kernels start in the order in which XLA scheduled them, so that a collective "
            "isn't late; the LLM guide recommends it, and it is worth measuring both",
            "export CUDA_DEVICE_MAX_CONNECTIONS=1",
        )  # fmt: skip


def _processes(facts: MachineFacts) -> Iterator[Problem]:
    visible = _visible(facts)
    tasks = _tasks(facts)
    if facts.environment.get("CUDA_VISIBLE_DEVICES") == "" and facts.gpus:
        yield Problem(
            "no-visible-gpu", ERROR, f"CUDA_VISIBLE_DEVICES is empty: it hides {_gpu_words(facts)}",
            "jax computes on the CPU",
            "unset CUDA_VISIBLE_DEVICES",
        )  # fmt: skip
    if tasks is None or visible < 1 or _is_one_each(facts):
        return
    if tasks > visible:
        yield Problem(
            "processes", ERROR, f"{tasks} processes a node for {visible} visible GPUs",
            "two processes on one GPU: NCCL refuses with 'Duplicate GPU detected'",
            f"srun --ntasks-per-node={visible} …",
        )  # fmt: skip
    elif tasks == 1 < visible:
        yield Problem(
            "processes", NOTE, f"one process a node for {visible} GPUs",
            "one process a GPU can be faster, since each launches for one GPU only; the JAX guide "
            "recommends it, and to measure both",
            f"srun --ntasks-per-node={visible} …   # jax.distributed.initialize() understands it",
        )  # fmt: skip
    elif visible % tasks:
        yield Problem(
            "processes", ERROR, f"{tasks} processes a node can't share {visible} GPUs evenly",
            "some GPUs stay idle, and meshes don't come out",
            f"srun --ntasks-per-node={visible} …",
        )  # fmt: skip


def _is_one_each(facts: MachineFacts) -> bool:
    """Whether the launcher gave this process one GPU of its own."""
    shown = facts.environment.get("CUDA_VISIBLE_DEVICES")
    return bool(shown) and "," not in str(shown) and (_tasks(facts) or 1) > 1


def _tasks(facts: MachineFacts) -> int | None:
    for name in (
        "SLURM_NTASKS_PER_NODE",
        "SLURM_STEP_TASKS_PER_NODE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ):
        # Slurm writes `8(x2)` for eight tasks on each of two nodes.
        if match := re.match(r"\d+", facts.environment.get(name, "")):
            return int(match[0])
    return None


def _tcp(facts: MachineFacts) -> Iterator[Problem]:
    if facts.hosts < 2 and not facts.is_megascale:
        return
    wrong = {
        name: wanted
        for name, wanted in MULTI_HOST_SYSCTLS.items()
        if name in facts.sysctls and _falls_short(name, facts.sysctls[name], wanted)
    }
    if not wrong or (facts.infiniband and not facts.is_megascale):
        return
    seen = ", ".join(f"{name} is {' '.join(map(str, facts.sysctls[name]))}" for name in wrong)
    settings = " ".join(f"{name}='{' '.join(map(str, values))}'" for name, values in wrong.items())
    yield Problem(
        "tcp", WARNING, f"TCP as the kernel came: {seen}",
        "traffic between hosts goes through these buffers, and high latencies of Megascale's "
        "transfers are often just this; the values are those of Google's multi-slice recipes",
        f"sudo sysctl -w {settings}",
    )  # fmt: skip


def _falls_short(name: str, seen: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    if len(wanted) == 1 and wanted[0] < 2:
        return seen != wanted
    return any(have < want for have, want in zip(seen, wanted, strict=False))


RULES: tuple[Rule, ...] = (
    _versions, _plugins, _drivers, _nvlink, profiling_rules, _memory, _connections, nccl_rules,
    _processes, _tcp,
)  # fmt: skip


# A program.


def _matmuls(program: Program) -> Iterator[Problem]:
    found = float32_matmuls(program)
    share = sum(matmul.share for matmul in found)
    if share < LEAST_SHARE:
        return
    names = "; ".join(
        f"{m.name} ({m.source or m.op_name or 'no source'}), {m.share:.1%}"
        for m in found[:MOST_MATMULS]
    )
    more = f"; {len(found) - MOST_MATMULS} more" if len(found) > MOST_MATMULS else ""
    yield Problem(
        "float32-matmuls", WARNING,
        f"{len(found)} {'matmul' if len(found) == 1 else 'matmuls'} in float32, {share:.0%} of "
        f"the program's operations: {names}{more}",
        "since the A100, bfloat16 is at least twice as fast, TF32 or not, and takes half the "
        "memory traffic",
        "cast both operands: x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16); in Flax, "
        "nn.Dense(…, dtype=jnp.bfloat16)",
    )  # fmt: skip


# What several rules ask.


def _visible(facts: MachineFacts) -> int:
    shown = facts.environment.get("CUDA_VISIBLE_DEVICES")
    count = len(facts.gpus or ())
    return count if shown is None else min(count, len([d for d in shown.split(",") if d.strip()]))


def _gpu_words(facts: MachineFacts) -> str:
    count = len(facts.gpus or ())
    return "1 GPU is" if count == 1 else f"{count} GPUs are"


def _release(version: str) -> tuple[int, ...]:
    """`0.12.0.1` as numbers; what comes after them (`.dev2025`, `+cuda`) doesn't count."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
