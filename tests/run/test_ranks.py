"""`slipstream run` on every rank of a job, in real processes with JAX's coordination service."""

import json
import os
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from free_port import free_port
from race_lost import RaceLost
from run_jobs import LONGEST_S, OTHER, command, environment, is_alive, start, wait_until
from slipstream.costs.files import read_costs
from slipstream.experiment.phase_times import PHASES, WAIT
from slipstream.run.run_dir import done_facts, read_json

JOB = """
import hashlib, json, os, sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

rank, size, steps = (int(os.environ[f"JOB_{n}"]) for n in ("RANK", "SIZE", "STEPS"))
heartbeat_s, shutdown_s = json.loads(os.environ["JOB_PATIENCE_S"])
jax.distributed.initialize(
    sys.argv[1], size, rank,
    heartbeat_timeout_seconds=heartbeat_s, shutdown_timeout_seconds=shutdown_s,
)
mesh = Mesh(np.array(jax.devices()), ("data",))
cut, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

def step(w, x):
    y = jnp.tanh(x @ w)
    return jnp.roll(0.99 * w, 1, 0) + 1e-3 * jnp.cos(x.T @ y), jnp.mean(y)

step = jax.jit(step, in_shardings=(whole, cut), out_shardings=whole, donate_argnums=0)
weights = np.linspace(-0.1, 0.1, 1024, dtype=np.float32).reshape(32, 32)
w = jax.make_array_from_callback((32, 32), whole, lambda index: weights[index])
x = jax.make_array_from_callback((32, 32), cut, lambda index: np.eye(32, dtype=np.float32)[index])
end, number, goes_on = time.monotonic() + float(os.environ["JOB_LONGEST_S"]), 0, True
while goes_on:
    for _ in range(50):
        w, loss = step(w, x)
        number += 1
        if number == 1:
            print("begun", flush=True)
    # All ranks end after the same step.
    wanted = number < steps or os.path.exists(os.environ["JOB_GOES_ON"]) and time.monotonic() < end
    goes_on = bool(multihost_utils.broadcast_one_to_all(np.int32(wanted)))
digest = hashlib.sha256(np.asarray(w.addressable_data(0)).tobytes()).hexdigest()[:16]
print("rank", rank, "end", number, float(loss), digest)
"""


LONG_S = (300, 300)
"""for which JAX waits for a rank's heartbeat, and for all ranks at the end"""
SHORT_S = (10, 5)
"""the same where one is killed: the others wait for so long"""
SIZE = 4
"""ranks of the job that is profiled first"""
MANY = 16
"""ranks of the job that is started once"""


class Ranks:
    """All ranks of a job, with us or without."""

    def __init__(
        self, folder, name, size, steps=50, *options,
        with_us=True, is_short=False, is_told=True, is_to_die=False,
    ):  # fmt: skip
        self.out = folder / name
        self.goes_on = folder / f"{name}.goes-on"
        if not is_short:
            self.goes_on.touch()
        job = [sys.executable, "job.py", f"localhost:{free_port()}"]
        self.size = size
        self.outputs = [folder / f"{name}{rank}.txt" for rank in range(size)]
        self.errors = [folder / f"{name}{rank}.err" for rank in range(size)]
        self.processes = []
        for rank in range(size):
            more = (*OTHER, "--rounds", "8", *options)
            more = ("--rank", f"{rank}/{size}", *more) if is_told else more
            own = self.out if is_told else self.out / str(rank)
            words = command(own, job, *more) if with_us else job
            env = environment(
                JOB_RANK=str(rank), JOB_SIZE=str(size), JOB_STEPS=str(steps),
                JOB_GOES_ON=str(self.goes_on), JOB_LONGEST_S=str(LONGEST_S),
                JOB_PATIENCE_S=json.dumps(SHORT_S if is_to_die else LONG_S),
                SLIPSTREAM_SESSION=f"{os.getpid()}-{name}",
            )  # fmt: skip
            with self.outputs[rank].open("w") as out, self.errors[rank].open("w") as err:
                self.processes.append(start(words, folder, env, out, err))

    def status(self, phase, rank=1):
        return read_json(self.out / phase / f"rank{rank}" / "status.json") or {}

    def wait_for(self, look):
        """While all of them run."""
        wait_until(look, self.first_code, lambda: self.said)

    def first_code(self):
        return next((code for p in self if (code := p.poll()) is not None), None)

    def wait(self):
        return [code if code >= 0 else 128 - code for code in (p.wait(LONGEST_S) for p in self)]

    def __iter__(self):
        return iter(self.processes)

    def end_all(self):
        self.goes_on.unlink(missing_ok=True)
        phases = [(phase, rank) for phase in ("profile", "compare") for rank in range(self.size)]
        pids = [self.status(*one).get("process") for one in phases]
        for pid in [*(process.pid for process in self), *filter(None, pids)]:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)

    @property
    def printed(self):
        return [file.read_text() for file in self.outputs]

    @property
    def said(self):
        return "\n".join(file.read_text()[-3000:] for file in self.errors)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "job.py").write_text(JOB)
    return folder


def until_settled(ranks):
    """The whole loop, until all ranks have their receipts."""
    try:
        # Not `**`: folders of recordings come and go.
        patterns = ("compare/rank*/done.json", "*/compare/rank*/done.json")
        ranks.wait_for(
            lambda: sum(len(list(ranks.out.glob(one))) for one in patterns) == ranks.size
        )
        ranks.goes_on.unlink()
        ranks.codes = ranks.wait()
    finally:
        ranks.end_all()
    return ranks


@pytest.fixture(scope="module")
def ranks(place):
    return until_settled(Ranks(place, "out", SIZE, 50, "--profile-first"))


@pytest.fixture(scope="module")
def many(place):
    return until_settled(Ranks(place, "many", MANY))


def assert_ends_as_without_us(ranks, place):
    assert ranks.codes == [0] * ranks.size, ranks.said
    steps = int(ranks.printed[0].split("end ")[1].split()[0])
    assert steps > 50
    name = f"{ranks.out.name}-without"
    without = Ranks(place, name, ranks.size, steps, with_us=False, is_short=True)
    assert without.wait() == [0] * ranks.size
    assert without.printed == ranks.printed


def assert_one_decision(ranks):
    """Costs of all ranks, with which all compile; the same times, programs and choice on all."""
    assert done_facts(ranks.out / "costs")["ranks"] == ranks.size
    (one,) = read_costs(ranks.out / "costs" / "costs.pb").programs
    # Each rank recorded three steps, of which the first may be cut.
    least = 2 * ranks.size
    assert all(cost.executions is None or cost.executions >= least for cost in one.costs.values())
    first, *others = (
        json.loads((ranks.out / "compare" / f"rank{rank}" / "comparison.json").read_text())
        for rank in range(ranks.size)
    )
    for other in others:
        assert other["chosen"] == first["chosen"] and other["why"] == first["why"]
        assert [arm["name"] for arm in other["arms"]] == [arm["name"] for arm in first["arms"]]
        # Each of them counts the slowest rank's times.
        assert [arm["step_us"] for arm in other["arms"]] == [a["step_us"] for a in first["arms"]]


def test_all_ranks_end_as_without_us(ranks, place):
    assert_ends_as_without_us(ranks, place)


def test_one_rank_speaks_for_all(ranks):
    first, *others = (file.read_text() for file in ranks.errors)
    assert "verdict" in first
    assert not any("verdict" in said or "3 costs" in said for said in others)


def test_costs_are_merged_and_all_compile_with_them(ranks):
    assert_one_decision(ranks)
    assert json.loads((ranks.out / "receipt.json").read_text())["arms"]


def test_sixteen_ranks_end_as_without_us(many, place):
    assert_ends_as_without_us(many, place)


def test_sixteen_ranks_decide_as_one(many):
    assert_one_decision(many)
    receipt = json.loads((many.out / "receipt.json").read_text())
    assert receipt["arms"] and receipt["ranks"]["count"] == receipt["ranks"]["reported"] == MANY
    seconds = receipt["ranks"]["seconds"]
    assert list(seconds) == [*PHASES, WAIT]
    assert all(0 <= found["median"] <= found["slowest"] for found in seconds.values())


def test_ranks_that_only_jax_knows_decide_as_one_and_say_so(place):
    """Their script tells `jax.distributed.initialize`, and each has a folder of its own."""
    ranks = Ranks(place, "untold", 2, is_told=False)
    assert until_settled(ranks).codes == [0, 0], ranks.said
    first, second = (json.loads((ranks.out / f"{n}" / "receipt.json").read_text()) for n in (0, 1))
    assert first["arms"] and first["ranks"]["count"] == second["ranks"]["count"] == 2
    assert [first["chosen"], first["why"]] == [second["chosen"], second["why"]]
    note = "jax.distributed has 2 processes, but slipstream run knew of 1"
    for receipt in (first, second):
        assert len([text for text in receipt["notes"] if text.startswith(note)]) == 1
        assert receipt["phases"]["costs"]["ranks"] == 2


# One rank's process is killed: JAX ends the others, with us as without.


@pytest.fixture(scope="module")
def killed(place, ranks):
    """At once: they wait for JAX to notice, most of the time."""
    for part in ("profile", "costs"):
        shutil.copytree(ranks.out / part, place / "killed-compare" / part)
    started = [
        Ranks(place, "killed", 2, with_us=False, is_to_die=True),
        Ranks(
            place, "killed-profile", 2, 50, "--profile-first", "--capture", "5:1000000",
            is_to_die=True,
        ),
        Ranks(place, "killed-compare", SIZE, 50, "--rounds", "1000000", is_to_die=True),
    ]  # fmt: skip
    kills = (kill_begun, kill_capturing, kill_comparing)
    with ThreadPoolExecutor(len(started)) as pool:
        for ended, codes in zip(started, pool.map(kill_and_wait, started, kills), strict=True):
            ended.codes = codes
    return started


def kill_and_wait(ranks, kill):
    try:
        kill(ranks)
        return ranks.wait()
    except AssertionError as problem:
        if ranks.first_code() is None:
            raise
        raise RaceLost("a rank ended before it was killed") from problem
    finally:
        ranks.end_all()


def kill_begun(ranks):
    ranks.wait_for(lambda: all("begun" in printed for printed in ranks.printed))
    ranks.processes[1].kill()


def kill_capturing(ranks):
    kill_in(ranks, "profile", "capturing")


def kill_comparing(ranks):
    kill_in(ranks, "compare", "comparing")


def kill_in(ranks, phase, state):
    ranks.wait_for(lambda: ranks.status(phase).get("state") == state)
    os.kill(ranks.status(phase)["process"], signal.SIGKILL)


@pytest.mark.retry("JAX takes a rank that is held up for ten seconds for dead")
@pytest.mark.parametrize("number", [1, 2], ids=["profile", "compare"])
def test_a_killed_rank_ends_the_job_as_without_us(killed, number):
    without, ended = killed[0], killed[number]
    if not without.codes[1] == ended.codes[1] == 137:
        raise RaceLost(f"a rank ended before it was killed: {without.said} {ended.said}")
    survivors = [code for rank, code in enumerate(ended.codes) if rank != 1]
    assert without.codes[0] != 0 and set(survivors) == {without.codes[0]}, ended.said
    phase = ("profile", "compare")[number - 1]
    assert not any(done_facts(ended.out / phase / f"rank{rank}") for rank in range(ended.size))
    state = {"profile": "capturing", "compare": "comparing"}[phase]
    assert f"ended while it was {state}" in read_json(ended.out / "receipt.json")["why"]
    # The job is not started again after a profile run that ended by itself.
    assert (ended.out / "compare").exists() == (phase == "compare")
