"""Programs that take and return what others do, and compute nothing."""

import pytest

from slipstream.jaxhooks.compiling import stablehlo_text
from slipstream.jaxhooks.stand_in import stand_in

STEP = """
module @jit_step attributes {mhlo.num_partitions = %(partitions)d : i32} {
  sdy.mesh @mesh = <["x"=4]>
  func.func public @main(%%arg0: tensor<128x8xf32> {%(donated)s}, %%arg1: tensor<128x8xf32>)
      -> (tensor<128x8xf32> {%(sharded)s}, tensor<bf16>, tensor<2xui32>) {
    %%0 = call @inner(%%arg0) : (tensor<128x8xf32>) -> tensor<128x8xf32>
    %%1 = stablehlo.add %%0, %%arg1 : tensor<128x8xf32>
    %%2 = stablehlo.constant dense<1.0> : tensor<bf16>
    %%3 = stablehlo.constant dense<1> : tensor<2xui32>
    return %%1, %%2, %%3 : tensor<128x8xf32>, tensor<bf16>, tensor<2xui32>
  }
  func.func private @inner(%%arg0: tensor<128x8xf32>) -> tensor<128x8xf32> {
    return %%arg0 : tensor<128x8xf32>
  }
}
"""
SHARDED = 'sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>'
ZERO = "stablehlo.constant dense<0.000000e+00> : tensor<128x8xf32>"


def made(partitions=4, donated="", sharded=""):
    step = STEP % {"partitions": partitions, "donated": donated, "sharded": sharded}
    found = stand_in(step.encode())
    return None if found is None else stablehlo_text(found)


@pytest.mark.parametrize("donated", ["jax.buffer_donor = true", "tf.aliasing_output = 0 : i32"])
def test_a_result_takes_the_place_of_a_donated_argument(donated):
    text = made(donated=donated)
    assert "return %arg0, " in text and ZERO not in text
    assert "stablehlo.add" not in text and "@inner" not in text


def test_a_result_with_a_sharding_of_its_own_is_zeros():
    text = made(sharded=SHARDED)
    assert ZERO in text and SHARDED in text and "stablehlo.add" not in text


def test_one_device_needs_no_shardings():
    assert ZERO in made(partitions=1)


def test_shardings_that_follow_from_the_step_need_all_of_it():
    assert made() is None
