"""A job of several processes on CPU, with or without Slipstream, and one thing that goes wrong.

    python ranks_job.py RANK SIZE PORT OUT FAULT

The program holds a collective, so ranks that ran different arms would hang or fail. What ran at
each call, and what came out, is written to OUT/<RANK>.json when the job ends.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import jax

RANK, SIZE, PORT = (int(word) for word in sys.argv[1:4])
OUT = Path(sys.argv[4])
FAULT, _, WHO = sys.argv[5].partition("@")
IS_ME = str(RANK) == WHO
CALLS = int(os.environ.get("JOB_CALLS", "0"))
"""or else until all ranks are settled, and some more"""
PLANTED = {"original": 0.010, "no fusion": 0.008}

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
# Where a rank is killed, the others wait for so long; elsewhere nobody is to be taken for dead.
IS_TO_DIE = FAULT.startswith("kill-") or (FAULT == "without" and WHO)
HEARTBEAT_S, SHUTDOWN_S = (10, 5) if IS_TO_DIE else (300, 300)
jax.distributed.initialize(
    f"127.0.0.1:{PORT}",
    SIZE,
    RANK,
    heartbeat_timeout_seconds=HEARTBEAT_S,
    shutdown_timeout_seconds=SHUTDOWN_S,
)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax._src import distributed  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

MESH = Mesh(np.array(jax.devices()), ("x",))


def step(state, batch):
    local = jnp.tanh(batch @ state)
    return state + 1e-3 * jax.lax.with_sharding_constraint(
        local.T @ local / local.shape[0], NamedSharding(MESH, PartitionSpec())
    ), jnp.exp(local).sum()


def inputs():
    batch = np.random.default_rng(0).normal(size=(8 * SIZE, 16)).astype(np.float32)
    state = np.eye(16, dtype=np.float32)
    rows = NamedSharding(MESH, PartitionSpec("x"))
    everywhere = NamedSharding(MESH, PartitionSpec())
    return (
        jax.make_array_from_callback(state.shape, everywhere, lambda i: state[i]),
        jax.make_array_from_callback(batch.shape, rows, lambda i: batch[i]),
    )


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def optimized(jitted, trace):
    """The step, optimised with planted times, and with what FAULT says gone wrong."""
    from slipstream.api.optimize import Optimized
    from slipstream.consensus.patience import Patience
    from slipstream.experiment import controller as controller
    from slipstream.experiment import plan
    from slipstream.experiment.variants import Variant
    from slipstream.jaxhooks.compiled_program import CompiledProgram
    from slipstream.jaxhooks.hooks import HOOKS
    from slipstream.jaxhooks.profiler import ProfilerFailed, ProfilerSession

    def timer(arm, run):
        result = run()
        jax.block_until_ready(result)
        return result, PLANTED[arm.name]

    runner = type(HOOKS)._runner

    def traced(runtime, replicated, program):
        if program.name == "jit_step":
            is_original = program.executable is program.original
            trace.append((program.calls, "original" if is_original else "other"))
        return runner(runtime, replicated, program)

    def kill_in(name):
        before = getattr(controller.Controller, name)

        def state(self, *arguments):
            if self._calls or name != "_capture":
                die()
            return before(self, *arguments)

        setattr(controller.Controller, name, state)

    def fails(*arguments, **named):
        raise (ProfilerFailed if FAULT == "profiler" else RuntimeError)("planted")

    type(HOOKS)._runner = traced
    folder = OUT / "run"
    if IS_ME:
        if FAULT == "profiler":
            ProfilerSession.start = fails
        elif FAULT == "compile":
            CompiledProgram.recompile = fails
        elif FAULT == "disk":
            (OUT / "full").write_text("no folder can be made in here")
            folder = OUT / "full" / "run"
        elif FAULT == "other-program":
            before = CompiledProgram.recompile
            CompiledProgram.recompile = lambda self, flags, costs=None: before(self, {}, costs)
        elif FAULT.startswith("kill-"):
            kill_in(f"_{FAULT.removeprefix('kill-')}")
    variants = (Variant("no fusion", {"xla_disable_hlo_passes": "fusion"}),)
    # In vain, where one rank is absent: this ends it while the job goes on.
    patience = Patience(background_s=1.0) if FAULT == "absent" else Patience()
    plan_ = plan.ExperimentPlan(folder, start=5, variants=variants, rounds=8, patience=patience)
    return Optimized(jitted, plan_, timer)


def digest(*arrays):
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.asarray(array.addressable_data(0)).tobytes())
    return found.hexdigest()


def is_over(number):
    """One answer for all ranks, after the same call."""
    client, name = distributed.global_state.client, f"job/{number}"
    client.key_value_set(f"{name}/{RANK}", str(int(getattr(call, "is_settled", True))))
    settled = [client.blocking_key_value_get(f"{name}/{rank}", 300_000) for rank in range(SIZE)]
    return number >= CALLS and set(settled) == {"1"}


trace: list = []
call = jax.jit(step, donate_argnums=0)
is_optimized = FAULT != "without" and not (FAULT == "absent" and IS_ME)
if is_optimized:
    call = optimized(call, trace)
state, batch = inputs()
results, goes_on = [], True
while goes_on:
    for _ in range(25):
        state, loss = call(state, batch)
        results.append((digest(state), digest(loss)))
        if FAULT == "without" and WHO and IS_ME and len(results) == 12:
            die()
        if not getattr(call, "is_settled", True):
            time.sleep(0.01)
    goes_on = not is_over(len(results))
report = {"results": results, "trace": trace}
if is_optimized:
    (controller,) = call._controllers.values()
    outcome = controller.outcome
    report |= {
        "settled": call.is_settled,
        "chosen": outcome.chosen,
        "problem": outcome.problem,
        "costs": hashlib.sha256(outcome.costs_bytes or b"").hexdigest(),
        "times": {arm.name: arm.times_s for arm in outcome.arms},
        "errors": {arm.name: arm.error for arm in outcome.arms if arm.error},
    }
(OUT / f"{RANK}.json").write_text(json.dumps(report))
