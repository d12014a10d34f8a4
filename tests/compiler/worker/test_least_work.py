"""The least that a traced function does: FLOPs by hand, stacks, dead code, equal expressions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from slipstream.compiler.worker.least_work import byte_size, least_work

N = 8
PRODUCT = 2 * N**3
F32 = jnp.zeros((N, N))


def found(function, *arguments, donate=()):
    traced = jax.jit(function, donate_argnums=donate).trace(*arguments)
    donated = [info.donated for info in jax.tree.leaves(traced.args_info)]
    return least_work(traced.jaxpr, donated)


def products(function, *arguments):
    """FLOPs in units of one product of N × N matrices."""
    return {dtype: count / PRODUCT for dtype, count in found(function, *arguments).flops.items()}


def looped(body, length=5, **options):
    return lambda x: jax.lax.scan(body, x, None, length=length, **options)


def twice(x):
    return x @ x + jnp.sin(x @ x)


def with_dead_code(x):
    unused = x @ x @ x
    jax.jit(lambda y: y @ y)(unused)
    return x @ x


def dead_in_loop(x):
    # The second part of the carry is used by nothing but itself.
    (kept, _), _ = jax.lax.scan(lambda c, _: ((c[0] @ x, c[1] @ x), None), (x, x), None, length=3)
    return kept


def branches(x):
    return jax.lax.cond(x[0, 0] > 0, lambda y: y @ y @ y, lambda y: y @ y, x)


def recomputed(prevent_cse):
    def block(x):
        return jnp.sin(jnp.sin(x @ x) @ x)

    loss = jax.checkpoint(block, prevent_cse=prevent_cse)
    return jax.value_and_grad(lambda x: loss(x).sum())


def whole_loss(x):
    return jnp.sin(jnp.sin(x @ x) @ x).sum()


@pytest.mark.parametrize(
    ("function", "times"),
    [
        (lambda x: x @ x, 1),
        (twice, 1),
        (with_dead_code, 1),
        (jax.jit(lambda x: jax.jit(twice)(x) + jax.jit(twice)(x)), 1),
        (looped(lambda c, _: (c @ c, None)), 5),
        (looped(lambda c, _: (looped(lambda d, _: (d @ d, None))(c)[0], None)), 25),
        (dead_in_loop, 3),
        (branches, 1),
        (lambda x: jax.lax.while_loop(lambda y: y.sum() < 0, lambda y: y @ y, x), 1),
        (lambda x: jax.nn.relu(x @ x), 1),
    ],
)
def test_products_that_must_be_computed(function, times):
    assert products(function, F32) == {"float32": times}


def test_what_is_recomputed_counts_unless_xla_may_merge_it():
    plain = products(jax.value_and_grad(whole_loss), F32)["float32"]
    assert products(recomputed(prevent_cse=False), F32)["float32"] == plain
    # The backward pass needs both products of the forward pass again.
    assert products(recomputed(prevent_cse=True), F32)["float32"] == plain + 2


def test_types_are_the_narrowest_that_xla_could_multiply():
    small = F32.astype(jnp.bfloat16)
    assert products(lambda a, b: a @ b, small, small) == {"bfloat16": 1}
    assert products(lambda a: a.astype(jnp.float32) @ a.astype(jnp.float32).T, small) == {
        "bfloat16": 1
    }
    tiny = F32.astype(jnp.float8_e4m3fn)
    assert products(lambda a, b: (a.astype(jnp.bfloat16) * 2.0) @ b, tiny, small) == {
        "float8_e4m3fn": 1
    }
    # A mask is no float: it is converted before.
    assert products(lambda a: (a > 0).astype(jnp.float32) @ a, F32) == {"float32": 1}
    algorithm = jax.lax.DotAlgorithmPreset.BF16_BF16_F32
    rounded = lambda a: jax.lax.dot(a, a, precision=algorithm)  # noqa: E731
    assert products(rounded, F32) == {"bfloat16": 1}


def test_inside_shard_map_every_device_computes():
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",))
    inside = jax.shard_map(lambda x: x @ x, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    assert products(inside, F32) == {"float32": 1}
    auto = (jax.sharding.AxisType.Auto,) * 2
    abstract = jax.sharding.AbstractMesh((4, 2), ("data", "model"), axis_types=auto)
    cut = jax.shard_map(
        lambda x: x @ x.T,
        mesh=abstract,
        in_specs=P("data"),
        out_specs=P("data"),
        axis_names={"data"},
        check_vma=False,
    )
    # Four devices along `data` multiply 2 × 8 by 8 × 2; `model` may cut each product.
    assert found(cut, F32).flops == {"float32": 4 * 2 * 2 * 2 * 8}


def test_convolutions_without_zeros():
    image, kernel = jnp.zeros((1, 10, 10, 3)), jnp.zeros((3, 3, 3, 4))

    def convolve(padding):
        names = ("NHWC", "HWIO", "NHWC")
        return lambda a, b: jax.lax.conv_general_dilated(
            a, b, (1, 1), padding, dimension_numbers=names
        )

    assert found(convolve("VALID"), image, kernel).flops == {"float32": 2 * 8 * 8 * 4 * 27}
    assert found(convolve("SAME"), image, kernel).flops == {}


def stacking(x):
    """Each iteration keeps its carry, twice, a cast of it, and things that need no memory."""

    def body(carry, sliced):
        kept = (carry, carry, carry.astype(jnp.bfloat16), sliced, jnp.ones((N, N)))
        return jnp.sin(carry), kept

    return jax.lax.scan(body, x, jnp.stack([x] * 4))[1]


def test_what_a_loop_stacks():
    assert found(stacking, F32).stacked_bytes == 4 * N * N * (4 + 2)
    assert found(lambda x: [one[0, 0, 0] for one in stacking(x)[:1]], F32).stacked_bytes == (
        4 * N * N * 4
    )
    keeping = lambda c, _: (jnp.sin(c), c)  # noqa: E731
    assert found(looped(keeping), F32).stacked_bytes == 5 * N * N * 4
    assert found(looped(keeping, unroll=True), F32).stacked_bytes == 0
    assert found(looped(keeping, length=1), F32).stacked_bytes == 0
    nested = looped(lambda c, _: (looped(keeping)(c)[1].sum(0), None), length=3)
    assert found(nested, F32).stacked_bytes == 5 * N * N * 4


def test_donated_arguments_that_may_be_gone_when_a_loop_has_stacked():
    def step(early, late, moments):
        kept = looped(lambda c, _: (jnp.sin(c), c))(early)[1].sum(0)
        return late - kept, 0.9 * moments + kept

    work = found(step, F32, F32, F32, donate=(0, 1, 2))
    assert work.is_reusable == [True, False, False]
    assert found(step, F32, F32, F32).is_reusable == [False] * 3


def test_what_is_read_and_written_completely():
    def step(params, table, token, unused):
        return params - 0.1 * table[token].sum(), table, jnp.cumsum(params)

    work = found(step, F32, F32, 3, F32)
    assert work.is_used == [True, True, True, False]
    assert work.is_read == [True, False, False, False]
    assert work.is_written == [True, False, False]


def test_weights_are_what_the_model_uses_not_what_the_optimizer_keeps():
    def step(params, first, frozen, batch):
        def loss(params):
            hidden = jax.checkpoint(lambda x, w: jnp.tanh(x @ w))(batch @ frozen, params["in"])
            return jnp.sum(jax.lax.scan(lambda x, w: (x @ w, None), hidden, params["layers"])[0])

        gradients = jax.grad(loss)(params)
        norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradients)))
        first = jax.tree.map(lambda m, g: 0.9 * m + g / norm, first, gradients)
        # Muon multiplies its momentum with itself, after the gradient was added.
        change = jax.tree.map(lambda m: m @ jnp.swapaxes(m, -1, -2), first)
        return jax.tree.map(jnp.subtract, params, change), first, frozen

    params = {"in": F32, "layers": jnp.zeros((3, N, N))}
    assert found(step, params, params, F32, F32).is_weight == [True] * 2 + [False] * 3 + [True]


def test_arrays_whose_sharding_is_stated_twice_in_a_row():
    mesh = Mesh(np.array(jax.devices()[:1]), ("fsdp",))
    in_pieces, whole = (NamedSharding(mesh, spec) for spec in (P("fsdp"), P()))

    def gathered(weight):
        small = jax.lax.with_sharding_constraint(weight.astype(jnp.bfloat16), in_pieces)
        return jax.lax.with_sharding_constraint(small.astype(jnp.bfloat16), whole)

    def step(layers, weight, x):
        # The same in all iterations, so XLA moves it out of the loop.
        def layer(x, one):
            return x @ gathered(one) @ gathered(weight), None

        x, _ = jax.lax.scan(layer, x, layers)
        return x @ gathered(weight) + gathered(weight)

    x = jnp.zeros((N, N), jnp.bfloat16)
    work = found(step, jnp.zeros((3, N, N)), F32, x)
    assert [(one.shape, one.bits, one.times) for one in work.gathers] == [
        ((N, N), 16, 3),
        ((N, N), 16, 1),
    ]
    assert {(one.before, one.after) for one in work.gathers} == {(in_pieces, whole)}


def test_types_below_a_byte_are_packed():
    assert byte_size((3, 4), jnp.dtype(jnp.int4)) == 6
    assert byte_size((3, 4), jnp.dtype(jnp.bfloat16)) == 24
