"""Combinations in a worker process: what ends it, and what the others notice of that."""

import pytest

from slipstream.errors import BadInput
from slipstream.plan.measure.arms import Arms, Prepared
from slipstream.results.planning import INVALID
from slipstream.results.tuning import HANG, NO_FIT
from slipstream.tune.measure.ab_window import ArmFailed

MODEL = """
import time
import jax, jax.numpy as jnp

BUILT = []

def build(devices, *, trouble: str = ""):
    if trouble == "raises":
        raise ValueError("batch must divide 64")
    BUILT.append(trouble)
    w = jax.ShapeDtypeStruct((8, 8), jnp.float32)

    def stop(x):
        if trouble == "hang":
            time.sleep(60)
        if trouble == "large" or trouble == "crowded" and len(BUILT) > 1:
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate")
        return x

    def step(w, x):
        if trouble:
            x = jax.pure_callback(stop, w, x)
        return w + x, w.sum()

    return jax.jit(step, donate_argnums=0), w, w
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    file = tmp_path_factory.mktemp("arms") / "model.py"
    file.write_text(MODEL)
    return str(file)


def test_what_fails_is_told_apart_and_the_others_go_on(model):
    with Arms(model, "build", use_gpu=False, timeout_s=120) as arms:
        names = ("raises", "large", "crowded", "")
        found = arms.prepare({name or "fine": {"trouble": name} for name in names})
        failed = {name: (one.status) for name, one in found.items() if isinstance(one, ArmFailed)}
        assert failed == {"raises": INVALID, "large": NO_FIT}
        assert "Out of memory" in found["large"].note
        # It fits once nothing else was on the devices.
        assert isinstance(found["crowded"], Prepared)
        fine = found["fine"]
        assert fine.measured_memory_bytes == fine.memory_bytes > 0 and fine.first.is_finite
        visit = arms.visit("fine", 3)
        assert len(visit.seconds) == 3 and min(visit.seconds) <= visit.step_s <= max(visit.seconds)


def test_a_combination_that_hangs_is_ended(model):
    with Arms(model, "build", use_gpu=False, timeout_s=120) as arms:
        arms._compile_all({"fine": {}, "hang": {"trouble": "hang"}})
        arms._timeout_s = 1.0
        with pytest.raises(ArmFailed) as raised:
            arms.visit("hang")
        assert raised.value.status == HANG
        arms._timeout_s = 120.0
        assert arms.visit("fine", 1).is_finite


def test_after_a_restart_those_that_ran_are_compiled_together(model):
    with Arms(model, "build", use_gpu=False, timeout_s=120) as arms:
        arms.prepare({"one": {}, "other": {}, "raises": {"trouble": "raises"}})
        arms.close()
        arms.visit("other", 1)
        assert set(arms._compiled) == {"one", "other"}


def test_a_target_that_can_t_be_imported_is_an_error(tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    with (
        Arms(str(tmp_path / "broken.py"), "build", use_gpu=False, timeout_s=120) as arms,
        pytest.raises(BadInput, match="can't be run here: .*no_such_module"),
    ):
        _ = arms.here
