from __future__ import annotations

import json
import math
from dataclasses import replace

from outputs.results import OPS, PROGRAMS, SUMMARY
from slipstream.outputs.json import dumps, ops_json, programs_json, summary_json

MATMUL = {
    "program": "jit_step(1)",
    "instruction": "gemm_fusion_dot.7",
    "count": 3,
    "total_us": 123000.0,
    "per_step_us": 41000.0,
    "per_step_count": 1.0,
    "share": 0.092,
    "phase": "backward",
    "category": "matmul",
    "scope": "block/mlp",
    "source": "/home/someone/train/model.py:26",
    "description": "x @ w1ᵀ",
    "shapes": "",
}
GROUP = {**MATMUL, "instructions": ["gemm_fusion_dot.7"]}
STEP = {
    "name": "jit_step(1)",
    "fingerprint": "7733d8da9f00c0ffee",
    "executions": 3,
    "instructions": 116,
    "device_us": 1338000.0,
    "command_buffers": True,
}
CONVERT = {
    "name": "jit_convert_element_type(22)",
    "fingerprint": None,
    "executions": 1,
    "instructions": None,
    "device_us": 12.5,
    "command_buffers": False,
}


def test_summary():
    summary = replace(SUMMARY, top=SUMMARY.top[:1], top_groups=SUMMARY.top_groups[:1])
    assert json.loads(dumps(summary_json(summary))) == {
        "hosts": ["worker-0"],
        "versions": {"jax": "0.11.2", "jaxlib": "0.11.2"},
        "devices": [
            {
                "name": "/device:GPU:0",
                "host": "worker-0",
                "model": "NVIDIA H200",
                "events": 420,
                "busy_us": 444000.0,
            }
        ],
        "programs": [STEP, CONVERT],
        "steps": {
            "count": 3,
            "median_us": 447000.0,
            "basis": "annotations",
            "rule": "step annotations of the host; the first one was left out",
        },
        "per_step_us": {
            "wall": 447000.0,
            "compute": 412000.0,
            "communication": 30000.0,
            "exposed_communication": 9000.0,
            "copy": 65000.0,
            "exposed_copy": 23000.0,
            "idle": 3000.0,
            "unattributed": 900.0,
        },
        "phases_us": {
            "forward": 112000.0,
            "backward": 206000.0,
            "remat": 98000.0,
            "optimizer": 5000.0,
            "other": 0.0,
        },
        "top": [MATMUL],
        "top_groups": [GROUP],
        "warnings": [
            {
                "code": "host-copies",
                "message": "host copies run on the compute stream: command buffers capture them; "
                "see: slipstream explain host-copies",
            }
        ],
    }


def test_ops():
    assert json.loads(dumps(ops_json(OPS, top=1))) == {
        "by": "instruction",
        "steps": 3,
        "attributed_share": 0.998,
        "total_us": 1338000.0,
        "ops": [MATMUL],
        "groups": [GROUP],
        "tree": [],
    }
    assert len(ops_json(OPS)["ops"]) == 3


def test_programs():
    assert json.loads(dumps(programs_json(PROGRAMS))) == {"programs": [STEP, CONVERT]}


def test_what_is_not_known_is_null():
    text = dumps(summary_json(replace(SUMMARY, step_median_us=math.nan)))
    assert json.loads(text)["steps"]["median_us"] is None
    assert dumps([math.inf, -math.inf, math.nan]) == "[\n  null,\n  null,\n  null\n]"
