"""What a build function's signature lets vary."""

import enum
from typing import Annotated, Literal

import numpy as np
import pytest

from slipstream import Divisor, Range
from slipstream.compiler.compile import compilation
from slipstream.compiler.targets import Target, identify
from slipstream.errors import BadInput
from slipstream.machines.topology import machine
from slipstream.plan.space.choices import choices_of
from slipstream.plan.space.parameters import Parameter, parameters_of, read_parameters
from slipstream.plan.space.space import space_of

HALF = np.float64(0.5)


class Remat(enum.Enum):
    NONE = 0
    FULL = 1


def kinds(build):
    return {one.name: (one.kind, one.values) for one in parameters_of(build)}


def test_choices_by_their_types():
    def build(
        devices,
        *,
        fsdp: Divisor,
        data: Divisor | None = None,
        pipeline: Divisor[1, 4] = 4,
        expert: Divisor[2, 4] | None = None,
        tensor: Literal[1, 2, 4] = 1,
        remat: Remat = Remat.FULL,
        scan: bool = True,
        batch: Range[1, 8] = 3,
        chunk: Annotated[int, Range(2, 4)] | None = None,
        kernel: Literal["flash"] = None,
        window: Annotated[Annotated[int, "tokens"] | None, Range(2, 4)] = 4,
    ): ...

    found = parameters_of(build)
    assert all(one.varies for one in found)
    assert {one.name: one.enum for one in found if one.enum} == {"remat": "Remat"}
    assert kinds(build) == {
        "fsdp": ("divisor", ()),
        "data": ("divisor", ()),
        "pipeline": ("divisor", (1, 4)),
        "expert": ("divisor", (2, 4)),
        "tensor": ("values", (1, 2, 4)),
        "remat": ("values", ("NONE", "FULL")),
        "scan": ("values", (False, True)),
        "batch": ("range", (1, 2, 3, 4, 8)),
        "chunk": ("range", (2, 4, None)),
        "kernel": ("values", ("flash", None)),
        "window": ("range", (2, 4, None)),
    }
    assert [(one.default, one.has_default) for one in found] == [
        (None, False),
        (None, True),
        (4, True),
        (None, True),
        (1, True),
        ("FULL", True),
        (True, True),
        (3, True),
        (None, True),
        (None, True),
        (4, True),
    ]
    assert [Parameter.from_json(one.to_json()) for one in found] == list(found)


def test_what_is_no_choice():
    def build(
        mesh,
        layers=4,
        rate: Annotated[float, "of Adam"] = 0.1,
        scan=True,
        name=None,
        words=(),
        share=HALF,
        remat=Remat.FULL,
        odd: Literal[b"x"] = b"x",
        both: Range[1, 2] | float = 1,
        *rest,
        size: int,
        missing: "Model",  # noqa: F821
        **more,
    ): ...

    assert not any(one.varies for one in parameters_of(build))
    assert {name: kind for name, (kind, _) in kinds(build).items()} == {
        "layers": "int",
        "rate": "float",
        "scan": "values",
        "name": "any",
        "words": "other",
        "share": "float",
        "remat": "values",
        "odd": "other",
        "both": "other",
        "size": "int",
        "missing": "other",
    }


@pytest.mark.parametrize(
    ("annotation", "default", "message"),
    [
        (Literal["a", "b"], "c", "x has the default 'c'; its type says one of a, b: change either"),
        (Range[1, 8], 9, "x has the default 9; its type says a whole number from 1 to 8"),
        (Range[1, 8], 1.5, "its type says a whole number from 1 to 8"),
        (Divisor, 0, "its type says a positive number of devices"),
        (Divisor[2, 4], 1, "x has the default 1; its type says one of 2, 4: change either"),
        (Range, 1, r"x: Range has no ends; write Range\[1, 64\]"),
    ],
)
def test_signatures_that_contradict_themselves(annotation, default, message):
    def build(devices, x=default): ...

    build.__annotations__["x"] = annotation
    with pytest.raises(BadInput, match=message):
        parameters_of(build)


def test_an_argument_that_has_no_name():
    def build(devices, /): ...

    with pytest.raises(BadInput, match="devices can't be passed by its name; remove the /"):
        parameters_of(build)


TARGET = """
from __future__ import annotations
import enum
from typing import Literal
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import slipstream

class Activation(enum.Enum):
    TANH = "tanh"
    NONE = "none"

def build(devices, *, data: slipstream.Divisor = 1, model: slipstream.Divisor = 8,
          activation: Activation = Activation.TANH, double: bool = False,
          batch: slipstream.Range[8, 64] = 8, dtype: Literal["f32", "bf16"] = "bf16"):
    kinds = [type(one) for one in (data, model, activation, double, batch, dtype)]
    if kinds != [int, int, Activation, bool, int, str]:
        raise TypeError(kinds)
    mesh = Mesh(np.array(devices).reshape(data, model), ("data", "model"))
    cut = lambda *spec: NamedSharding(mesh, P(*spec))

    def step(weights, x):
        x = jnp.tanh(x) if activation is Activation.TANH else x
        return (2 if double else 1) * (x @ weights)

    kind = jnp.float32 if dtype == "f32" else jnp.bfloat16
    shapes = [jax.ShapeDtypeStruct(shape, kind) for shape in ((64, 64), (batch, 64))]
    return jax.jit(step, in_shardings=(cut(None, "model"), cut("data"))), *shapes

def backwards(devices, *, batch: slipstream.Range[64, 8] = 8): ...
"""


@pytest.fixture
def target(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    (tmp_path / "toy.py").write_text(TARGET)
    return str(tmp_path / "toy.py")


def test_combinations_reach_the_build_function_as_its_types(target):
    """The signature is read in one process, and two combinations are compiled in others."""
    label = f"{target}:build"
    vary = ["data=2,4", "activation=none", "double=true", "batch=16", "dtype=f32"]
    choices = choices_of(label, read_parameters(identify(label)), vary)
    space = space_of(choices, machine("8xH100"))
    assert [str(one) for one in space] == [
        "data=2 model=4 activation=NONE double=True batch=16 dtype=f32",
        "data=4 model=2 activation=NONE double=True batch=16 dtype=f32",
    ]
    quick = {"xla_gpu_enable_triton_gemm": False, "xla_backend_optimization_level": 0}
    for one, (data, model) in zip(space, [(2, 4), (4, 2)], strict=True):
        found = compilation(label, one.keywords, on="8xH100", flags=quick)
        assert found.devices == 8
        assert found.memory.arguments_bytes == 4 * 64 * (64 // model + 16 // data)
        assert not any("tanh" in instruction.opcode for instruction in found.program.instructions)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("biuld", "has no function biuld; did you mean build?"),
        ("backwards", r"toy.py:backwards: Range\[64, 8\] is not a range; expected two whole"),
    ],
)
def test_signatures_that_cannot_be_read(target, function, message):
    with pytest.raises(BadInput, match=message):
        read_parameters(identify(f"{target}:{function}"))


def test_a_program_has_no_parameters():
    with pytest.raises(BadInput, match="step.mlir is a program.*expected FILE.py:FUNCTION"):
        read_parameters(Target("stablehlo", "step.mlir", b""))
