"""What can be compiled, and how it is recognised.

train.py:build, package.train:build    a function that builds a jitted function and arguments
a function and its arguments           lowered in this process
.mlir, .stablehlo, bytes, text         StableHLO, as JAX writes it
.hlo.pb, .pb, .txt, bytes, text        unoptimised HLO, as XLA dumps it
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slipstream.compiler.memory_pool import JAX_SHARE, pool_share
from slipstream.compiler.worker.keywords import as_json
from slipstream.errors import BadInput
from slipstream.machines.targets import tpu_config
from slipstream.reading import read_input, unreadable
from slipstream.remote.paths import is_remote

BYTECODE = b"ML\xefR"
"""the first bytes of MLIR bytecode"""
_PYTHON = re.compile(r"^(?P<module>.+?):(?P<function>[A-Za-z_]\w*)$")
_MLIR_TEXT = re.compile(rb"^\s*(//[^\n]*\n\s*)*(#\w+ ?=|module\b|builtin\.module\b|func\.func\b)")
_HLO_TEXT = re.compile(rb"^\s*(//[^\n]*\n\s*)*HloModule\b")
_EXPECTED = "expected FILE.py:FUNCTION, StableHLO (.mlir) or unoptimised HLO (.hlo.pb, .txt)"


@dataclass(frozen=True)
class Target:
    """Something to compile: a Python function to import, or a program as text or bytes."""

    kind: str
    """`python`, `stablehlo` or `hlo`"""
    label: str
    """its name in messages"""
    content: bytes = field(default=b"", repr=False)
    module: str = ""
    function: str = ""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """keyword arguments of a Python target's function, as JSON has them"""
    devices: tuple[int, ...] = ()
    """the device ids of the mesh, if lowering knows them"""
    options: Mapping[str, str] = field(default_factory=dict)
    """compiler options of the jitted function itself"""
    memory_share: float | None = None
    """of a GPU, what its job's allocator takes; None if unknown, as for a program of XLA's tools"""


def identify(
    target: Any, args: Any = None, target_config: str = "", memory_share: float = JAX_SHARE
) -> Target:
    """Recognise a target; functions are lowered immediately, for a device as described.

    `memory_share` is what JAX's allocator takes of a GPU if the environment doesn't state it.
    """
    if isinstance(target, Target):
        return target
    found = _recognised(target, args, target_config)
    if found.kind == "hlo":
        return found
    return replace(found, memory_share=pool_share(os.environ, memory_share))


def _recognised(target: Any, args: Any, target_config: str) -> Target:
    if callable(target) or hasattr(target, "compiler_ir"):
        return _function(target, args, target_config)
    if isinstance(target, bytes):
        return _program(target, "a program in memory")
    if isinstance(target, str) and ("\n" in target or target.startswith("HloModule")):
        return _program(target.encode(), "a program in memory")
    if not isinstance(target, (str, os.PathLike)):
        raise BadInput(f"can't compile a {type(target).__name__}; {_EXPECTED}, or a function")
    return _named(os.fspath(target), args)


def _function(target: Callable[..., Any], args: Any, target_config: str) -> Target:
    from slipstream.compiler.versions import installed_versions
    from slipstream.compiler.worker.lowering import lower

    installed_versions("tpu" if tpu_config(target_config) else "gpu")
    arguments = args if isinstance(args, (tuple, list)) else () if args is None else (args,)
    found = lower(target, tuple(arguments), target_config)
    label = getattr(target, "__name__", "a function")
    return Target("stablehlo", label, found.stablehlo, devices=found.devices, options=found.options)


def _named(name: str, args: Any) -> Target:
    if is_remote(name):
        return _remote(name)
    if os.path.isfile(name):
        if name.endswith(".py"):
            raise BadInput(f"{name} does not name a function; {_functions(Path(name))}")
        return _program(read_input(name, "a program"), name)
    match = _PYTHON.match(name)
    if match is None:
        raise _absent(name)
    if match["module"].endswith(".py") and not os.path.isfile(match["module"]):
        raise BadInput(f"{match['module']} does not exist, so {match['function']} can't be called")
    if args is not None and not isinstance(args, Mapping):
        raise BadInput(
            f"{name} builds its own arguments; expected only a mapping of further keywords"
        )
    keywords = {key: as_json(value) for key, value in (args or {}).items()}
    module, function = match["module"], match["function"]
    return Target("python", name, module=module, function=function, keywords=keywords)


def _remote(name: str) -> Target:
    """A program in a bucket; Python is imported only from where its author put it."""
    if re.search(r"\.py(:\w+)?$", name):
        raise BadInput(f"{name} is Python in a bucket, which is not run; copy it here first")
    return _program(read_input(name, "a program"), name)


def _absent(name: str) -> BadInput:
    try:
        os.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return BadInput(f"{name} does not exist; {_EXPECTED}")
    except (OSError, ValueError) as error:
        return unreadable(name, error, _EXPECTED.removeprefix("expected "))
    return BadInput(f"{name} is not a file; {_EXPECTED}")


def _functions(file: Path) -> str:
    """Suggest functions of a file."""
    import ast

    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return f"write {file}:FUNCTION"
    found = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and {one.arg for one in node.args.args} & {"devices", "mesh"}
    ]
    if not found:
        return (
            f"write {file}:FUNCTION, a function that takes `devices` and returns a jitted "
            "function and its arguments"
        )
    return f"write {file}:{found[0]}" + "".join(f" or {file}:{one}" for one in found[1:])


def _program(data: bytes, label: str) -> Target:
    if data.startswith(BYTECODE) or _MLIR_TEXT.match(data):
        return Target("stablehlo", label, data)
    if _is_scheduled(data, label):
        raise BadInput(
            f"{label} is already compiled: it has a schedule; read it with slipstream simulate, or "
            "use the unoptimised dump (*.before_optimizations.hlo.pb)"
        )
    return Target("hlo", label, data)


def _is_scheduled(data: bytes, label: str) -> bool:
    from slipstream.sources.hlo.reader import program_from_proto

    if _HLO_TEXT.match(data):
        header = data[data.index(b"HloModule") :].partition(b"\n")[0]
        return b"is_scheduled=true" in header
    return program_from_proto(data, source=label).is_scheduled
