"""Studies: nothing is lost or doubled, whoever dies; failures are kept and never win."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

from race_lost import RaceLost
from slipstream.errors import BadInput
from slipstream.results.tuning import CRASH, DIFFERENT, FAILURES, HANG, NO_FIT, OK, OUT_OF_MEMORY
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.search import QUEUED, Search, best_row
from slipstream.tune.search.seeds import SIMPLIFY, Suggestion
from slipstream.tune.search.storage import sqlite_url
from slipstream.tune.search.study import Study, TrialRow
from slipstream.tune.space.knob import Knob
from slipstream.tune.space.space import Space
from slipstream.tune.study_folder import StudyConfig, open_study, read_study

SPACE = Space(
    (
        Knob("xla_a", ("0", "1", "2", "3"), "a", is_ordered=True),
        Knob("xla_b", ("x", "y", "z"), "b"),
        Knob("xla_c", ("false", "true"), "c"),
    )
)


def score(settings: dict[str, str]) -> float:
    """Best at a=2 with b=y, where c makes no difference."""
    base = 100.0 + 10 * abs(int(settings.get("xla_a", "0")) - 2)
    return base - (5 if settings.get("xla_b") == "y" and settings.get("xla_a") == "2" else 0)


class Arithmetic:
    """Tries candidates out in no time."""

    def evaluate(self, settings):
        return Outcome(OK, step_us=score(settings), program=str(sorted(settings.items())))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def study(tmp_path: Path):
    opened = Study(sqlite_url(tmp_path), "test", SPACE, "step")
    yield opened
    opened.close()


def test_queued_candidates_come_first(study):
    study.enqueue([Suggestion({}, "default"), Suggestion({"xla_b": "y"}, "preset one")])
    study.enqueue([Suggestion({"xla_b": "y"}, "twice")])
    first, second = study.ask(), study.ask()
    assert (first.settings, first.origin) == ({}, "default")
    assert (second.settings, second.origin) == ({"xla_b": "y"}, "preset one")
    for one in (first, second):
        study.tell(one, Outcome(OK, step_us=score(one.settings)))
    assert len(study.rows()) == 2


SMALL = Space((Knob("xla_a", ("0", "2"), "a", is_ordered=True), *SPACE.knobs[1:]))


def test_a_search_finds_what_only_two_knobs_together_do_and_drops_the_idle_one(tmp_path):
    study = Study(sqlite_url(tmp_path), "test", SMALL, "step")
    why = Search(study, Arithmetic, trials=24, budget_s=600, jobs=2).run()
    best = best_row(study.rows(), "step")
    assert best is not None and best.settings == {"xla_a": "2", "xla_b": "y"}
    assert why == "every setting of the space was tried"
    done = [row for row in study.rows() if row.state == "done" and row.repeat_of is None]
    assert sorted(Counter(str(row.settings) for row in done).values()) == [1] * 12
    assert study.importances()["xla_c"] < study.importances()["xla_a"]
    study.close()


class LateBest(Arithmetic):
    """The first candidate with several settings after 32 others is fast, thanks to one of them."""

    tried = 0
    winner: dict[str, str] = {}  # noqa: RUF012

    def evaluate(self, settings):
        LateBest.tried += 1
        if not self.winner and self.tried > 32 and len(settings) > 1:
            LateBest.winner = dict(settings)
        needed = dict(list(self.winner.items())[:1])
        is_fast = bool(needed) and needed.items() <= settings.items()
        return Outcome(OK, step_us=50.0 if is_fast else 100.0, program=str(settings))


def test_a_best_that_is_found_with_the_last_trials_is_simplified_too(tmp_path):
    knobs = tuple(Knob(f"xla_{letter}", ("false", "true"), letter) for letter in "abcdef")
    study = Study(sqlite_url(tmp_path), "test", Space(knobs), "step")
    study.enqueue([Suggestion({}, "default")])
    why = Search(study, LateBest, trials=40, budget_s=600, jobs=1).run()
    assert why == "40 candidates were tried"
    best = best_row(study.rows(), "step")
    assert best is not None and best.settings.items() < LateBest.winner.items()
    assert any(row.origin == SIMPLIFY for row in study.rows())
    assert not any(row.state == "waiting" for row in study.rows())
    study.close()


@pytest.mark.parametrize("status", FAILURES)
def test_a_failure_is_recorded_as_such_and_never_wins(study, status):
    study.enqueue([Suggestion({}, "default"), Suggestion({"xla_c": "true"}, "fast and wrong")])
    study.tell(study.ask(), Outcome(OK, step_us=100.0))
    study.tell(study.ask(), Outcome(status, step_us=1.0, note="why"))
    (kept,) = [row for row in study.rows() if row.settings]
    assert kept.outcome == Outcome(status, step_us=1.0, note="why")
    assert kept.state == "done"
    best = best_row(study.rows(), "step")
    assert best is not None and best.settings == {}


def test_the_kinds_of_failure_have_names():
    assert {CRASH, HANG, OUT_OF_MEMORY, DIFFERENT, NO_FIT} < set(FAILURES)


def test_a_released_candidate_is_tried_again(study):
    study.enqueue([Suggestion({"xla_b": "z"}, "preset one")])
    study.release(study.ask())
    again = study.ask()
    assert (again.settings, again.origin) == ({"xla_b": "z"}, "preset one")


def test_a_trial_of_another_host_is_left_alone_until_its_heartbeats_stop(tmp_path, monkeypatch):
    url = sqlite_url(tmp_path)
    there = Study(url, "test", SPACE, "step")
    there.enqueue([Suggestion({"xla_b": "z"}, "preset one")])
    with monkeypatch.context() as patched:
        patched.setattr("slipstream.tune.search.study.owner", lambda: ["elsewhere", 1, "0"])
        lost = there.ask()
    # It sent one heartbeat, and no more.
    there.close()
    here = Study(url, "test", SPACE, "step")
    here.requeue_dead()
    assert [row.state for row in here.rows()] == ["running"]
    here.close()
    here = Study(url, "test", SPACE, "step", grace_s=1)
    while len(here.rows()) == 1:
        time.sleep(0.1)
        here.requeue_dead()
    assert [row.state for row in here.rows()] == ["interrupted", "waiting"]
    again = here.ask()
    assert (again.settings, again.origin) == (lost.settings, "preset one")
    here.tell(again, Outcome(OK, step_us=1.0))
    here.close()


@pytest.mark.parametrize("jump", [timedelta(days=-400), timedelta(0), timedelta(days=400)])
def test_a_trial_without_an_owner_is_dead_after_ten_seconds_of_any_clock(
    tmp_path, monkeypatch, jump
):
    """Its process died right after asking; when that was by the date says nothing."""
    there = Study(sqlite_url(tmp_path), "test", SPACE, "step")
    monkeypatch.setattr("optuna.storages._rdb.storage.datetime", clock_off_by(jump))
    there._study.ask()
    monkeypatch.undo()
    there.close()
    now = [1000.0]
    monkeypatch.setattr(
        "slipstream.tune.search.trial_owner.time", SimpleNamespace(monotonic=lambda: now[0])
    )
    here = Study(sqlite_url(tmp_path), "test", SPACE, "step")
    for now[0] in (1000.0, 1009.0):
        here.requeue_dead()
        assert [row.state for row in here.rows()] == ["running"]
    now[0] = 1011.0
    here.requeue_dead()
    assert [row.state for row in here.rows()] == ["interrupted"]
    here.close()


def clock_off_by(jump: timedelta) -> type[datetime]:
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + jump

    return Clock


def test_seconds_of_a_trial_are_not_those_of_the_date(study, monkeypatch):
    monkeypatch.setattr("optuna.storages._rdb.storage.datetime", clock_off_by(timedelta(days=1)))
    candidate = study.ask()
    monkeypatch.undo()
    study.tell(candidate, Outcome(OK, step_us=1.0))
    (row,) = study.rows()
    assert 0 < row.seconds < 3600


def test_of_two_processes_that_propose_the_same_at_once_the_later_one_gives_way(
    tmp_path, monkeypatch
):
    url = f"sqlite:///{tmp_path / 'study.sqlite3'}"
    monkeypatch.setattr("slipstream.tune.search.study.SETTLE_S", 300.0)
    early, late = Study(url, "test", SPACE, "step"), Study(url, "test", SPACE, "step")
    # The earlier trial runs already, and its settings are written only while the later one asks.
    first = early._study.ask()
    proposed = early._suggested(first)
    writing = threading.Timer(0.3, first.set_user_attr, ("settings", proposed))
    writing.start()
    trial = late._study.ask()
    trial.set_user_attr("settings", proposed)
    assert late._is_repeat(trial, proposed)
    writing.join()
    assert [row.repeat_of for row in late.rows()] == [None, first.number]
    early.close(), late.close()


WORKER = """
import sys, time
from pathlib import Path
sys.path[:0] = {folders!r}
from test_study import SPACE, Arithmetic
from slipstream.tune.search.search import Search
from slipstream.tune.search.study import TrialRow, Study

class Held(Arithmetic):
    # Two candidates are tried freely, all others only when a file is there.
    free = iter(range(2))

    def evaluate(self, settings):
        # One write: of two threads that print, both texts can come before both ends of line.
        sys.stdout.write("trying\\n")
        sys.stdout.flush()
        while next(self.free, None) is None and not Path({go!r}).exists():
            time.sleep(0.01)
        return super().evaluate(settings)

study = Study({url!r}, "test", SPACE, "step")
Search(study, Held, trials={trials}, budget_s=600, jobs=2, simplifies=False).run()
study.close()
"""


def worker(url: str, trials: int, go: Path) -> subprocess.Popen:
    # As this file finds its own imports.
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    code = WORKER.format(folders=folders, url=url, trials=trials, go=str(go))
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def settled(url: str, trials: int) -> None:
    """Every candidate was tried to its end, once."""
    study = Study(url, "test", SPACE, "step")
    rows = study.rows()
    study.close()
    assert len(check_settled(rows)) == trials


def check_settled(rows: list[TrialRow]) -> Counter:
    """Each candidate that was tried, by its settings."""
    done = Counter(
        tuple(sorted(row.settings.items()))
        for row in rows
        if row.state == "done" and row.repeat_of is None
    )
    assert set(done.values()) == {1}
    assert not [row for row in rows if row.state in ("running", "waiting")]
    interrupted = [row for row in rows if row.state == "interrupted" and row.repeat_of is None]
    assert all(tuple(sorted(row.settings.items())) in done for row in interrupted)
    return done


@pytest.mark.retry("the search can end before it is killed")
def test_a_search_killed_in_the_middle_and_resumed_has_lost_or_doubled_nothing(tmp_path, target):
    """The command as it is typed, with real compiles."""
    knob = "xla_gpu_graph_min_graph_size"
    tune, study = [sys.executable, "-m", "slipstream", "tune"], tmp_path / "study"
    options = ["--add", f"{knob}=2,3,4,6,7,9,11", "--only", knob, "--jobs", "2", "--trials", "8"]
    first = subprocess.Popen(
        [*tune, target, "--on", "1xH200", "--study", study, *options],
        stderr=subprocess.PIPE,
        text=True,
        # What a kill leaves behind goes with the test.
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    # The first that is told: the others wait, or are being tried.
    assert any("(default)" in line for line in first.stderr)
    first.kill()
    first.wait()
    first.stderr.close()
    facts = read_study(study)
    before = [row for row in rows_of(study, facts) if row.state == "done"]
    if len(before) == 8:
        raise RaceLost("the search was done before it was killed")
    assert len(before) >= 1
    second = [*tune, "resume", study, "--jobs", "2"]
    subprocess.run(second, check=True, timeout=300, stdout=subprocess.DEVNULL)
    rows = rows_of(study, facts)
    assert [row for row in rows if row.number in {one.number for one in before}] == before
    assert len(check_settled(rows)) == 8
    assert {row.outcome.status for row in rows if row.outcome is not None} == {OK}


def rows_of(folder: Path, facts: StudyConfig) -> list[TrialRow]:
    study = open_study(folder, facts)
    rows = study.rows()
    study.close()
    return rows


def test_a_storage_that_cannot_be_used_says_so(tmp_path):
    with pytest.raises(BadInput, match="can't be used .unable to open"):
        Study(f"sqlite:////{tmp_path}/no/such/folder/x.sqlite3", "test", SPACE, "step")


# PostgreSQL: Debian's package, started here.


@pytest.fixture(scope="module")
def postgresql():
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("no PostgreSQL: install Debian's package postgresql")
    programs = found[-1].parent
    # Not below pytest's folder, which other users can't enter, and short: it holds a socket.
    folder = Path(tempfile.mkdtemp(prefix="slipstream-"))
    # It refuses to run as root: then it runs as the user that its package made.
    prefix = []
    if os.getuid() == 0:
        prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        subprocess.run(["chown", "postgres", folder], check=True)
        folder.chmod(0o755)
    data, logs = folder / "data", {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    make = [*prefix, programs / "initdb", "-D", data, "-U", "tune", "-A", "trust", "--no-sync"]
    subprocess.run(make, check=True, cwd="/", **logs)
    options = ["-D", data, "-k", folder, "-c", "listen_addresses=", "-F"]
    server = subprocess.Popen([*prefix, programs / "postgres", *options], cwd="/", **logs)
    ready = [programs / "pg_isready", "-h", folder, "-q"]
    while subprocess.run(ready).returncode != 0:
        assert server.poll() is None
        time.sleep(0.1)
    yield f"postgresql://tune@/postgres?host={folder}"
    server.send_signal(signal.SIGINT)
    server.wait()
    shutil.rmtree(folder)


def test_two_workers_share_a_study_in_postgresql_and_one_may_die(postgresql, tmp_path):
    go = tmp_path / "go"
    first, second = worker(postgresql, 18, go), worker(postgresql, 18, go)
    # Each has tried two to their end, and has two more.
    for one in (first, second):
        for _ in range(4):
            assert one.stdout.readline() == "trying\n"
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    go.touch()
    output, _ = second.communicate(timeout=300)
    assert second.returncode == 0, output
    # Those that the first had not finished are tried again.
    assert output.count("trying") == 18 - 2 - 4
    settled(postgresql, 18)


def test_suggestions_are_tried_in_order_and_few_of_them_wait(study):
    tried, waiting = [], []

    class Noted(Arithmetic):
        def evaluate(self, settings):
            tried.append(dict(settings))
            waiting.append(sum(row.state == "waiting" for row in study.rows()))
            return super().evaluate(settings)

    values = [[(knob.name, value) for value in knob.values] for knob in SPACE.knobs]
    wanted = [SPACE.without_defaults(dict(one)) for one in product(*values)]
    suggestions = [Suggestion(settings, "search") for settings in reversed(wanted)]
    search = Search(
        study, Noted, trials=100, budget_s=120, simplifies=False, suggestions=suggestions
    )
    assert search.run() == "every setting of the space was tried"
    assert tried == [dict(one.settings) for one in suggestions]
    assert max(waiting) < QUEUED
