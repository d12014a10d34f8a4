"""What the agent writes down: where that fails, the job and the other ranks notice nothing."""

from types import SimpleNamespace

import pytest

from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.run.agent.agent import Agent
from slipstream.run.agent.request import COMPARE, Request
from slipstream.run.agent.status import AgentStatus
from slipstream.run.run_dir import DONE, FAILED, STATUS, done_facts, read_json


@pytest.fixture
def asked(tmp_path):
    request = Request(COMPARE, str(tmp_path))
    request.write(tmp_path / "request.json")
    return request


@pytest.fixture
def full_disk(monkeypatch):
    def fails(*arguments, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("slipstream.writing._sibling", fails)


def test_where_it_stands_is_written_when_it_changes(asked, tmp_path):
    status = AgentStatus(asked)
    status.say("comparing", profile_fits=True)
    said = read_json(tmp_path / STATUS)
    assert (said["state"], said["profile_fits"]) == ("comparing", True)
    (tmp_path / STATUS).unlink()
    status.say("comparing")
    status.say("")
    assert not (tmp_path / STATUS).exists() and status.state == "comparing"


def test_on_a_full_disk_it_goes_on(asked, tmp_path, full_disk, caplog):
    status = AgentStatus(asked)
    status.say("comparing")
    assert status.state == "comparing" and not (tmp_path / STATUS).exists()
    assert "could not be written" in caplog.text


@pytest.mark.parametrize("facts", [None, {"files": []}])
def test_a_profile_that_can_not_be_written_is_given_up(asked, tmp_path, full_disk, caplog, facts):
    """Whoever waits for it sees that the request is gone."""
    AgentStatus(asked).recorded(facts, "the profiler was taken")
    assert list(tmp_path.iterdir()) == []


def test_a_profile_or_why_there_is_none(asked, tmp_path):
    AgentStatus(asked).recorded(None, "the profiler was taken")
    assert read_json(tmp_path / FAILED) == {"why": "the profiler was taken"}
    (tmp_path / "a.pb").write_bytes(b"a")
    AgentStatus(asked).recorded({"files": [tmp_path / "a.pb"], "program": "jit_f"}, "")
    assert done_facts(tmp_path) == {"program": "jit_f", "xla_flags": "", "functions": []}
    assert list(read_json(tmp_path / DONE)["files"]) == ["a.pb"]


def test_what_can_not_be_written_down_changes_nothing_that_runs(asked, monkeypatch, caplog):
    """With several processes, one that fell back alone would run another program than they."""
    agent = Agent(asked)
    agent.hot = CompiledProgram("jit_f", b"", 0.1, "original", "original")
    agent.measurements[id(agent.hot)] = SimpleNamespace(on_call=lambda arguments, run: run())

    def fails(program):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(agent, "_report_state", fails)
    assert agent.on_call(agent.hot, (), lambda: 5) == 5
    assert not agent.hot.is_settled
    assert "planted" in caplog.text
