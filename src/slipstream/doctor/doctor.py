"""`slipstream doctor`: rules over the facts about a machine, its environment and a program.

A rule is a function from facts to problems.  It ignores facts that aren't known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from slipstream.doctor.machine_facts import MachineFacts, is_false, number
from slipstream.doctor.nccl import nccl_rules
from slipstream.doctor.problems import ERROR, LEVELS, NOTE, WARNING, Problem
from slipstream.doctor.profiling import profiling_rules
from slipstream.doctor.tpu import tpu_rules
from slipstream.profile.program import Program
from slipstream.profile.semantics.float32_products import float32_matmuls

LEAST_DRIVER = {"jax-cuda12-plugin": (525, 60), "jax-cuda13-plugin": (580, 65)}
"""the oldest driver that supports the CUDA of each plugin"""
MULTI_HOST_SYSCTLS = {
    "net.ipv4.tcp_rmem": (4096, 41_943_040, 314_572_800),
    "net.ipv4.tcp_slow_start_after_idle": (0,),
    "net.ipv4.tcp_no_metrics_save": (1,),
    "net.core.optmem_max": (131_072,),
}
"""from Google's multi-slice recipes (AI-Hypercomputer); the Megascale guide gives no values"""
MOST_MATMULS = 5
"""maximum number of float32 matmuls that a problem names"""
LEAST_SHARE = 0.01
"""float32 matmuls with a smaller share of the program's operations are not reported"""

Rule = Callable[[MachineFacts], Iterator[Problem]]


def examine(facts: MachineFacts, program: Program | None = None) -> tuple[Problem, ...]:
    """All problems, worst first."""
    found = [problem for rule in RULES for problem in rule(facts)]
    if program is not None:
        found += _matmuls(program)
    return tuple(sorted(found, key=lambda problem: LEVELS.index(problem.level)))


# JAX and its plugin.


def _versions(facts: MachineFacts) -> Iterator[Problem]:
    packages = facts.packages
    jax, jaxlib = packages.get("jax"), packages.get("jaxlib")
    if jax is None or jaxlib is None:
        missing = "jax" if jax is None else "jaxlib"
        yield Problem(
            "no-jax", NOTE, f"{missing} is not installed in this Python",
            "profiles can be read without it, but programs can't be compiled or run",
            f"pip install 'jax[{'tpu' if facts.tpus else 'cuda13'}]'",
        )  # fmt: skip
        return
    if _release(jaxlib)[:3] > _release(jax)[:3]:
        yield Problem(
            "jax-jaxlib", ERROR, f"jaxlib {jaxlib} is newer than jax {jax}",
            "jax doesn't start with a jaxlib newer than itself",
            f"pip install 'jax[cuda13]=={jaxlib}'",
        )  # fmt: skip
    elif _release(jaxlib)[:2] < _release(jax)[:2]:
        yield Problem(
            "jax-jaxlib", WARNING, f"jaxlib {jaxlib} is older than jax {jax}",
            "jax requires a minimum jaxlib, and the available flags are those of jaxlib",
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
                    "plugin-version", ERROR, f"{part} {version} belongs to jaxlib {version}, "
                    f"not to jaxlib {jaxlib}",
                    "jax ignores a plugin of another version and runs on the CPU",
                    f"pip install '{part}=={jaxlib}'",
                )  # fmt: skip
    if len(plugins) > 1:
        surplus = next((one for one in plugins if not _has_libraries(one, packages)), plugins[0])
        yield Problem(
            "two-plugins", WARNING, f"{' and '.join(plugins)} are both installed",
            "which CUDA version a process gets depends on the order in which they are loaded",
            f"pip uninstall {surplus} {surplus.replace('plugin', 'pjrt')}",
        )  # fmt: skip
    if facts.gpus and not plugins and "jax" in packages:
        yield Problem(
            "no-plugin", ERROR, f"{_gpu_words(facts)} present, but jax has no CUDA plugin",
            "jax runs on the CPU and reports it in a single log line",
            "pip install 'jax[cuda13]'",
        )  # fmt: skip


def _has_libraries(plugin: str, packages: Mapping[str, str]) -> bool:
    """Whether CUDA's libraries for this plugin are installed, as `jax[cuda12]` does."""
    return plugin.replace("jax-cuda", "nvidia-nccl-cu").removesuffix("-plugin") in packages


def _drivers(facts: MachineFacts) -> Iterator[Problem]:
    gpus = facts.gpus or ()
    for plugin, least in LEAST_DRIVER.items():
        drivers = {gpu.driver for gpu in gpus if plugin in facts.packages}
        for driver in sorted(drivers):
            if _release(driver) and _release(driver) < least:
                yield Problem(
                    "driver", ERROR, f"the driver {driver} is older than {plugin} needs "
                    f"({least[0]}.{least[1]})",
                    "CUDA doesn't start with a driver older than its toolkit requires",
                    f"sudo apt-get install nvidia-open-{least[0]}"
                    if plugin.startswith("jax-cuda13")
                    else "sudo apt-get install cuda-drivers",
                )  # fmt: skip
    if len({gpu.name for gpu in gpus}) > 1:
        yield Problem(
            "mixed-gpus", WARNING, f"different GPU models: "
            f"{', '.join(sorted({gpu.name for gpu in gpus}))}",
            "a program on all of them runs at the speed of the slowest",
            "export CUDA_VISIBLE_DEVICES=<indices of one model, see: nvidia-smi -L>",
        )  # fmt: skip


def _nvlink(facts: MachineFacts) -> Iterator[Problem]:
    if facts.gpus and len(facts.gpus) > 1 and facts.links and not facts.has_nvlink:
        yield Problem(
            "no-nvlink", NOTE, f"{len(facts.gpus)} GPUs without NVLink between them",
            "collectives use PCIe, at a tenth of the speed: prefer data parallelism and large "
            "combine thresholds",
            "nvidia-smi topo -m",
        )  # fmt: skip
    elif facts.has_nvlink and not all(link.startswith("NV") for link in facts.links or ()):
        yield Problem(
            "some-nvlink", WARNING, "only some pairs of GPUs are connected by NVLink",
            "a collective over all GPUs runs at the speed of the slowest pair",
            "nvidia-smi topo -m",
        )  # fmt: skip
    if facts.inactive_nvlinks:
        yield Problem(
            "nvlink-down", WARNING, f"{facts.inactive_nvlinks} NVLinks are inactive",
            "collectives have less bandwidth",
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
        yield _fraction(ERROR, text, "it is not a fraction of the memory; jax fails on first use")
    elif fraction is not None and fraction > 1:
        yield _fraction(
            WARNING, text, "more than the GPU has: XLA pages to host memory, which is slow"
        )
    elif fraction is not None and fraction > 0.95:
        yield _fraction(WARNING, text, "NCCL, cuBLAS and CUDA graphs need memory outside the pool")
    elif fraction is not None and fraction < 0.5:
        yield _fraction(NOTE, text, "most of the GPU's memory stays unused")
    if is_false(environment.get("XLA_PYTHON_CLIENT_PREALLOCATE")):
        yield Problem(
            "no-preallocation", NOTE, "XLA_PYTHON_CLIENT_PREALLOCATE is off",
            "memory is allocated in pieces and fragments: large programs run out of it earlier",
            "unset XLA_PYTHON_CLIENT_PREALLOCATE",
        )  # fmt: skip
    if environment.get("XLA_PYTHON_CLIENT_ALLOCATOR", "").lower() == "platform":
        yield Problem(
            "platform-allocator", WARNING, "XLA_PYTHON_CLIENT_ALLOCATOR is platform",
            "every buffer needs a cudaMalloc and a cudaFree, which both wait for the GPU",
            "unset XLA_PYTHON_CLIENT_ALLOCATOR",
        )  # fmt: skip


def _fraction(level: str, value: str | None, why: str) -> Problem:
    what = f"XLA_PYTHON_CLIENT_MEM_FRACTION is {value}"
    return Problem("memory", level, what, why, "export XLA_PYTHON_CLIENT_MEM_FRACTION=0.9")


def _connections(facts: MachineFacts) -> Iterator[Problem]:
    is_for_tpus = facts.tpus or (facts.is_megascale and not facts.gpus)
    if is_for_tpus or (_visible(facts) < 2 and facts.hosts < 2):
        return
    value = facts.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    if value != "1":
        yield Problem(
            "connections", NOTE, f"CUDA_DEVICE_MAX_CONNECTIONS is {value or 'not set'}",
            "with 1, kernels start in the order in which XLA scheduled them, so that collectives "
            "aren't delayed; the LLM guide recommends it, but measure both",
            "export CUDA_DEVICE_MAX_CONNECTIONS=1",
        )  # fmt: skip


def _processes(facts: MachineFacts) -> Iterator[Problem]:
    visible = _visible(facts)
    tasks = _tasks(facts)
    if facts.environment.get("CUDA_VISIBLE_DEVICES") == "" and facts.gpus:
        yield Problem(
            "no-visible-gpu", ERROR, f"CUDA_VISIBLE_DEVICES is empty: it hides {_gpu_words(facts)}",
            "jax runs on the CPU",
            "unset CUDA_VISIBLE_DEVICES",
        )  # fmt: skip
    if tasks is None or visible < 1 or _is_one_each(facts):
        return
    if tasks > visible:
        yield Problem(
            "processes", ERROR, f"{tasks} processes per node for {visible} visible GPUs",
            "two processes share a GPU: NCCL fails with 'Duplicate GPU detected'",
            f"srun --ntasks-per-node={visible} …",
        )  # fmt: skip
    elif tasks == 1 < visible:
        yield Problem(
            "processes", NOTE, f"one process per node for {visible} GPUs",
            "one process per GPU can be faster, since each launches kernels for one GPU only; the "
            "JAX guide recommends it, but measure both",
            f"srun --ntasks-per-node={visible} …   # jax.distributed.initialize() detects it",
        )  # fmt: skip
    elif visible % tasks:
        yield Problem(
            "processes", ERROR, f"{tasks} processes per node can't share {visible} GPUs evenly",
            "some GPUs stay idle, and meshes can't be built",
            f"srun --ntasks-per-node={visible} …",
        )  # fmt: skip


def _is_one_each(facts: MachineFacts) -> bool:
    """Whether the launcher assigned one GPU to each process."""
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
        "tcp", WARNING, f"TCP settings are the kernel's defaults: {seen}",
        "traffic between hosts uses these buffers, and they are a frequent cause of slow "
        "Megascale transfers; the fix uses the values of Google's multi-slice recipes",
        f"sudo sysctl -w {settings}",
    )  # fmt: skip


def _falls_short(name: str, seen: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    if len(wanted) == 1 and wanted[0] < 2:
        return seen != wanted
    return any(have < want for have, want in zip(seen, wanted, strict=False))


RULES: tuple[Rule, ...] = (
    _versions, _plugins, _drivers, _nvlink, profiling_rules, _memory, _connections, nccl_rules,
    _processes, _tcp, tpu_rules,
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
        "since the A100, bfloat16 is at least twice as fast, with or without TF32, and needs half "
        "the memory traffic",
        "cast both operands: x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16); in Flax, "
        "nn.Dense(…, dtype=jnp.bfloat16)",
    )  # fmt: skip


# Helpers of several rules.


def _visible(facts: MachineFacts) -> int:
    shown = facts.environment.get("CUDA_VISIBLE_DEVICES")
    count = len(facts.gpus or ())
    return count if shown is None else min(count, len([d for d in shown.split(",") if d.strip()]))


def _gpu_words(facts: MachineFacts) -> str:
    count = len(facts.gpus or ())
    return "1 GPU is" if count == 1 else f"{count} GPUs are"


def _release(version: str) -> tuple[int, ...]:
    """`0.12.0.1` as numbers; any suffix (`.dev2025`, `+cuda`) is ignored."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
