"""docs/schemas/: one for each command with `--json`, and real output is as they say.

What commands print in other tests is checked there, too (`tests/json_contract.py`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from json_contract import SCHEMAS, check
from outputs.results import SUMMARY
from plans import made_up_plan
from slipstream.cli.main import app
from slipstream.outputs.json import dumps, summary_json
from slipstream.outputs.terminal.compiled.plan import plan_json
from slipstream.outputs.terminal.compiled.schedule import schedule_json
from slipstream.results.scheduling import MovedOperation, ScheduledStep, Scheduling, TriedBase

REPOSITORY = SCHEMAS.parents[1]
RECEIPTS = sorted((REPOSITORY / "docs" / "receipts").glob("*.json"))


def help_tree() -> dict:
    return json.loads(CliRunner().invoke(app, ["--help", "--json"]).stdout)


def test_every_command_with_json_has_one():
    nodes, found = [help_tree()], {"help"}
    for node in nodes:
        nodes += node["commands"]
        if any("--json" in one["flags"] for one in node["parameters"]):
            found.add("-".join(node["command"].split()[1:]))
    assert {path.stem for path in SCHEMAS.glob("*.json")} == found


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_each_is_a_schema(path: Path):
    schema = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


def test_the_help():
    check("help", json.dumps(help_tree()))


def test_costs(data: Path, tmp_path: Path):
    """Checked while they run."""
    out = str(tmp_path / "costs.pb")
    profile = str(data / "off_default.xplane.pb.gz")
    for line in (("extract", profile, "-o", out, "--json"), ("show", out, "--json")):
        assert CliRunner().invoke(app, ["costs", *line], catch_exceptions=False).exit_code == 0


@pytest.mark.parametrize("sizes", [(64,), (8, 64, 128)])
def test_plans(sizes: tuple[int, ...]):
    for command in ("plan start", "plan resume", "plan measure", "plan show"):
        check(command, dumps(plan_json(made_up_plan(*sizes))))


@pytest.mark.parametrize("path", RECEIPTS, ids=lambda path: path.stem)
def test_recorded_receipts(path: Path):
    check("run", path.read_text(encoding="utf-8"))


def test_a_schedule():
    step = ScheduledStep(10.0, 1.0, 0.0, None)
    moved = MovedOperation("ag", "all-gather w", "model.py:3", "body", 4, 2, (1.0, 0.5))
    tried = TriedBase("pipelined", {"xla_gpu_x": "true"}, note="does not fit")
    found = Scheduling(
        "8xH200", "jit_step", None, step, step, step, 9.0, "pass", True, "as XLA makes it", {},
        (moved,), None, (tried,),
    )  # fmt: skip
    check("schedule", dumps(schedule_json(found)))


def test_what_is_wrong_is_found():
    summary = summary_json(SUMMARY)
    check("summary", dumps(summary))
    with pytest.raises(AssertionError, match=r"at \$\.steps: 'count' is a required property"):
        check("summary", dumps(summary | {"steps": {"median_us": 1.0, "basis": "", "rule": ""}}))
    with pytest.raises(AssertionError, match="is not of type 'integer'"):
        check("summary", dumps(summary | {"steps": summary["steps"] | {"count": "three"}}))
    with pytest.raises(AssertionError, match="'surprise' was unexpected"):
        check("summary", dumps(summary | {"surprise": 1}))


def test_users_may_meet_newer_keys():
    schema = json.loads((SCHEMAS / "summary.json").read_text(encoding="utf-8"))
    data = json.loads(dumps(summary_json(SUMMARY)))
    Draft202012Validator(schema).validate(data | {"surprise": 1})


def test_keys_have_the_meaning_of_the_page():
    found = json.loads((SCHEMAS / "ops.json").read_text(encoding="utf-8"))["properties"]
    assert found["ops"]["items"]["properties"]["source"]["description"] == "`file:line`"
    assert found["by"]["description"].startswith("the grouping: ")
