"""What each command prints with `--json`: result dataclasses, and the keys that their JSON adds.

Mirrors the `…_json` functions of `slipstream.outputs`; the tests compare both on real output. A
command with `--json` that is missing here fails `docs/generate.py --check`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal

from json_schema import Either, Itself, Maybe, Printed, Record, keys_of

from slipstream.analyses.bounds import Bounds
from slipstream.analyses.collectives import (
    CollectiveGroup,
    CollectiveRow,
    Collectives,
    Straggler,
)
from slipstream.analyses.diff.diff import Diff
from slipstream.analyses.diff.schedule_moves import Move
from slipstream.analyses.gaps import Gaps
from slipstream.analyses.hosts import Hosts
from slipstream.analyses.memory import Memory, ProgramMemory
from slipstream.analyses.network.network import Network
from slipstream.analyses.network.slack import SliceCollective
from slipstream.analyses.op_groups import Op, OpGroup, ScopeTotal
from slipstream.analyses.ops import Ops
from slipstream.analyses.overlap import Overlap, Overlapped, OverlappedGroup
from slipstream.analyses.roofline import Roofline, RooflineGroup, RooflineRow
from slipstream.analyses.slack import Slack, SlackRow
from slipstream.analyses.summary import DeviceSummary, ProgramSummary, StepTimes
from slipstream.compiler.compilation import MemoryUse
from slipstream.compiler.messages import CompilerMessage
from slipstream.costs.coverage import Coverage
from slipstream.costs.diff import CostChange
from slipstream.costs.table import Cost
from slipstream.doctor.machine_facts import LocalGpu
from slipstream.doctor.problems import Problem
from slipstream.experiment.receipt import Receipt
from slipstream.flags.catalogue.catalogue import Flag
from slipstream.flags.catalogue.libtpu_flag import LibtpuFlag
from slipstream.flags.catalogue.replacements import Replacement
from slipstream.flags.explain import Explanation, FlagDiff
from slipstream.flags.lint.findings import LintFinding
from slipstream.flags.settings import SourceLocation
from slipstream.flags.thresholds.thresholds import Thresholds
from slipstream.machines.machine import Fabric, Gpu, Torus, Tpu
from slipstream.machines.measured_calls import MeasuredCall
from slipstream.profile.profile import ProfileWarning
from slipstream.results.diagnosis import Diagnosis, Finding, Gain
from slipstream.results.planning import MachinePlan, ScalingPoint
from slipstream.results.prediction import Prediction
from slipstream.results.regression import Regression
from slipstream.results.scheduling import Scheduling
from slipstream.results.tuning import Tuning

TEXTS = list[str]
STEP = {one.name.removesuffix("_us"): float for one in fields(StepTimes)}
FLAGS = "`flags … --json`, `doctor --json`, `tune apply --json`"
MACHINES = "`machines … --json`"

PROGRAM = {
    "name": str,
    "program_id": int | None,
    "fingerprint": str | None,
    "jaxlib_version": str | None,
    "computations": int,
    "instructions": int,
    "opcodes": dict[str, int],
    "collectives": [
        {
            "instruction": str,
            "kind": str,
            "bytes": int,
            "group_size": int | None,
            "asynchronous": bool,
            "executions": int | None,
            "source": str,
        }
    ],
    "loops": [
        {
            "instruction": str,
            "trip_count": int | None,
            "body_instructions": int | None,
            "source": str,
        }
    ],
    "megacore": Either(
        (
            {
                "both_cores": int,
                "one_core": TEXTS,
                "all_reduces": [{"instruction": str, "bytes": int, "executions": int | None}],
            },
            type(None),
        )
    ),
}
PREDICTION = Record(
    Prediction,
    {
        "bounds": Record(Bounds, {"gain": float}),
        "regression": Maybe(Record(Regression, {}, ("after",))),
    },
    ("timeline",),
)
COST_TABLE = {
    "policy": str,
    "facts": dict[str, Any],
    "programs": [{"program": str, "fingerprint": str | None, "costs": list[Cost]}],
    "coverage": Coverage | None,
}
MACHINE_PLAN = {**keys_of(Record(MachinePlan)), "objective": str, "unit": str}
PLAN = {
    "target": str,
    **MACHINE_PLAN,
    "global_batch": float | None,
    "scaling": list[ScalingPoint],
    "strong_scaling": list[ScalingPoint],
    "scaling_reasons": TEXTS,
    "jaxlib": str,
    "seconds": float,
    "study": str,
    "plans": [MACHINE_PLAN],
}
TUNING = Record(
    Tuning,
    {"distinct_programs": int, "worker_s": float, "study": str},
    ("seconds", "folder"),
)
RESOLVED = {
    "name": str,
    "value": str | None,
    "preset": str,
    "reason": str,
    "guide": str,
    "source": str | None,
    "said": str | None,
    "today": str | None,
    "because": str | None,
}
PRESET = {
    "presets": TEXTS,
    "jaxlib": str,
    "gpu": str | None,
    "libtpu": str | None,
    "environment": dict[str, str],
    "settings": [RESOLVED],
    "left_out": [RESOLVED],
}
MACHINE = {
    "spec": str,
    "slices": int,
    "hosts": int,
    "gpus_per_host": int,
    "devices": int,
    "topology": str,
    "link_domain": int,
    "gpu": Maybe(Gpu),
    "tpu": Maybe(Tpu),
    "torus": Torus | None,
    "network": Fabric,
    "calibrated": TEXTS,
    "collectives": [
        {"kind": str, "group": int, "bytes": int, "us": float, "basis": str, "why": str}
    ],
}
CURVE = {
    "kind": str,
    "group": int,
    "hosts": int,
    "bytes": list[float],
    "us": list[float],
    "source": str,
}
PARAMETER = {
    "name": str,
    "kind": Literal["argument", "option"],
    "flags": TEXTS,
    "off_flags": TEXTS,
    "type": str,
    "takes_value": bool,
    "required": bool,
    "repeatable": bool,
    "default": Any,
    "choices": TEXTS,
    "minimum": float,
    "maximum": float,
    "metavar": str | None,
    "help": str,
}
SCHEDULING = Record(Scheduling, {"closed": float | None, "order": str | None}, ("layer",))

RECEIPT = keys_of(Record(Receipt))
# Receipts of earlier releases, which other commands read, lack these.
RECEIPT |= {name: Maybe(RECEIPT[name]) for name in ("ranks", "functions", "together")}

PRINTED = {
    "--help": Printed(
        {
            "name": str,
            "command": str,
            "group": str | None,
            "summary": str,
            "help": str,
            "default": str | None,
            "parameters": [PARAMETER],
            "commands": [Itself()],
        },
        "--help --json",
    ),
    "summary": Printed(
        {
            "hosts": TEXTS,
            "versions": dict[str, str],
            "devices": list[DeviceSummary],
            "programs": list[ProgramSummary],
            "steps": {"count": int, "median_us": float, "basis": str, "rule": str},
            "per_step_us": STEP,
            "phases_us": dict[str, float],
            "top": list[Op],
            "top_groups": list[OpGroup],
            "warnings": [Record(ProfileWarning)],
        },
        "summary --json",
    ),
    "ops": Printed(Record(Ops, {"groups": list[OpGroup], "tree": list[ScopeTotal]}), "ops --json"),
    "programs": Printed(Either(({"programs": list[ProgramSummary]}, PROGRAM)), "programs --json"),
    "overlap": Printed(
        Record(
            Overlap,
            {
                "per_step_us": STEP,
                "ops": [Record(Overlapped, {"hidden_share": float})],
                "groups": [Record(OverlappedGroup, {"hidden_share": float})],
            },
            ("per_step",),
        ),
        "overlap --json",
    ),
    "collectives": Printed(
        Record(
            Collectives,
            {
                "straggler": str | None,
                "straggler_host": str | None,
                "stragglers": [Record(Straggler, {"last_share": float})],
                "collectives": list[CollectiveRow],
                "groups": list[CollectiveGroup],
            },
            ("rows",),
        ),
        "collectives --json",
    ),
    "slack": Printed(
        Record(Slack, {"ops": [Record(SlackRow, {"is_zero": bool})]}, ("rows",)), "slack --json"
    ),
    "gaps": Printed(
        Record(
            Gaps,
            {
                "by_cause_us": dict[str, float],
                "gaps_per_step": int,
                "per_step_us": STEP,
                "waiting_us": float,
                "exposed_communication_us": float,
                "exposed_copy_us": float,
            },
            ("by_cause", "count", "per_step"),
        ),
        "gaps --json",
    ),
    "roofline": Printed(
        Record(
            Roofline,
            {
                "ops": [Record(RooflineRow, {"lost_us": float})],
                "groups": [Record(RooflineGroup, {"lost_us": float})],
            },
            ("rows",),
        ),
        "roofline --json",
    ),
    "memory": Printed(
        Record(
            Memory,
            {
                "programs": [
                    Record(
                        ProgramMemory,
                        {"peak_bytes": int, "timeline": [{"instruction": str, "bytes": int}]},
                    )
                ]
            },
        ),
        "memory --json",
    ),
    "hosts": Printed(Record(Hosts, {"slow": TEXTS, "slow_hosts": TEXTS}), "hosts --json"),
    "network": Printed(
        Record(Network, {"collectives": [Record(SliceCollective, {"stall_us": float})]}),
        "network --json",
    ),
    "diagnose": Printed(
        Record(
            Diagnosis,
            {"findings": [Record(Finding, {"gain": Record(Gain, {"share": float | None})})]},
        ),
        "diagnose --json",
    ),
    "diff": Printed(
        Record(
            Diff,
            {
                "moves": [Record(Move, {"change_us": float})],
                "move_groups": [Record(Move, {"change_us": float})],
                "gate": Maybe({"limit": float, "passed": bool | None}),
            },
        ),
        "diff --json",
    ),
    "report": Printed(
        {
            "output": str,
            "bytes": int,
            "events": int,
            "step_us": float,
            "findings": int | None,
            "verdict": str | None,
        },
        "report --json",
    ),
    "serve": Printed({"url": str, "host": str, "port": int, "paths": TEXTS}, "serve --json"),
    "query": Printed(list[dict[str, Any]], "query --json"),
    "costs extract": Printed({"files": TEXTS, **COST_TABLE}, "`costs --json`, `costs show --json`"),
    "costs show": Printed(
        {"files": Maybe(TEXTS), **COST_TABLE}, "`costs --json`, `costs show --json`"
    ),
    "costs check": Printed(Record(Coverage), "`costs check --json`"),
    "costs diff": Printed(
        {"same": int, "changes": [Record(CostChange, {"change_us": float})]},
        "`costs diff --json`",
    ),
    "flags list": Printed(
        Either(
            (
                {"jaxlib": str, "flags": list[Flag]},
                {"libtpu": str, "instead_of": str | None, "flags": list[LibtpuFlag]},
            )
        ),
        FLAGS,
    ),
    "flags explain": Printed(Record(Explanation), FLAGS),
    "flags diff": Printed(
        Record(FlagDiff, {"removed": [{"name": str, "replacement": Replacement | None}]}), FLAGS
    ),
    "flags lint": Printed(
        {
            "jaxlib": str,
            "gpu": str | None,
            "findings": [
                Record(
                    LintFinding,
                    {"place": Record(SourceLocation, without=("within", "is_one_piece"))},
                )
            ],
        },
        FLAGS,
    ),
    "flags preset": Printed(PRESET, FLAGS),
    "flags thresholds": Printed(
        Record(Thresholds, {"flags": dict[str, int], "xla_flags": str}), FLAGS
    ),
    "doctor": Printed(
        {
            "packages": dict[str, str],
            "gpus": list[LocalGpu] | None,
            "tpus": TEXTS | None,
            "links": TEXTS | None,
            "findings": list[Problem],
        },
        FLAGS,
    ),
    "machines list": Printed(
        {
            "gpus": list[Gpu],
            "tpus": list[Tpu],
            "networks": [Record(Fabric, {"key": str})],
        },
        MACHINES,
    ),
    "machines show": Printed(MACHINE, MACHINES),
    "machines calibrate": Printed(
        {
            "file": str,
            "kernels": dict[str, float],
            "calls": list[MeasuredCall],
            "collectives": [CURVE],
        },
        MACHINES,
    ),
    "compile": Printed(
        {
            "target": str,
            "machine": str,
            "devices": int,
            "program": str,
            "fingerprint": str | None,
            "instructions": int,
            "collectives": [
                {"kind": str, "instructions": int, "executions": int | None, "bytes": int | None}
            ],
            "memory": Record(MemoryUse, {"peak_bytes": int, "fits": bool}),
            "messages": list[CompilerMessage],
            "seconds": float,
            "is_cached": bool,
            "versions": dict[str, str],
            "flags": dict[str, Any],
            "proto": str,
            "log": str,
            "written": str | None,
        },
        "`compile --json`",
    ),
    **dict.fromkeys(
        ("predict", "simulate"),
        Printed(Either((PREDICTION, {"predictions": [PREDICTION]})), "predict --json"),
    ),
    "schedule": Printed(SCHEDULING, "schedule --json"),
    "run": Printed(RECEIPT, "`run --json` and `receipt.json`"),
    **dict.fromkeys(
        ("plan start", "plan resume", "plan measure", "plan show"), Printed(PLAN, "plan --json")
    ),
    **dict.fromkeys(("tune start", "tune resume", "tune show"), Printed(TUNING, "tune --json")),
    "tune apply": Printed({**PRESET, "command": Maybe(TEXTS)}, FLAGS),
}
"""by command, as it is typed after `slipstream`"""
