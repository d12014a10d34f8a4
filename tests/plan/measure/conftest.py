"""Plans without a search: candidates with made-up predictions, in a folder as it leaves it."""

from contextlib import closing

import pytest

from slipstream.compiler.compile import machine_of
from slipstream.plan.plan_folder import PlanConfig, write_plan
from slipstream.plan.search.objective import Objective
from slipstream.plan.search.search import open_study
from slipstream.plan.space.choices import Choice
from slipstream.plan.space.search_space import SearchSpace
from slipstream.plan.space.space import space_of
from slipstream.results.tuning import NO_FIT, OK
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.seeds import SEARCH, Suggestion

MODEL = """
import os, time
import jax, jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def build(devices, *, fsdp: int = 8, work: int = 1, trouble: str = "none"):
    if trouble == "raises":
        raise ValueError("work must divide the batch")
    mesh = Mesh(np.array(devices[:fsdp]), ("fsdp",))
    w = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P("fsdp")))

    def end(x):
        os._exit(3)

    def step(w, x):
        for _ in range(work):
            w = jnp.tanh(w @ x) + w
        if trouble == "crash":
            w = jax.pure_callback(end, jax.ShapeDtypeStruct(w.shape, w.dtype), w)
        return w, w.sum()

    options = {"xla_no_such_flag": True} if trouble == "refused" else None
    return jax.jit(step, donate_argnums=0, compiler_options=options), w, w
"""
TROUBLES = ("none", "raises", "refused", "crash")


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A function that makes a plan of candidates: (choices, predicted µs, work)."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

    def make(candidates, machines=("8xH200",), jaxlib="0.10.2"):
        (tmp_path / "model.py").write_text(MODEL)
        works = sorted({one[0].get("work", 1) for one in candidates})
        values = {"fsdp": (8,), "work": tuple(works), "trouble": TROUBLES}
        choices = tuple(
            Choice(name, some, default=some[0], has_default=True) for name, some in values.items()
        )
        folder = tmp_path / f"plan{len(list(tmp_path.iterdir()))}"
        target = f"{tmp_path / 'model.py'}:build"
        config = PlanConfig(target, machines, choices, Objective(), jaxlib)
        write_plan(folder, config)
        space = SearchSpace(choices, space_of(choices, machine_of(machines[0]), ""))
        with closing(open_study(folder, config, space, machines[0])) as study:
            for chosen, step_us, work in candidates:
                settings = _settings({"fsdp": 8, "work": 1, "trouble": "none", **chosen})
                study.enqueue([Suggestion(settings, SEARCH)])
                study.tell(study.ask(), _predicted(step_us, work, str(settings)))
        return folder

    return make


def _settings(values):
    return {k: f'"{v}"' if isinstance(v, str) else str(v) for k, v in values.items()}


def _predicted(step_us, work, program):
    if step_us is None:
        return Outcome(NO_FIT, memory_bytes=1 << 40, details={"work": work, "unit": "tokens"})
    return Outcome(
        OK,
        step_us=step_us,
        low_us=step_us * 0.9,
        high_us=step_us * 1.1,
        memory_bytes=20_000,
        program=program,
        value=step_us / work,
        parts_us={"products": step_us},
        details={"work": work, "unit": "tokens", "limits": []},
    )
