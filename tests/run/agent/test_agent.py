"""The agent inside a job, on programs that are planted."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.hooks import HOOKS
from slipstream.run.agent import agent as module
from slipstream.run.agent.agent import Agent
from slipstream.run.agent.recorder import job_facts
from slipstream.run.agent.request import APPLY, Request, read_request
from slipstream.run.run_dir import STATUS, read_json


class Job:
    """Programs that are compiled and called, and the requests that were applied to them."""

    def __init__(self, request, monkeypatch, *names):
        self.applied = []
        self.programs = {
            name: CompiledProgram(
                name, name.encode(), 0.1, "", "", _devices=[SimpleNamespace(process_index=0)]
            )
            for name in names
        }
        monkeypatch.setattr(module, "content_of", lambda program: program.name.upper())
        monkeypatch.setattr(module, "measurement_for", self.measurement)
        monkeypatch.setattr(type(HOOKS), "programs", list(self.programs.values()))
        self.agent = Agent(request)
        for program in self.programs.values():
            self.agent.on_compile(program)

    def measurement(self, program, request, fits, callbacks, number):
        assert fits

        def on_call(arguments, run):
            program.is_settled = True
            self.applied.append((request.program, request.chosen, request.costs))
            callbacks.applied(None)
            return run()

        return SimpleNamespace(on_call=on_call)

    def call(self, *names):
        for name in names:
            program = self.programs[name]
            program.calls += 1
            if not program.is_settled:
                assert self.agent.on_call(program, (), lambda: 5) == 5


@pytest.fixture
def job(monkeypatch):
    jobs = []

    def begin(request, *names):
        jobs.append(Job(request, monkeypatch, *names))
        return jobs[-1]

    yield begin
    for one in jobs:
        one.agent.leave()


@pytest.fixture
def request_of_two(tmp_path):
    """As the launcher writes it, for a job with two functions and other programs."""
    other = {"program": "jit_b", "content": "JIT_B", "chosen": "faster b", "costs": "b.pb"}
    written = Request(
        APPLY, str(tmp_path), program="jit_a", content="JIT_A", chosen="faster a", costs="a.pb",
        devices=tuple(job_facts()["devices"]), others=(other,),
    ).write(tmp_path / "request.json")  # fmt: skip
    return read_request(written)


def test_every_function_gets_what_was_found_for_it(request_of_two, job, tmp_path):
    job = job(request_of_two, "jit_data", "jit_a", "jit_b")
    job.call(*["jit_data", "jit_a"] * 3)
    assert job.applied == [("jit_a", "faster a", "a.pb")]
    assert read_json(tmp_path / STATUS)["state"] == "applied"
    assert not job.programs["jit_b"].is_settled  # it may come later
    job.call(*["jit_data", "jit_b", "jit_a"] * 3)
    assert job.applied[1:] == [("jit_b", "faster b", "b.pb")]
    assert all(one.is_settled for one in job.programs.values())
    late = CompiledProgram("jit_late", b"", 0.1, "", "")
    job.agent.on_compile(late)
    assert late.is_settled


def test_a_known_function_takes_over_from_another(request_of_two, job):
    """Evaluations before the first step, say: by themselves they would be measured."""
    job = job(request_of_two, "jit_b", "jit_a")
    del job.agent._expected[id(job.programs["jit_a"])]
    job.agent.hot = job.programs["jit_b"]
    job.agent._expect(job.programs["jit_a"])
    job.call(*["jit_a"] * 3)
    assert job.applied == [("jit_a", "faster a", "a.pb")]


def test_a_function_for_which_nothing_is_faster_stays_as_it_is(request_of_two, job):
    job = job(replace(request_of_two, chosen="original"), "jit_a", "jit_b")
    job.call(*["jit_a", "jit_b"] * 3)
    assert job.applied == [("jit_b", "faster b", "b.pb")]
    assert job.programs["jit_a"].is_settled
