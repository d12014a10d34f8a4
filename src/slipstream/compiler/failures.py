"""Errors for requests that a worker could not fulfil, each with its fix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from slipstream.compiler.cache import cache_folder, digest
from slipstream.compiler.targets import Target
from slipstream.compiler.worker.process import WorkerFailed
from slipstream.did_you_mean import did_you_mean
from slipstream.errors import BadInput, Missing, SlipstreamError
from slipstream.flags.catalogue.catalogue import SIMILAR
from slipstream.flags.catalogue.libtpu import libtpu_catalogue
from slipstream.jaxhooks.jax_types import is_out_of_memory
from slipstream.machines.machine import Machine
from slipstream.machines.tpus import slices_with

_STATUS = re.compile(r"^(?:jax\.errors\.)?(?:JaxRuntimeError|XlaRuntimeError): (?:[A-Z_]+: )?")
_UNKNOWN_FLAG = re.compile(r"Unknown flags? in XLA_FLAGS: ([^\n]+)")
_BYTES = re.compile(r"(?:allocate|requires|exceeds|needs)[^\d]{0,40}([\d.]+ ?[KMGT]?i?B)")
_TPU_BYTES = re.compile(r"\(([\d.]+[KMGT])\) exceeds available HBM \(([\d.]+[KMGT])\)")
_NO_OPTION = re.compile(r"No such compile option: '(\w+)'")
_BAD_OPTION = re.compile(r"Failed to parse '(.*)' into flag (\w+)")
_FATAL = re.compile(r"^F\d{4} [^\]\n]*\] (.+)", re.MULTILINE)
"""the log's line of the check that ended the process; a stack follows"""
_SHARED_MEMORY = "Shared memory size limit exceeded"
_ASKED_PYTHON = "INTERNAL: custom_partitioner: Traceback"
"""JAX's rules of custom_partitioning are in the process that traced the program"""
_GPU_CALL = re.compile(r"(__gpu\$[\w.]+|__cudnn\$\w+|mosaic_gpu\w*|__cublas\$\w+)")


class CompileFailed(BadInput):
    """A compile that failed; its kind tells who failed.

    invalid   the target's own function raised, or returned something that can't be compiled
    refused   XLA
    memory    XLA: the program doesn't fit
    died      the process
    aborted   nobody: another thread called `abort`
    """

    def __init__(self, text: str, kind: str, reason: str | None = None) -> None:
        """`reason`: the text without what many failures of one target have in common."""
        super().__init__(text)
        self.kind = kind
        self.reason = reason or text


def explain(failed: WorkerFailed, stage: str, target: Target, machine: Machine) -> SlipstreamError:
    """The error to raise for a request that failed."""
    log = keep_log(failed.log)
    if failed.died:
        return _died(failed, log, target.label)
    if failed.answer["error"] in ("JaxChanged", "Missing"):
        return Missing(failed.answer["text"])
    stages = {
        "start": _start,
        "inspect": _lower,
        "lower": _lower,
        "convert": _convert,
        "compile": _compile,
    }
    return stages[stage](failed, target, machine, log)


def explain_import(failed: WorkerFailed, target: Target) -> SlipstreamError:
    """The error to raise if a target's function could not be imported, or its signature read."""
    log = keep_log(failed.log)
    if failed.died:
        return _died(failed, log, target.label)
    if failed.answer["error"] == "BadInput":
        return BadInput(f"{target.label}: {failed.answer['text']}")
    return _raised(failed, target, log)


def _died(failed: WorkerFailed, log: Path, label: str) -> SlipstreamError:
    code = failed.answer["code"]
    if failed.answer["is_aborted"]:
        return CompileFailed("the compile was aborted", "aborted")
    unknown = _UNKNOWN_FLAG.search(failed.log)
    if unknown:
        return BadInput(
            f"XLA rejects XLA_FLAGS: unknown {unknown[1].strip()}; see: slipstream flags lint"
        )
    if code == -9:
        return Missing(
            "the compiler process was killed, probably because this machine ran out of memory; "
            f"compile for fewer devices or layers, or on a larger machine (log: {log})"
        )
    if _ASKED_PYTHON in failed.log:
        return _python_divides(label, log)
    fatal = _FATAL.search(failed.log)
    lines = [fatal[1]] if fatal else _lines_from_the_end(failed.log)
    last = next(map(_shortened, lines), "it logged nothing")
    return CompileFailed(
        f"the compiler process exited with code {code}: {last} (log: {log})", "died"
    )


def _python_divides(label: str, log: Path) -> SlipstreamError:
    return CompileFailed(
        f"{label} leaves it to Python how calls are divided among devices "
        "(jax.custom_partitioning), and only the process that wrote it knows: compile the "
        "function itself (FILE.py:FUNCTION), or XLA's dump of the divided program "
        f"(*.after_spmd_partitioner.txt) (log: {log})",
        "invalid",
    )


def _start(failed: WorkerFailed, target: Target, machine: Machine, log: Path) -> SlipstreamError:
    text = failed.answer["line"]
    if failed.answer["error"] in ("ImportError", "ModuleNotFoundError"):
        return Missing(
            f"jax can't be imported ({text}); install it with: pip install 'slipstream[compiler]'"
        )
    if machine.kind == "tpu":
        return BadInput(
            f"libtpu can't build the topology {machine.topology}, for {machine.spec}: "
            f"{_plain(text)} (log: {log})"
        )
    if "nknown backend" in text or "No such plugin" in text or "not in the list" in text:
        return Missing(
            f"JAX can't load its GPU plugin ({_plain(text)}); reinstall it with: "
            f"pip install 'slipstream[compiler]' (log: {log})"
        )
    return BadInput(
        f"XLA can't build the topology {machine.topology} of {machine.chip.name}, for "
        f"{machine.spec}: {_plain(text)}; expected slices × hosts × GPUs, all at least 1, and a "
        f"target configuration that this plugin supports (log: {log})"
    )


def _lower(failed: WorkerFailed, target: Target, machine: Machine, log: Path) -> SlipstreamError:
    return _raised(failed, target, log)


def _raised(failed: WorkerFailed, target: Target, log: Path) -> SlipstreamError:
    answer = failed.answer
    if answer["error"] == "WrongTarget":
        return CompileFailed(f"{target.label} {answer['text']}", "invalid")
    if answer["error"] == "GpuOnly":
        return CompileFailed(_gpu_only(target, answer["text"]), "invalid")
    if answer["error"] == "AttributeError" and target.function in answer["text"]:
        names = answer["names"]
        known = ", ".join(name for name in names if not name.startswith("_")) or "no function"
        guess = did_you_mean(target.function, names, cutoff=0.4)
        return BadInput(f"{target.module} has no function {target.function}; {guess}it has {known}")
    line, place = _shortened(answer["line"]), answer["place"]
    where = f" at {place}" if place else ""
    short = f" ({Path(place).name})" if place else ""
    return CompileFailed(
        f"{target.label} raised {line}{where}; full traceback: {log}", "invalid", f"{line}{short}"
    )


def _convert(failed: WorkerFailed, target: Target, machine: Machine, log: Path) -> SlipstreamError:
    return BadInput(
        f"{target.label} can't be converted to StableHLO ({_plain(failed.answer['line'])}); "
        f"expected unoptimised HLO (log: {log})"
    )


def _compile(failed: WorkerFailed, target: Target, machine: Machine, log: Path) -> SlipstreamError:
    answer = failed.answer
    if answer["error"] == "TooManyDevices":
        wanted, has = answer["text"].split()
        return CompileFailed(
            f"{target.label} needs {wanted} devices, but {machine.spec} has {has}; "
            f"compile it for {wanted}: --on {_bigger(machine, int(wanted))}",
            "invalid",
        )
    line = answer["line"]
    if machine.kind == "tpu" and (refused := _refused_by_libtpu(line, target)) is not None:
        return refused
    if target.kind != "python" and _ASKED_PYTHON in line:
        return _python_divides(target.label, log)
    if _SHARED_MEMORY in line:
        return CompileFailed(
            f"a kernel of {target.label} needs more shared memory than an SM of "
            f"{machine.chip.name} has; make its blocks smaller, or prefetch fewer of them; "
            f"XLA's error: {_plain(line)} (log: {log})",
            "refused",
        )
    if is_out_of_memory(line):
        size = _BYTES.search(line)
        needs = f" (it needs {size[1]})" if size else ""
        if on_tpu := _TPU_BYTES.search(line):
            needs = f" (it needs {on_tpu[1]}iB of {on_tpu[2]}iB)"
        return CompileFailed(
            f"{target.label} does not fit in the memory of one {machine.chip.name}{needs}: reduce "
            "the batch size, checkpoint more layers, or shard over more devices; XLA's error: "
            f"{_plain(line)}",
            "memory",
        )
    if answer["error"] in ("MLIRError", "ValueError") and "pars" in line.lower():
        return BadInput(
            f"{target.label} is not StableHLO that this jaxlib can read ({_plain(line)}); write it "
            f"with jax.jit(f).lower(…).as_text() (log: {log})"
        )
    text = f"XLA can't compile {target.label}: {_plain(line)} (log: {log})"
    return CompileFailed(text, "refused")


def _refused_by_libtpu(line: str, target: Target) -> SlipstreamError | None:
    flags = libtpu_catalogue().flags
    if unknown := _NO_OPTION.search(line):
        options = [name for name, flag in flags.items() if flag.in_compiler_options]
        guess = did_you_mean(unknown[1], options, cutoff=SIMILAR)
        return BadInput(
            f"libtpu has no flag {unknown[1]}; {guess}see: slipstream flags list --tpu, or omit it"
        )
    if unread := _BAD_OPTION.search(line):
        expected = f"; expected {flags[unread[2]].expected}" if unread[2] in flags else ""
        return BadInput(f"flag {unread[2]} is {unread[1]!r}, which libtpu can't read{expected}")
    call = _GPU_CALL.search(line)
    if call is not None:
        return CompileFailed(_gpu_only(target, f"the call {call[1]}"), "invalid")
    return None


def _gpu_only(target: Target, what: str) -> str:
    return (
        f"{target.label} has {what}, which is for GPUs only; on TPUs use what XLA compiles for "
        'both (`implementation="xla"`), or a Pallas kernel for TPUs'
    )


def _bigger(machine: Machine, devices: int) -> str:
    if machine.kind == "tpu":
        return slices_with(machine.tpu, devices)
    hosts = -(-devices // machine.gpus_per_host)
    if devices % machine.gpus_per_host or hosts == 1 or machine.gpus_per_host == 1:
        return f"{devices}x{machine.chip.name}"
    return f"{hosts}x{machine.gpus_per_host}x{machine.chip.name}"


def _plain(line: str) -> str:
    return _shortened(_STATUS.sub("", line))


def _shortened(text: str, most: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _lines_from_the_end(log: str) -> Iterator[str]:
    return (_shortened(line) for line in reversed(log.splitlines()) if line.strip())


def keep_log(log: str) -> Path:
    """Keep the log of a failure in the cache."""
    folder = cache_folder()
    file = folder / f"{digest(log)}.failed.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(log, encoding="utf-8")
    except OSError:
        return Path("not kept")
    return file
