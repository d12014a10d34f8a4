"""Profiling: which program uses the GPU's counters, and what a profile would show."""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.doctor.machine_facts import NSIGHT, MachineFacts, is_false, is_true
from slipstream.doctor.problems import ERROR, WARNING, Problem

_NSIGHT_VARIABLES = ("NSYS_PROFILING_SESSION_ID", "NSYS_TARGET", "NVTX_INJECTION64_PATH")


def profiling_rules(facts: MachineFacts) -> Iterator[Problem]:
    """All rules about profiling and PGLE."""
    for rule in (_cupti, _nsight, _command_buffers, _cache):
        yield from rule(facts)


def _cupti(facts: MachineFacts) -> Iterator[Problem]:
    monitors = [name for name in facts.processes or () if name not in NSIGHT]
    if monitors:
        yield Problem(
            "cupti-held", ERROR if _will_profile(facts) else WARNING,
            f"{', '.join(monitors)} is running and may use the GPU's counters (CUPTI)",
            "only one program can use them: profiles are empty, and PGLE has no costs",
            "dcgmi profile --pause   # after the run: dcgmi profile --resume",
        )  # fmt: skip


def _nsight(facts: MachineFacts) -> Iterator[Problem]:
    if not _under_nsight(facts):
        return
    if is_true(facts.environment.get("JAX_ENABLE_PGLE")):
        yield Problem(
            "nsight-pgle", ERROR, "Nsight is attached and JAX_ENABLE_PGLE is on",
            "PGLE uses the JAX profiler, which records nothing while Nsight uses CUPTI: PGLE "
            "recompiles with an empty profile",
            "unset JAX_ENABLE_PGLE; export JAX_COMPILATION_CACHE_EXPECT_PGLE=yes",
        )  # fmt: skip
    elif facts.is_profiled:
        yield Problem(
            "nsight-profiler", ERROR, "Nsight is attached and the JAX profiler will run too",
            "only one of them can use CUPTI, and with Nsight attached XLA labels its kernels for "
            "Nsight only",
            "nsys profile --cuda-graph-trace=node python train.py   # without jax.profiler",
        )  # fmt: skip


def _command_buffers(facts: MachineFacts) -> Iterator[Problem]:
    flags = facts.xla_flags
    is_off = flags.get("xla_gpu_enable_command_buffer") == ""
    forced = is_true(flags.get("xla_enable_command_buffers_during_profiling"))
    if is_off or not (facts.is_profiled or _under_nsight(facts) or forced):
        return
    fix = "export XLA_FLAGS=\"$XLA_FLAGS --xla_gpu_enable_command_buffer=''\""
    if _under_nsight(facts):
        fix = "nsys profile --cuda-graph-trace=node …"
    yield Problem(
        "command-buffers", WARNING, "command buffers (CUDA graphs) stay on while profiling",
        "all their kernels are labelled command_buffer_N: JAX's cost extractor finds nothing "
        "(slipstream costs uses kernel names and their order)",
        fix,
    )  # fmt: skip


def _cache(facts: MachineFacts) -> Iterator[Problem]:
    environment = facts.environment
    if not is_true(environment.get("JAX_COMPILATION_CACHE_EXPECT_PGLE")):
        return
    if not environment.get("JAX_COMPILATION_CACHE_DIR"):
        yield Problem(
            "expect-pgle", ERROR, "JAX_COMPILATION_CACHE_EXPECT_PGLE is on, but there is no "
            "JAX_COMPILATION_CACHE_DIR",
            "there is no cache to load the PGLE-optimised program from; the run doesn't use PGLE, "
            "and only a log line says so",
            "export JAX_COMPILATION_CACHE_DIR=$HOME/jax_cache",
        )  # fmt: skip
    elif is_false(environment.get("JAX_ENABLE_COMPILATION_CACHE")):
        yield Problem(
            "expect-pgle", ERROR, "JAX_COMPILATION_CACHE_EXPECT_PGLE is on, but "
            "JAX_ENABLE_COMPILATION_CACHE is off",
            "the cache with the PGLE-optimised program isn't read",
            "unset JAX_ENABLE_COMPILATION_CACHE",
        )  # fmt: skip


def _will_profile(facts: MachineFacts) -> bool:
    return facts.is_profiled or is_true(facts.environment.get("JAX_ENABLE_PGLE"))


def _under_nsight(facts: MachineFacts) -> bool:
    if any(name in NSIGHT for name in facts.parents or ()):
        return True
    return any(name.startswith(_NSIGHT_VARIABLES) for name in facts.environment)
