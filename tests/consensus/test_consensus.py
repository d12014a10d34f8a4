"""Several processes agree on what each call runs: in threads with planted faults, and for real."""

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from free_port import free_port
from race_lost import RaceLost
from slipstream.consensus import consensus as consensus_module
from slipstream.consensus.consensus import Consensus, job_id
from slipstream.consensus.kvstore import StoreUnavailable
from slipstream.consensus.patience import Patience
from slipstream.experiment import agreement, recordings
from slipstream.experiment.agreement import disagreement
from slipstream.experiment.controller import Controller, State
from slipstream.experiment.plan import ExperimentPlan
from slipstream.experiment.receipt import read_receipt
from slipstream.experiment.rounds import Rounds
from slipstream.experiment.variants import Arm, Variant
from slipstream.jaxhooks.listener import JobFailed

LONGEST_S = 300.0
JOB = Path(__file__).parents[1] / "run" / "ranks_job.py"


class MemoryStore:
    """What the ranks of one simulated job share."""

    def __init__(self):
        self.values = {}
        self.lock = threading.Condition()
        self.is_over = False

    def end(self):
        """The job is over: nobody waits for who was killed."""
        with self.lock:
            self.is_over = True
            self.lock.notify_all()

    def put(self, key, value):
        with self.lock:
            self.lock.notify_all()
            return self.values.setdefault(key, value) is value

    def get(self, key, wait_s=0.0):
        with self.lock:
            self.lock.wait_for(lambda: key in self.values or self.is_over, wait_s)
            if self.is_over:
                raise Killed
            return self.values.get(key)

    def with_prefix(self, prefix):
        with self.lock:
            start = f"{prefix}/"
            return {k.removeprefix(start): v for k, v in self.values.items() if k.startswith(start)}


class Killed(BaseException):
    """A process that is gone."""


class Faulty:
    """A rank's way to the store: operation number `at` goes wrong, before or after it happens."""

    def __init__(self, store, at, how):
        self.store, self.at, self.how, self.count = store, at, how, 0
        self.is_dead = False

    def die(self):
        self.is_dead = True
        raise Killed

    def __getattr__(self, name):
        operation = getattr(self.store, name)

        def call(*arguments):
            if self.is_dead:
                raise Killed
            self.count += 1
            is_now = self.at <= self.count < self.at + (3 if self.how == "cut off" else 1)
            if is_now and self.how == "cut off":
                raise StoreUnavailable("planted")
            if is_now and self.how == "killed before":
                self.die()
            result = operation(*arguments)
            if is_now and self.how == "unsure":
                raise StoreUnavailable("planted, though it took place")
            if is_now and self.how == "killed after":
                self.die()
            return result

        return call


class FakeSession:
    def __init__(self, folder, options=None):
        self.folder = folder

    def start(self):
        pass

    def stop(self):
        return self.folder

    def abandon(self):
        pass


@pytest.fixture
def simulated(monkeypatch):
    monkeypatch.setattr(recordings, "ProfilerSession", FakeSession)
    monkeypatch.setattr(consensus_module, "RETRY_S", 0.002)
    monkeypatch.setattr(agreement, "MEETING_INTERVAL_S", 0.005)
    others = threading.excepthook

    def hook(happened):
        if happened.exc_type is not Killed:
            others(happened)

    monkeypatch.setattr(threading, "excepthook", hook)


class Rank:
    """One simulated process: its program, its loop, and which arm ran at each call."""

    def __init__(self, number, size, store, tmp_path, patience_s=0.1, **changes):
        self.number = number
        self.store = store
        self.compiled = SimpleNamespace(
            name="jit_step", calls=0, original="original", executable="original",
            is_settled=False, lock=threading.RLock(),
        )  # fmt: skip
        self.compiled.run_with = lambda executable: setattr(self.compiled, "executable", executable)
        self.ran = {}
        self.planted = {"original": 1.0, "a": 0.9, "b": 1.1} | changes.get("planted", {})
        self.fails = changes.get("fails", set())
        patience = patience_s
        if not isinstance(patience, Patience):
            patience = Patience(patience_s, patience_s, patience_s, patience_s)
        consensus = Consensus(tuple(range(size)), number, store, "job", patience)
        plan = ExperimentPlan(tmp_path, start=2, steps=2, rounds=8, patience=patience)
        prepare = changes.get("prepare", self.prepare)
        self.controller = Controller(self.compiled, plan, prepare, self.timer, consensus)

    def prepare(self, watched, plan, outcome):
        arms = [Arm(Variant(name), executable=name) for name in self.planted]
        outcome.arms = arms

    def timer(self, arm, run):
        if arm.name in self.fails:
            raise RuntimeError("RESOURCE_EXHAUSTED: planted")
        return run(), self.planted[arm.name]

    def call(self):
        if getattr(self.store, "is_dead", False):
            raise Killed
        self.compiled.calls += 1
        return self.controller.on_call((), self.run)

    def run(self):
        self.ran[self.compiled.calls] = self.compiled.executable
        return 0


PATIENCE = Patience(step_s=0.2, meeting_s=0.05, background_s=60.0)
MUCH_PATIENCE = Patience(step_s=60.0, meeting_s=0.05, background_s=60.0)
"""with which a busy machine does not look like a rank that is gone"""


def simulate(ranks, calls=None, pause_s=0.0005):
    """Each rank makes so many calls, or as many as it takes and some more."""
    end = time.monotonic() + LONGEST_S

    def job(rank):
        left = calls
        try:
            while left != 0 and time.monotonic() < end:
                rank.call()
                if left is not None:
                    left -= 1
                elif rank.controller.done.is_set():
                    left = 10
                time.sleep(pause_s)
        except Killed:
            pass

    threads = [threading.Thread(target=job, args=(rank,), daemon=True) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST_S)
    assert time.monotonic() < end, "a rank hangs"


def assert_nobody_ran_another_arm(ranks):
    for one in ranks:
        for other in ranks:
            for call in one.ran.keys() & other.ran.keys():
                assert one.ran[call] == other.ran[call], f"call {call}"


def test_all_ranks_choose_the_arm_that_the_slowest_rank_says_is_faster(simulated, tmp_path):
    store = MemoryStore()
    slower = {"planted": {"a": 1.5, "b": 0.95}}
    ranks = [Rank(0, 3, store, tmp_path, 60.0)]
    ranks += [Rank(1, 3, store, tmp_path, 60.0, **slower), Rank(2, 3, store, tmp_path, 60.0)]
    ranks[0].planted["b"] = ranks[2].planted["b"] = 0.9
    simulate(ranks)
    assert_nobody_ran_another_arm(ranks)
    assert {rank.controller.outcome.chosen for rank in ranks} == {"b"}
    times = [{arm.name: arm.times_s for arm in r.controller.outcome.arms} for r in ranks]
    assert times[0] == times[1] == times[2]
    assert set(times[0]["a"]) == {1.5} and set(times[0]["b"]) == {0.95}
    assert {"original", "a", "b"} == set(ranks[0].ran.values())


@pytest.mark.parametrize("how", ["killed before", "killed after", "unsure", "cut off"])
@pytest.mark.parametrize("who", [0, 1])
def test_whatever_happens_at_any_word_no_rank_runs_another_arm(simulated, tmp_path, who, how):
    """Each operation of a rank on the store goes wrong once."""
    at = 1
    while True:
        store = MemoryStore()
        faulty = Faulty(store, at, how)
        stores = [faulty if number == who else store for number in range(2)]
        ranks = []
        try:
            ranks = [Rank(number, 2, stores[number], tmp_path) for number in range(2)]
        except Killed:
            at += 1
            continue
        simulate(ranks)
        assert_nobody_ran_another_arm(ranks)
        survivors = [r for r in ranks if r.number != who or not how.startswith("killed")]
        assert {rank.controller.outcome.chosen for rank in survivors} <= {"original", "a"}
        if faulty.count < at:
            break
        at += 1 if at < 12 else 3
    assert at > 4


def test_a_rank_that_never_joins_leaves_all_as_they_were(simulated, tmp_path):
    ranks = [Rank(0, 2, MemoryStore(), tmp_path)]
    simulate(ranks)
    assert set(ranks[0].ran.values()) == {"original"}
    assert ranks[0].controller.outcome.problem == "rank 1 did not join within 0 s"


@pytest.mark.parametrize("begins", [(3, 14), (14, 3), (5, 5), (10, 9)])
def test_ranks_that_begin_at_different_calls_do_not_wait_for_each_other(
    simulated, tmp_path, begins
):
    """A step of one rank is done when all ranks have come to it, as with a collective."""
    store, meeting = MemoryStore(), threading.Barrier(2)
    ranks = []
    for number, begin in enumerate(begins):
        rank = Rank(number, 2, store, tmp_path, 60.0)
        rank.controller.done.set()
        rank.begin, rank.late = begin, None
        rank.run = lambda rank=rank, run=rank.run: (run(), meeting.wait(LONGEST_S))
        ranks.append(rank)

    def job(rank):
        for call in range(1, 20_000):
            rank.compiled.calls = call
            if call == rank.begin:
                plan, consensus = rank.controller.plan, rank.controller.consensus
                consensus = Consensus(consensus.ranks, consensus.rank, store, "late", plan.patience)
                rank.controller = Controller(
                    rank.compiled, plan, rank.prepare, rank.timer, consensus
                )
            rank.controller.on_call((), rank.run)
            if call > max(begins) and rank.controller.done.is_set():
                return

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(job, ranks))
    assert_nobody_ran_another_arm(ranks)
    assert [rank.controller.outcome.chosen for rank in ranks] == ["a", "a"]


def test_a_rank_that_joins_after_the_end_does_not_wait(simulated, tmp_path):
    store = MemoryStore()
    first = Rank(0, 2, store, tmp_path)
    simulate([first])
    late = Rank(1, 2, store, tmp_path, patience_s=2 * LONGEST_S)
    late.compiled.calls = first.compiled.calls
    simulate([late])
    assert late.controller.done.is_set()
    assert set(late.ran.values()) == {"original"}


def test_a_chair_that_is_late_is_not_waited_for(simulated, tmp_path, monkeypatch):
    before = agreement.Proposals.compare

    def late(self, call):
        assert ranks[1].controller.done.wait(LONGEST_S)
        return before(self, call)

    monkeypatch.setattr(agreement.Proposals, "compare", late)
    store = MemoryStore()
    ranks = [Rank(number, 2, store, tmp_path, PATIENCE) for number in range(2)]
    simulate(ranks)
    assert_nobody_ran_another_arm(ranks)
    assert {r.controller.outcome.problem for r in ranks} == {"rank 0 did not decide within 0 s"}


class WaitsInVain:
    """A store that remembers how long it was asked to wait for decisions that did not come."""

    def __init__(self, store):
        self.store, self.waited_s = store, []

    def get(self, key, wait_s=0.0):
        found = self.store.get(key, wait_s)
        if found is None and "/decision/" in key:
            self.waited_s.append(wait_s)
        return found

    def __getattr__(self, name):
        return getattr(self.store, name)


@pytest.mark.parametrize("where", ["compare", "_proposal"], ids=["meeting", "look"])
def test_a_leader_that_never_decides_again_holds_steps_up_only_as_long_as_stated(
    simulated, tmp_path, monkeypatch, where
):
    """It has published its own vote or times, and dies before it writes a decision."""
    owner = agreement.Proposals if where == "compare" else Rounds

    def dies(self, *arguments):
        raise Killed

    monkeypatch.setattr(owner, where, dies)
    store = MemoryStore()
    waits = WaitsInVain(store)
    ranks = [Rank(0, 2, store, tmp_path, PATIENCE), Rank(1, 2, waits, tmp_path, PATIENCE)]
    simulate(ranks)
    assert_nobody_ran_another_arm(ranks)
    assert ranks[1].controller.outcome.problem == "rank 0 did not decide within 0 s"
    assert sum(waits.waited_s) <= PATIENCE.step_s + 1e-6
    assert max(waits.waited_s) <= (PATIENCE.meeting_s if where == "compare" else PATIENCE.step_s)


def test_a_leader_that_is_late_for_a_while_holds_nobody_up_and_all_compare_later(
    simulated, tmp_path, monkeypatch
):
    before, went_on = agreement.Proposals.compare, threading.Event()

    def late(self, call):
        assert went_on.wait(LONGEST_S)
        return before(self, call)

    monkeypatch.setattr(agreement.Proposals, "compare", late)
    store = MemoryStore()
    ranks = [Rank(number, 2, store, tmp_path, MUCH_PATIENCE) for number in range(2)]
    run = ranks[1].run

    def in_step():
        # It runs steps though the leader has decided nothing since the capture.
        if ranks[1].controller.state is State.PREPARING and ranks[1].compiled.calls > 12:
            went_on.set()
        return run()

    ranks[1].run = in_step
    simulate(ranks, pause_s=0.005)
    assert_nobody_ran_another_arm(ranks)
    assert [rank.controller.outcome.chosen for rank in ranks] == ["a", "a"]


def test_a_slow_rank_is_waited_for_while_all_go_on_with_their_steps(simulated, tmp_path):
    """It compiles until the others have made hundreds of steps."""
    store = MemoryStore()
    ranks = [Rank(0, 2, store, tmp_path, MUCH_PATIENCE)]

    def slow(watched, plan, outcome):
        while ranks[0].compiled.calls < 300:
            time.sleep(0.001)
        ranks[1].prepare(watched, plan, outcome)

    ranks.append(Rank(1, 2, store, tmp_path, MUCH_PATIENCE, prepare=slow))
    simulate(ranks)
    assert [rank.controller.outcome.chosen for rank in ranks] == ["a", "a"]
    assert {ranks[0].ran[call] for call in range(1, 300)} == {"original"}


def test_an_arm_that_fails_everywhere_is_out_everywhere(simulated, tmp_path):
    store = MemoryStore()
    ranks = [Rank(number, 2, store, tmp_path, 60.0, fails={"a"}) for number in range(2)]
    simulate(ranks)
    assert_nobody_ran_another_arm(ranks)
    for rank in ranks:
        assert "a" not in rank.ran.values() and "b" in rank.ran.values()
        assert rank.controller.outcome.chosen == "original"
        assert {arm.name for arm in rank.controller.outcome.arms if arm.error} == {"a"}


def test_an_arm_that_fails_on_one_rank_is_not_followed_by_another_program(
    simulated, tmp_path, monkeypatch
):
    """The others are inside its collectives: to run something else would meet them there."""
    store = MemoryStore()
    ranks = [
        Rank(number, 2, store, tmp_path, 60.0, fails={"a"} if number else set())
        for number in (0, 1)
    ]
    # In vain: the other rank runs the arm, and has no error to tell of.
    waits = ranks[1].controller.consensus.waits
    monkeypatch.setattr(type(waits), "for_messages_s", 0.2)
    errors = []
    call = ranks[1].call

    def failing():
        try:
            return call()
        except JobFailed as error:
            errors.append(str(error.__cause__))
            store.end()
            raise Killed from None

    ranks[1].call = failing
    simulate(ranks)
    assert_nobody_ran_another_arm(ranks)
    assert errors == ["RESOURCE_EXHAUSTED: planted"]


def test_ranks_that_ran_different_programs_are_found_out(simulated, tmp_path, monkeypatch):
    """By nothing that the consensus lets happen: the turns of one rank are planted."""
    store = MemoryStore()
    ranks = [Rank(number, 2, store, tmp_path, 60.0) for number in range(2)]
    before = Rounds.next_arm

    def other(self):
        mixed_up = self._consensus is ranks[1].controller.consensus
        return self.arms[-1] if mixed_up and before(self) is self.arms[1] else before(self)

    monkeypatch.setattr(Rounds, "next_arm", other)
    simulate(ranks)
    (problem,) = {rank.controller.outcome.problem for rank in ranks}
    assert "rank 0 ran 'a' at call" in problem and "rank 1 ran 'b' at call" in problem
    assert {rank.controller.outcome.chosen for rank in ranks} == {"original"}


@pytest.mark.parametrize("where", ["_joins_meeting", "_begin_preparing", "look", "_follow"])
def test_a_fault_of_ours_on_one_rank_never_lets_it_run_another_program(
    simulated, tmp_path, monkeypatch, where
):
    """Before its vote a rank may go alone; after it, the others count on it."""
    store = MemoryStore()
    ranks = [Rank(number, 2, store, tmp_path, 60.0) for number in range(2)]
    owner = Rounds if where == "look" else Controller
    before = getattr(owner, where)

    def fails(self, *arguments):
        if getattr(self, "consensus", None) is ranks[1].controller.consensus or (
            where == "look" and self._consensus is ranks[1].controller.consensus
        ):
            raise KeyError("planted")
        return before(self, *arguments)

    monkeypatch.setattr(owner, where, fails)
    errors = []
    call = ranks[1].call

    def in_runtime():
        """As the runtime does: what is not the job's own ends the measuring, not the job."""
        try:
            return call()
        except JobFailed as error:
            errors.append(error.__cause__)
            store.end()
            raise Killed from None
        except KeyError:
            ranks[1].compiled.run_with("original")
            assert ranks[1].controller.done.is_set()

    ranks[1].call = in_runtime
    simulate(ranks)
    assert_nobody_ran_another_arm(ranks)
    is_bound = where in ("look", "_follow")
    assert [type(error) for error in errors] == ([KeyError] if is_bound else [])
    if not is_bound:
        assert {rank.controller.outcome.chosen for rank in ranks} == {"original"}


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("when", [3, 8, 12, 25])
def test_one_rank_may_close_at_any_time(simulated, tmp_path, who, when):
    store = MemoryStore()
    ranks = [Rank(number, 2, store, tmp_path, 60.0) for number in range(2)]
    call = ranks[who].call

    def closing():
        if ranks[who].compiled.calls == when:
            ranks[who].controller.stop("closed")
        return call()

    ranks[who].call = closing
    simulate(ranks)
    assert_nobody_ran_another_arm(ranks)
    assert {rank.controller.outcome.chosen for rank in ranks} == {"original"}
    assert all("closed" in rank.controller.outcome.problem for rank in ranks)


def test_preparation_that_fails_on_one_rank_ends_it_on_all(simulated, tmp_path, caplog):
    def fails(watched, plan, outcome):
        raise MemoryError("planted")

    store = MemoryStore()
    ranks = [Rank(0, 2, store, tmp_path, 60.0), Rank(1, 2, store, tmp_path, 60.0, prepare=fails)]
    simulate(ranks)
    assert {r.controller.outcome.problem for r in ranks} == {"rank 1: MemoryError: planted"}
    assert {arm for rank in ranks for arm in rank.ran.values()} == {"original"}


class CountedReads:
    """A store that counts what is read from it."""

    def __init__(self, store):
        self.store, self.keys = store, []

    def get(self, key, wait_s=0.0):
        self.keys.append(key)
        return self.store.get(key, wait_s)

    def with_prefix(self, prefix):
        self.keys.append(prefix)
        return self.store.with_prefix(prefix)

    def put(self, key, value):
        return self.store.put(key, value)


def test_a_message_is_read_once_and_one_missing_rank_is_asked_for_alone():
    """Of 64 ranks one is late: each look costs one read, not 64."""
    shared = MemoryStore()
    ranks = [Consensus(tuple(range(64)), rank, shared, "job") for rank in range(64)]
    store = ranks[0].store = CountedReads(shared)
    for rank in ranks[:40] + ranks[41:]:
        rank.publish("vote", {"rank": rank.rank})
    for _ in range(10):
        assert ranks[0].from_all("vote") is None
    assert store.keys == [f"job/said/vote/{rank}" for rank in [*range(1, 40), *([40] * 10)]]
    assert ranks[0].missing("vote") == "rank 40"
    ranks[40].publish("vote", {"rank": 40})
    store.keys.clear()
    assert ranks[0].from_all("vote") == {rank: {"rank": rank} for rank in range(64)}
    assert len(store.keys) == 24
    ranks[0].from_all("vote")
    assert len(store.keys) == 24


def test_a_sentence_names_few_ranks():
    consensus = Consensus(tuple(range(64)), 0, MemoryStore(), "job")
    assert consensus.missing("vote") == (
        "rank 0, rank 1, rank 2, rank 3, rank 4, rank 5, rank 6, rank 7, 56 more"
    )


def vote(content="1", error=None, collectives="x", original="0", costs="c"):
    return {
        "costs": costs,
        "arms": {
            "original": {"content": original, "collectives": "x", "error": None, "flags": ""},
            "a": {"content": content, "collectives": collectives, "error": error, "flags": ""},
        },
    }


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (vote(), None),
        (vote(content="2"), "the program 'a' is not the same on all ranks"),
        (vote(content="2", original="9"), None),
        (
            vote(content="2", original="9", collectives="y"),
            "the program 'a' is not the same on all ranks",
        ),
        (vote(costs="d"), "ranks 0 and 1 compiled with different costs"),
        (vote(error="no"), "rank 1 could not make the program 'a': no"),
        ({"costs": "c", "arms": {}}, "ranks 0 and 1 compiled other sets of programs"),
    ],
)
def test_votes_must_be_of_the_same_programs(other, problem):
    assert disagreement({0: vote(), 1: other}) == problem


def test_a_folder_is_only_trusted_within_one_job():
    assert job_id({}) is None
    assert job_id({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1"}) == "7-1-0"
    assert job_id({"SLURM_JOB_ID": "7", "SLIPSTREAM_SESSION": "mine"}) == "mine"
    assert job_id({"TORCHELASTIC_RUN_ID": "x7", "TORCHELASTIC_RESTART_COUNT": "1"}) == "x7-1"
    assert job_id({"TORCHELASTIC_RUN_ID": "none"}) is None
    mpirun = {"OMPI_MCA_ess_base_jobid": "5", "PMIX_NAMESPACE": "5"}
    assert job_id({"SLURM_JOB_ID": "7", **mpirun}) == "5"


# Real processes: two and four of them, with jax.distributed on this machine.

JOBS = {
    "without": 2,
    "without@1": 2,
    "none": 2,
    "none 4": 4,
    "profiler@1": 2,
    "compile@0": 2,
    "disk@1": 2,
    "other-program@1": 2,
    "absent@1": 2,
    "kill-warm_up@1": 2,
    "kill-capture@0": 2,
    "kill-prepare@1": 2,
    "kill-compare@0": 2,
    "kill-check@1": 2,
}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Every job, run once, a few at a time: they wait for each other more than they compute."""

    def run(fault):
        out = tmp_path_factory.mktemp(fault.partition(" ")[0].replace("@", "-"))
        return job(fault.partition(" ")[0], JOBS[fault], out)

    with ThreadPoolExecutor(4) as pool:
        return dict(zip(JOBS, pool.map(run, JOBS), strict=True))


def job(fault, size, out):
    port = free_port()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    environment["JOB_CALLS"] = "600" if fault == "without" else "0"
    processes = []
    for rank in range(size):
        command = [sys.executable, str(JOB), str(rank), str(size), str(port), str(out), fault]
        with (out / f"{rank}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=out)
            )
    try:
        codes = [process.wait(LONGEST_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    reports = {
        rank: json.loads((out / f"{rank}.json").read_text())
        for rank in range(size)
        if (out / f"{rank}.json").exists()
    }
    logs = "\n".join((out / f"{rank}.log").read_text()[-3000:] for rank in range(size))
    return SimpleNamespace(codes=codes, reports=reports, logs=logs, out=out)


@pytest.mark.parametrize("name", ["none", "none 4"])
def test_processes_of_a_job_agree(jobs, name):
    done = jobs[name]
    assert done.codes == [0] * JOBS[name], done.logs
    first, *others = done.reports.values()
    assert first["settled"] and first["chosen"] == "no fusion" and first["problem"] is None
    for other in others:
        assert {**other, "trace": 0, "results": 0} == {**first, "trace": 0, "results": 0}
        assert dict(other["trace"]) == dict(first["trace"])
        assert [state for state, _ in other["results"]] == [state for state, _ in first["results"]]
    assert "other" in dict(first["trace"]).values()
    assert read_receipt(done.out / "run").chosen == "no fusion"
    profiles = {p.relative_to(done.out / "run").parts[0] for p in done.out.rglob("*.xplane.pb")}
    assert profiles == {f"rank{rank}" for rank in range(JOBS[name])}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("profiler@1", "planted"),
        ("compile@0", "planted"),
        ("disk@1", "Not a directory"),
        ("other-program@1", "is not the same on all ranks"),
    ],
)
def test_what_fails_on_one_rank_leaves_all_ranks_as_they_were(jobs, name, why):
    done = jobs[name]
    assert done.codes == [0, 0], done.logs
    for rank, report in done.reports.items():
        assert report["settled"] and report["chosen"] == "original"
        assert why in report["problem"]
        assert set(dict(report["trace"]).values()) == {"original"}
        # Every step is one that the job makes without us.
        expected = jobs["without"].reports[rank]["results"]
        assert len(report["results"]) > 20
        assert report["results"][: len(expected)] == expected[: len(report["results"])]


def test_a_rank_that_never_joins_changes_nothing_for_the_others(jobs):
    """It runs the same program without us, so its steps and ours meet in collectives."""
    done = jobs["absent@1"]
    assert done.codes == [0, 0], done.logs
    assert done.reports[0]["problem"] == "rank 1 did not join within 1 s"
    expected = jobs["without"].reports
    for rank, report in done.reports.items():
        assert len(report["results"]) > 20
        together = zip(report["results"], expected[rank]["results"], strict=False)
        assert all(ours == theirs for ours, theirs in together)


@pytest.mark.retry("JAX takes a rank that is held up for ten seconds for dead")
@pytest.mark.parametrize("name", [name for name in JOBS if name.startswith("kill-")])
def test_a_killed_rank_ends_the_job_as_without_us(jobs, name):
    """JAX itself ends the other processes; nothing of ours keeps them alive."""
    killed = int(name[-1])
    plain = jobs["without@1"].codes
    if not jobs[name].codes[killed] == plain[1] == -9:
        raise RaceLost(f"a rank ended before it was killed: {jobs[name].logs}")
    assert jobs[name].codes[1 - killed] == plain[0], jobs[name].logs
    assert jobs[name].reports == {}
