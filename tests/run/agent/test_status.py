"""What the agent writes down: where that fails, the job and the other ranks notice nothing."""

import tempfile
from types import SimpleNamespace

import pytest

from slipstream.jaxhooks.compiled_program import Watched
from slipstream.run.agent.agent import Agent
from slipstream.run.agent.request import COMPARE, Orders
from slipstream.run.agent.status import Ledger
from slipstream.run.run_dir import DONE, FAILED, STATUS, read_json, sealed


@pytest.fixture
def orders(tmp_path):
    orders = Orders(COMPARE, str(tmp_path))
    orders.write(tmp_path / "orders.json")
    return orders


@pytest.fixture
def full_disk(monkeypatch):
    def fails(*arguments, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", fails)


def test_where_it_stands_is_written_when_it_changes(orders, tmp_path):
    ledger = Ledger(orders)
    ledger.say("comparing", profile_fits=True)
    said = read_json(tmp_path / STATUS)
    assert (said["state"], said["profile_fits"]) == ("comparing", True)
    (tmp_path / STATUS).unlink()
    ledger.say("comparing")
    ledger.say("")
    assert not (tmp_path / STATUS).exists() and ledger.state == "comparing"


def test_on_a_full_disk_it_goes_on(orders, tmp_path, full_disk, caplog):
    ledger = Ledger(orders)
    ledger.say("comparing")
    assert ledger.state == "comparing" and not (tmp_path / STATUS).exists()
    assert "could not be written down" in caplog.text


@pytest.mark.parametrize("facts", [None, {"files": []}])
def test_a_profile_that_can_not_be_written_is_given_up(orders, tmp_path, full_disk, caplog, facts):
    """Whoever waits for it sees that the orders are gone."""
    Ledger(orders).recorded(facts, "the profiler was taken")
    assert list(tmp_path.iterdir()) == []


def test_a_profile_or_why_there_is_none(orders, tmp_path):
    Ledger(orders).recorded(None, "the profiler was taken")
    assert read_json(tmp_path / FAILED) == {"why": "the profiler was taken"}
    (tmp_path / "a.pb").write_bytes(b"a")
    Ledger(orders).recorded({"files": [tmp_path / "a.pb"], "program": "jit_f"}, "")
    assert sealed(tmp_path) == {"program": "jit_f", "xla_flags": ""}
    assert list(read_json(tmp_path / DONE)["files"]) == ["a.pb"]


def test_what_can_not_be_written_down_changes_nothing_that_runs(orders, monkeypatch, caplog):
    """With several processes, one that fell back alone would run another program than they."""
    agent = Agent(orders)
    agent.hot = Watched("jit_f", b"", 0.1, "original", "original")
    agent.measurement = SimpleNamespace(on_call=lambda arguments, run: run())

    def fails():
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(agent, "_follow", fails)
    assert agent.on_call(agent.hot, (), lambda: 5) == 5
    assert not agent.hot.is_settled
    assert "planted" in caplog.text
