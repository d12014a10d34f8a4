"""Expressions over choices: `--where "tensor <= 8"` and `--work "batch * data * 4096"`.

An expression is read with `ast` and evaluated here, node by node: comparisons, arithmetic, `and`,
`or`, `not`, `in`, numbers, text, and the names of choices and of the machine's sizes. Anything
else is an error, so no code of an expression is ever run.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slipstream.did_you_mean import no_such
from slipstream.errors import BadInput

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, several: one in several,
    ast.NotIn: lambda one, several: one not in several,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
WHERE, WORK = "--where", "--work"
_EXPECTED = {
    WHERE: 'expected a condition such as "tensor <= 8 and fsdp * tensor == devices"',
    WORK: 'expected a number such as "batch * data * fsdp * 8192"',
}
Names = Mapping[str, tuple[Any, ...]]
"""what an expression may use: choices and sizes, each with its values"""


@dataclass(frozen=True)
class Condition:
    """One part of a condition; all parts must hold."""

    text: str
    names: frozenset[str]
    """the choices and sizes that it depends on"""
    _node: ast.expr

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it holds for these values; raises ArithmeticError if it divides by zero."""
        return _Reader(WHERE).truth(self._node, values)


def parse_where(text: str, names: Names) -> tuple[Condition, ...]:
    """The parts of a condition that `and` joins."""
    parts = _parts(_parsed(text, names, WHERE))
    return tuple(Condition(ast.unparse(one), _names(one), one) for one in parts)


def check_names(text: str, names: Names) -> None:
    """BadInput if `--work` can't be read or uses an unknown name."""
    _parsed(text, names, WORK)


def work_of(text: str, values: Mapping[str, Any]) -> float:
    """The value of `--work` for a combination and a machine's sizes."""
    tree = _parsed(text, {name: (value,) for name, value in values.items()}, WORK)
    try:
        found = float(_Reader(WORK).number(tree, values))
    except ArithmeticError as error:
        raise BadInput(f"--work {text!r} can't be computed ({error})") from None
    if not 0 < found < float("inf"):
        raise BadInput(f"--work {text!r} is {found:g}; expected a number above 0")
    return found


def _parsed(text: str, names: Names, option: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            # Python's advice about source code, such as odd backslashes.
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            tree = ast.parse(text.strip(), mode="eval").body
        for node in ast.walk(tree):
            _check(node, text, names, option)
        ast.unparse(tree)  # fails now if it is nested too deeply, not when it is evaluated
        return tree
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        raise BadInput(f"{option} {text!r} can't be read ({why}); {_EXPECTED[option]}") from None


def _parts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [part for one in node.values for part in _parts(one)]
    return [node]


def _names(node: ast.expr) -> frozenset[str]:
    return frozenset(one.id for one in ast.walk(node) if isinstance(one, ast.Name))


def _check(node: ast.AST, text: str, names: Names, option: str) -> None:
    """Refuse whatever `_Reader` does not evaluate."""
    if isinstance(node, ast.Name) and node.id not in names:
        of = [name for name, values in names.items() if node.id in values]
        hint = f" (a value of {of[0]} needs quotes: '{node.id}')" if of else ""
        raise BadInput(f"{option} {text!r}: {no_such('choice', node.id, names)}{hint}")
    if isinstance(node, ast.Constant):
        allowed = node.value is None or isinstance(node.value, (int, float, str))
    elif isinstance(node, (ast.BinOp, ast.UnaryOp)):
        allowed = type(node.op) in {*_ARITHMETIC, *_UNARY, ast.Not}
    elif isinstance(node, ast.Compare):
        allowed = all(type(one) in _COMPARISONS for one in node.ops)
    elif isinstance(node, ast.expr):
        allowed = isinstance(node, (ast.Name, ast.BoolOp, ast.Tuple, ast.List, ast.Set))
    else:
        return  # an operator, which its expression has checked, or a context
    if not allowed:
        raise BadInput(
            f"{option} {text!r}: {ast.unparse(node)} is not allowed; {_EXPECTED[option]}, of "
            "comparisons, + - * / // %, and, or, not, in"
        )


class _Reader:
    """Evaluates an expression; `option` names it in messages."""

    def __init__(self, option: str) -> None:
        self._option = option

    def truth(self, node: ast.expr, values: Mapping[str, Any]) -> bool:
        found = self.value(node, values)
        if not isinstance(found, bool):
            raise BadInput(
                f"{self._option}: {ast.unparse(node)} is {found!r}, not true or false; compare it: "
                f"{ast.unparse(node)} == …"
            )
        return found

    def value(self, node: ast.expr, values: Mapping[str, Any]) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return values[node.id]
            case ast.BoolOp(op=ast.And()):
                return all(self.truth(one, values) for one in node.values)
            case ast.BoolOp():
                return any(self.truth(one, values) for one in node.values)
            case ast.UnaryOp(op=ast.Not()):
                return not self.truth(node.operand, values)
            case ast.UnaryOp():
                return _UNARY[type(node.op)](self.number(node.operand, values))
            case ast.BinOp():
                compute = _ARITHMETIC[type(node.op)]
                return compute(self.number(node.left, values), self.number(node.right, values))
            case ast.Compare():
                return self.compared(node, values)
            case ast.Tuple() | ast.List() | ast.Set():
                return tuple(self.value(one, values) for one in node.elts)
        raise AssertionError(f"{type(node).__name__} was not refused")

    def number(self, node: ast.expr, values: Mapping[str, Any]) -> int | float:
        found = self.value(node, values)
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise BadInput(
                f"{self._option}: {ast.unparse(node)} is {found!r}; expected a number there"
            )
        return found

    def compared(self, node: ast.Compare, values: Mapping[str, Any]) -> bool:
        left = self.value(node.left, values)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node, values)
            try:
                holds = _COMPARISONS[type(op)](left, right)
            except TypeError:
                raise BadInput(
                    f"{self._option}: {ast.unparse(node)} compares {left!r} with {right!r}; "
                    "expected values that can be compared, such as two numbers"
                ) from None
            if not holds:
                return False
            left = right
        return True
