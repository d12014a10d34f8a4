"""Note the work of Pallas kernels in a compiled program, so that models can read it without jax.

The code of a kernel is part of its call's configuration. What `kernel_work` counts in it becomes
attributes of the same configuration: `{slipstream_flops = 73014444032 : i64, …, ir = "…"}`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from slipstream.compiler.worker.kernel_work import KernelWork, mosaic_work, triton_work
from slipstream.jaxhooks import compiling
from slipstream.jaxhooks.compat import JaxChanged, warn_once
from slipstream.reading import DAMAGE

TRITON, MOSAIC = "__gpu$xla.gpu.triton", "mosaic_gpu"
ESTIMATE = "slipstream_estimate"
"""the frontend attribute that holds a call's `cost_estimate`: `flops,transcendentals`"""
MANY = 1 << 20
"""programs of a kernel whose code is not understood: enough for any GPU"""
USUAL_TILE = (128, 128, 64, "bf16")
"""of matmuls that an author states and that are not found in the code"""
_CODE = re.compile(r'\b(?:ir|module) = "((?:[^"\\]|\\.)*)"')
_GRID = re.compile(r"\bgrid_([xyz]) = (\d+)")
_ESCAPED = re.compile(rb'\\([0-9A-Fa-f]{2}|["\\])')


def with_kernel_work(proto: bytes) -> bytes:
    """An HloModuleProto with the work of its Pallas kernels; the same bytes if it has none."""
    if TRITON.encode() not in proto and MOSAIC.encode() not in proto:
        return proto
    from slipstream.sources.proto_schema import message

    module = message("HloModuleProto").FromString(proto)
    known: dict[str, str] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            _note(instruction, module.payloads, known)
    return bytes(module.SerializeToString())


def _note(instruction: Any, payloads: Any, known: dict[str, str]) -> None:
    target = instruction.custom_call_target
    if not target.startswith((TRITON, MOSAIC)):
        return
    data = instruction.backend_config
    if not data and instruction.HasField("backend_config_payload"):
        payload = instruction.backend_config_payload
        data = payload.value or payloads[payload.id]
    config = data.decode("utf-8", "replace")
    stated = instruction.frontend_attributes.map.get(ESTIMATE, "")
    key = f"{stated} {config}"
    if key not in known:
        known[key] = _counted(config, stated, is_triton=target.startswith(TRITON))
    if known[key]:
        instruction.backend_config = f"{{{known[key]}, {config[1:]}".encode()
        instruction.ClearField("backend_config_payload")


def _counted(config: str, stated: str, *, is_triton: bool) -> str:
    """Attributes with the work of a kernel; empty if neither its code nor its author says it."""
    work = _work_of(config, is_triton=is_triton)
    if stated and (work is None or work.is_dynamic):
        flops, transcendentals = map(int, stated.split(","))
        known = work or KernelWork(programs=MANY)
        work = replace(
            known,
            flops=flops,
            transcendentals=transcendentals,
            is_dynamic=False,
            by_tile=known.by_tile or ({USUAL_TILE: flops} if flops else {}),
        )
    return work.as_attributes() if work is not None else ""


def _work_of(config: str, *, is_triton: bool) -> KernelWork | None:
    """What a kernel's code does; None if it is not understood."""
    code = _CODE.search(config)
    if code is None or not config.startswith("{"):
        return None
    grid = {axis: int(size) for axis, size in _GRID.findall(config)}
    try:
        with compiling.parsed_kernel(_unescaped(code[1])) as module:
            if is_triton:
                return triton_work(module, (grid["x"], grid["y"], grid["z"]))
            return mosaic_work(module)
    except JaxChanged as changed:
        warn_once(str(changed))
    except DAMAGE as error:
        # Code of another version of Pallas; the call then counts as an unknown kernel.
        warn_once(f"the work of a Pallas kernel can't be counted: {error}")
    return None


def _unescaped(text: str) -> bytes:
    """The bytes of an MLIR string: `\\22` is a byte in hexadecimal."""
    return _ESCAPED.sub(_byte, text.encode())


def _byte(match: re.Match[bytes]) -> bytes:
    return match[1] if match[1] in (b'"', b"\\") else bytes([int(match[1], 16)])
