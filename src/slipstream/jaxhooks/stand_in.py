"""A program with the arguments and results of another, and nothing in between.

XLA compiles it at once, and JAX learns from it how results are sharded, which takes minutes for a
large step. It tells the truth if nothing inside the step decides that: results have a sharding of
their own, take the place of a donated argument, or are as small as a loss or a random key; or there
is only one device.
"""

from __future__ import annotations

import math
from typing import Any

from slipstream.jaxhooks import private_api
from slipstream.jaxhooks.compiling import bytecode, parsed

SMALL = 64
"""elements of a result that is not sharded"""
_SHARDINGS = ("sdy.sharding", "mhlo.sharding")
_ALIASED, _DONATED = "tf.aliasing_output", "jax.buffer_donor"


def stand_in(stablehlo: bytes) -> bytes | None:
    """The program as bytes; None if shardings of results follow from what the step computes."""
    with parsed(stablehlo) as (module, ir):
        functions = _functions(module, ir)
        main = functions.pop("main")
        places = _donated_for(main)
        kinds = list(main.type.results)
        if _partitions(module, ir) > 1 and not _are_known(main, places):
            return None
        if any(isinstance(kind.element_type, ir.ComplexType) for kind in kinds):
            return None
        for op in reversed(list(main.entry_block.operations)):
            op.operation.erase()
        for function in functions.values():
            function.operation.erase()
        with ir.InsertionPoint(main.entry_block):
            values = [
                places[number] if number in places else _zero(kind, ir)
                for number, kind in enumerate(kinds)
            ]
            private_api.FUNC_DIALECT.get().ReturnOp(values)
        return bytecode(module)


def _functions(module: Any, ir: Any) -> dict[str, Any]:
    found = [op for op in module.body.operations if op.operation.name == "func.func"]
    return {ir.StringAttr(op.attributes["sym_name"]).value: op for op in found}


def _partitions(module: Any, ir: Any) -> int:
    attributes = module.operation.attributes
    name = "mhlo.num_partitions"
    return int(ir.IntegerAttr(attributes[name]).value) if name in attributes else 1


def _are_known(main: Any, places: dict[int, Any]) -> bool:
    attributes = list(main.attributes["res_attrs"]) if "res_attrs" in main.attributes else []
    for number, kind in enumerate(main.type.results):
        own = attributes[number] if attributes else {}
        is_small = math.prod(kind.shape) <= SMALL
        if not (is_small or number in places or any(name in own for name in _SHARDINGS)):
            return False
    return True


def _donated_for(main: Any) -> dict[int, Any]:
    """The donated argument whose place each result takes."""
    if "arg_attrs" not in main.attributes:
        return {}
    kinds, found = list(main.type.results), dict[int, Any]()
    arguments = list(zip(main.arguments, main.attributes["arg_attrs"], strict=True))
    for argument, own in arguments:
        if _ALIASED in own:
            found[int(own[_ALIASED].value)] = argument
    for argument, own in arguments:
        if _DONATED in own:
            same = [n for n, kind in enumerate(kinds) if kind == argument.type and n not in found]
            found |= {same[0]: argument} if same else {}
    return found


def _zero(kind: Any, ir: Any) -> Any:
    element = kind.element_type
    is_integer = isinstance(element, ir.IntegerType)
    zero = ir.IntegerAttr.get(element, 0) if is_integer else ir.FloatAttr.get(element, 0.0)
    value = ir.DenseElementsAttr.get_splat(kind, zero)
    return private_api.STABLEHLO_DIALECT.get().ConstantOp(value).result
