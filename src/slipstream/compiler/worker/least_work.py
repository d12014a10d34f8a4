"""The least that a traced function must do and keep, whatever XLA makes of it.

    jaxpr ──► no dead code ──► calls inlined ──► equal expressions merged
          ──► FLOPs of products, what loops stack, what is read and written

XLA merges equal expressions within a computation, so those count once. What is inside a loop is
another computation. Everything that is not certain counts as nothing: the result is a lower bound.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slipstream.compiler.worker.gathers import Gather
from slipstream.compiler.worker.products import bits, product_flops, rounds_operands
from slipstream.jaxhooks.tracing import without_dead_code

CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_lin": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
}
"""primitives that only call, and the parameter that holds what"""
ELEMENTWISE = frozenset(
    (
        "add", "add_any", "sub", "mul", "div", "neg", "sqrt", "rsqrt", "pow", "integer_pow",
        "square", "convert_element_type", "sharding_constraint", "copy", "reduce_precision",
    )
)  # fmt: skip
VIEWS = frozenset(
    (
        "convert_element_type", "mul", "div", "transpose", "reshape", "broadcast_in_dim",
        "squeeze", "copy", "sharding_constraint", "reduce_precision", "neg", "clamp",
    )
)  # fmt: skip
"""what XLA can move behind a product, to multiply the narrower values in front of it"""
WEIGHTED = frozenset(
    (
        "dot_general", "ragged_dot_general", "ragged_dot", "conv_general_dilated", "gather",
        "slice", "dynamic_slice", "scan", "shard_map", "pallas_call",
    )
)  # fmt: skip
"""what a model does with its weights, and an optimizer hardly with its own state"""


@dataclass
class LeastWork:
    """Of a whole function; lists have one entry for each argument or result."""

    flops: dict[str, int]
    stacked_bytes: int
    is_used: list[bool]
    is_reusable: list[bool]
    """donated, and not needed after the loop that stacks most"""
    is_read: list[bool]
    """read completely"""
    is_weight: list[bool]
    """changed, and used by products, lookups or loops"""
    is_written: list[bool]
    gathers: list[Gather] = field(default_factory=list)

    @staticmethod
    def unknown(closed_jaxpr: Any, outputs: int) -> LeastWork:
        """If nothing but the arguments can be told."""
        is_used = _used_arguments(_plain(closed_jaxpr))
        no = [False] * len(is_used)
        return LeastWork({}, 0, is_used, no, no, no, [False] * outputs)


def least_work(closed_jaxpr: Any, donated: Sequence[bool]) -> LeastWork:
    """The least work of what `jit(f).trace(…)` returned; `donated` tells which arguments are."""
    # As JAX decides which arguments a program has.
    is_used = _used_arguments(_plain(closed_jaxpr))
    jaxpr = without_dead_code(_plain(closed_jaxpr))
    counter = _Counter()
    arguments = [counter.new(("argument", n), v.aval) for n, v in enumerate(jaxpr.invars)]
    entry = _Computation()
    results = counter.run(jaxpr, arguments, entry)
    stack = max(entry.stacks, key=lambda one: one.bytes, default=None)
    later = _needed_after(counter, entry, stack) if stack is not None else set()
    read, is_written = _moved(counter, results, set(arguments))
    weights = _weights(counter)
    return LeastWork(
        flops={dtype: flops for dtype, flops in entry.flops.items() if flops},
        stacked_bytes=stack.bytes if stack is not None else 0,
        is_used=is_used,
        is_reusable=[d and a not in later for d, a in zip(donated, arguments, strict=True)],
        is_read=[one in read for one in arguments],
        is_weight=[one in weights and one not in results for one in arguments],
        is_written=is_written,
        gathers=entry.gathers,
    )


def byte_size(shape: Sequence[int], dtype: Any) -> float:
    """Bytes of an array; XLA packs types of less than a byte."""
    return math.prod(shape) * (dtype.itemsize if bits(str(dtype)) >= 8 else bits(str(dtype)) / 8)


# Expressions have numbers: equal ones have the same.


@dataclass(frozen=True)
class _Expression:
    primitive: str
    operands: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: Any


@dataclass
class _Stack:
    """What a loop keeps of its iterations."""

    bytes: int
    results: tuple[int, ...]


@dataclass
class _Computation:
    """What XLA sees at once: the entry, or the body of a loop."""

    flops: Counter[str] = field(default_factory=Counter)
    stacks: list[_Stack] = field(default_factory=list)
    gathers: list[Gather] = field(default_factory=list)
    equations: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)
    """operands by results"""


class _Counter:
    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._expressions: list[_Expression] = []
        self._narrowest: dict[int, str] = {}
        self._placed: dict[int, Any] = {}
        """stated shardings, by expression"""

    def new(self, key: Any, aval: Any, primitive: str = "", operands: Iterable[int] = ()) -> int:
        """The number of an expression; a key that is known has its number already."""
        if key not in self._numbers:
            self._numbers[key] = len(self._expressions)
            shape = tuple(getattr(aval, "shape", ()))
            dtype = getattr(aval, "dtype", None)
            self._expressions.append(_Expression(primitive, tuple(operands), shape, dtype))
        return self._numbers[key]

    @property
    def expressions(self) -> Sequence[_Expression]:
        """All of them, those inside loops too."""
        return self._expressions

    def expression(self, number: int) -> _Expression:
        return self._expressions[number]

    def run(self, jaxpr: Any, arguments: Sequence[int], into: _Computation) -> list[int]:
        """Count a jaxpr's equations; returns the numbers of its results."""
        known: dict[Any, int] = dict(zip(jaxpr.invars, arguments, strict=True))
        for constant in jaxpr.constvars:
            known[constant] = self.new(("constant", id(constant)), constant.aval)

        def number(atom: Any) -> int:
            if hasattr(atom, "val"):
                return self.new(("literal", str(atom.aval), repr(atom.val)), atom.aval)
            return known[atom]

        for equation in jaxpr.eqns:
            operands = [number(atom) for atom in equation.invars]
            results = self._equation(equation, operands, into)
            known.update(zip(equation.outvars, results, strict=True))
        return [number(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, operands: list[int], into: _Computation) -> list[int]:
        name = equation.primitive.name
        if name in CALLS and CALLS[name] in equation.params:
            return self._call(equation, operands, into)
        inner, counted, stacked, gathers = self._inside(equation)
        if name == "optimization_barrier":
            inner = (id(equation),)  # XLA merges nothing across it
        key = (name, _parameters(equation.params), inner, *operands)
        results = [
            self.new((key, place), variable.aval, name, operands)
            for place, variable in enumerate(equation.outvars)
        ]
        if tuple(results) in into.equations:
            return results
        into.equations[tuple(results)] = tuple(operands)
        into.flops.update(counted)
        into.gathers += gathers
        if name == "sharding_constraint":
            into.gathers += self._gather(equation.params["sharding"], operands[0], results[0])
        if stacked:
            into.stacks.append(_Stack(stacked, tuple(results)))
        if flops := product_flops(equation):
            into.flops[self._product_type(equation, operands)] += flops
        return results

    def _call(self, equation: Any, operands: list[int], into: _Computation) -> list[int]:
        parameters = equation.params
        inner = parameters[CALLS[equation.primitive.name]]
        if parameters.get("prevent_cse") is True and parameters.get("differentiated"):
            # What is recomputed is kept apart from what was computed first.
            operands = [
                self.new(("barrier", id(equation), place), variable.aval, "", [operand])
                for place, (variable, operand) in enumerate(
                    zip(equation.invars, operands, strict=True)
                )
            ]
            for fresh in operands:
                into.equations[(fresh,)] = self.expression(fresh).operands
        return self.run(_plain(inner), operands, into)

    def _gather(self, sharding: Any, operand: int, result: int) -> list[Gather]:
        self._placed[result] = sharding
        if operand not in self._placed:
            return []
        shape, width = self.expression(operand).shape, bits(self._narrow(operand))
        return [Gather(shape, width, self._placed[operand], sharding, number=result)]

    def _inside(self, equation: Any) -> tuple[tuple[Any, ...], Counter[str], int, list[Gather]]:
        """The body of a loop or branch: what identifies it, its FLOPs, what it stacks, gathers."""
        name, parameters = equation.primitive.name, equation.params
        if name == "scan":
            body, results = self._body(parameters["jaxpr"])
            stacked = self._stacked(equation, results)
            within = max((one.bytes for one in body.stacks), default=0)
            flops = _times(body.flops, parameters["length"])
            return tuple(results), flops, max(stacked, within), self._repeated(equation, body)
        if name == "while":
            body, results = self._body(parameters["body_jaxpr"])
            return tuple(results), body.flops, 0, []
        if name == "cond":
            bodies = [self._body(branch) for branch in parameters["branches"]]
            least = Counter(bodies[0][0].flops)
            for body, _ in bodies[1:]:
                least &= body.flops  # the smaller of both counts
            return tuple(tuple(results) for _, results in bodies), least, 0, []
        if name == "shard_map":
            body, results = self._body(parameters["jaxpr"])
            sizes = dict(parameters["mesh"].shape)
            copies = math.prod(sizes[axis] for axis in _manual_axes(parameters))
            stacked = max((one.bytes for one in body.stacks), default=0)
            return tuple(results), _times(body.flops, copies), copies * stacked, []
        return (), Counter(), 0, []

    def _body(self, jaxpr: Any) -> tuple[_Computation, list[int]]:
        inner = _plain(jaxpr)
        body = _Computation()
        return body, self.run(inner, self._inputs(inner), body)

    def _inputs(self, jaxpr: Any) -> list[int]:
        """The same for all bodies, so that equal ones have the same results."""
        return [
            self.new(("input", place, str(variable.aval)), variable.aval)
            for place, variable in enumerate(jaxpr.invars)
        ]

    def _repeated(self, equation: Any, body: _Computation) -> list[Gather]:
        """A loop's gathers; not those that are the same in all iterations, which XLA moves out."""
        inner = _plain(equation.params["jaxpr"])
        varying = {*self._inputs(inner)[_first_varying(equation, inner) :]}
        return [
            replace(one, number=None, times=one.times * equation.params["length"])
            if one.number is not None
            else one
            for one in body.gathers
            if one.number is None or self._depends(one.number, varying)
        ]

    def _stacked(self, equation: Any, results: Sequence[int]) -> int:
        """Bytes of a scan's stacked results; not of those that XLA could get from elsewhere."""
        length, unroll = equation.params["length"], equation.params["unroll"]
        if length < 2 or unroll is True or int(unroll) >= length:
            return 0  # not a loop
        inner = _plain(equation.params["jaxpr"])
        # What is sliced or stacked has one dimension more outside; versions of JAX name it
        # differently.
        sliced = _differ(equation.invars, inner.invars)
        stacked = _differ(equation.outvars, inner.outvars)
        first = _first_varying(equation, inner)
        inputs = self._inputs(inner)
        slices = {one for one, is_it in zip(inputs, sliced, strict=True) if is_it}
        kept = {
            number: variable.aval
            for number, variable, is_it in zip(results, inner.outvars, stacked, strict=True)
            if is_it
        }
        total = 0.0
        for number, aval in kept.items():
            is_host = "host" in str(getattr(aval, "memory_space", "")).lower()
            if number not in slices and not is_host and self._depends(number, {*inputs[first:]}):
                total += length * byte_size(aval.shape, aval.dtype)
        return math.floor(total)

    def _depends(self, number: int, on: set[int]) -> bool:
        waiting, seen = [number], set()
        while waiting:
            one = waiting.pop()
            if one in on:
                return True
            if one not in seen:
                seen.add(one)
                waiting += self._expressions[one].operands
        return False

    def _product_type(self, equation: Any, operands: Sequence[int]) -> str:
        """The narrowest type that a product's operands have, or had before XLA may move a cast."""
        found = [self._narrow(operand) for operand in operands[:2]]
        if rounds_operands(equation):
            found.append("bfloat16")
        return min(found, key=bits)

    def _narrow(self, number: int) -> str:
        if number not in self._narrowest:
            one = self._expressions[number]
            self._narrowest[number] = own = str(one.dtype)
            if one.primitive in VIEWS:
                before = [self._narrow(operand) for operand in one.operands]
                # Masks and integers become floats before they are multiplied.
                floats = [dtype for dtype in before if "float" in dtype]
                self._narrowest[number] = min([own, *floats], key=bits)
        return self._narrowest[number]


def _plain(jaxpr: Any) -> Any:
    """Without its constants, if it is closed."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def _differ(outer: Sequence[Any], inner: Sequence[Any]) -> list[bool]:
    """Whether values have another number of dimensions outside a loop than inside."""
    pairs = zip(outer, inner, strict=True)
    return [len(one.aval.shape) != len(other.aval.shape) for one, other in pairs]


def _first_varying(scan: Any, inner: Any) -> int:
    """Inputs of a scan's body from this one on differ between iterations: carried or sliced."""
    sliced = _differ(scan.invars, inner.invars)
    stacked = _differ(scan.outvars, inner.outvars)
    return len(inner.invars) - sum(sliced) - (len(stacked) - sum(stacked))


def _manual_axes(parameters: Any) -> Iterable[Any]:
    for name in ("newly_manual_axes", "manual_axes"):
        if name in parameters:
            found: Iterable[Any] = parameters[name]
            return found
    return ()


def _times(flops: Counter[str], times: int) -> Counter[str]:
    return Counter({dtype: count * times for dtype, count in flops.items()})


def _parameters(parameters: Any) -> str:
    """Parameters as text; those that are functions, or hold them, are compared by their bodies."""
    plain = (
        f"{name}={value!r}"
        for name, value in sorted(parameters.items())
        if "jaxpr" not in name and name != "branches" and not callable(value)
    )
    return " ".join(one for one in plain if " at 0x" not in one)


# What must be there, and when.


def _used_arguments(jaxpr: Any) -> list[bool]:
    used = {id(one) for one in jaxpr.outvars}
    used |= {id(one) for equation in jaxpr.eqns for one in equation.invars}
    return [id(one) in used for one in jaxpr.invars]


def _needed_after(counter: _Counter, entry: _Computation, stack: _Stack) -> set[int]:
    """What is read by equations that depend on a loop's results: they run after it.

    If that is `0.9 * m`, it may have been computed before; then it takes the memory of `m`.
    """
    after = set(stack.results)
    needed: set[int] = set()
    for results, operands in entry.equations.items():
        if results != stack.results and not after.isdisjoint(operands):
            after.update(results)
            needed.update(operands)
    waiting = list(needed)
    while waiting:
        one = counter.expression(waiting.pop())
        large = [n for n in one.operands if counter.expression(n).shape == one.shape]
        is_instead = one.primitive in ELEMENTWISE and len(large) == 1
        if is_instead and _width(counter.expression(large[0])) <= _width(one):
            waiting += [large[0]] if large[0] not in needed else []
            needed.add(large[0])
    return needed


def _width(one: _Expression) -> float:
    return byte_size((), one.dtype) if one.dtype is not None else 0.0


def _weights(counter: _Counter) -> set[int]:
    """What WEIGHTED primitives use, directly or cast, scaled or in another shape."""
    waiting = [n for one in counter.expressions if one.primitive in WEIGHTED for n in one.operands]
    found: set[int] = set()
    while waiting:
        number = waiting.pop()
        one = counter.expression(number)
        if number not in found:
            found.add(number)
            # Barriers have no primitive.
            waiting += one.operands if one.primitive in VIEWS or not one.primitive else ()
    return found


def _moved(
    counter: _Counter, results: Sequence[int], arguments: set[int]
) -> tuple[set[int], list[bool]]:
    """Arguments all of whose elements some result needs, and whether each result is written."""
    read: set[int] = set()
    seen: set[int] = set()
    for result in results:
        shape, waiting = counter.expression(result).shape, [result]
        while waiting:
            number = waiting.pop()
            one = counter.expression(number)
            if number in seen or one.shape != shape:
                continue
            seen.add(number)
            if number in arguments and number not in results:
                read.add(number)
            elif one.primitive in ELEMENTWISE:
                waiting += one.operands
    written = [
        counter.expression(number).primitive in ELEMENTWISE and results.index(number) == place
        for place, number in enumerate(results)
    ]
    return read, written
