"""examples/gpt.py: it learns, every way of spreading it computes the same, and XLA cuts it well."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpt_losses
from slipstream.analyses.soundness import FLAG, PASS
from slipstream.compiler.compile import compilation

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gpt.py"


def run(*command: str, **variables: str) -> str:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", **variables}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_it_trains_on_what_is_here():
    printed = run(str(EXAMPLE), GPT_STEPS="4", GPT_WIDTH="32", XLA_FLAGS=gpt_losses.quick_flags())
    losses = [float(loss) for loss in re.findall(r"loss +([\d.]+) +[\d.]+ ms", printed)]
    assert len(losses) == 4 and losses[-1] < losses[0] < 6


def test_every_way_of_spreading_it_computes_the_same():
    found = json.loads(run(gpt_losses.__file__))
    assert list(found) == [*gpt_losses.BUILDERS, "chosen"]
    for losses in found.values():
        assert losses == pytest.approx(found["build_data"], rel=1e-3)
        assert losses[1] < losses[0]


@pytest.mark.parametrize(
    ("name", "choices", "expected"),
    [
        ("build", {}, {"all-gather", "reduce-scatter"}),
        ("build", {"attention": "cudnn", "remat": "none"}, {"all-gather", "reduce-scatter"}),
        ("build_pipeline", {}, {"collective-permute"}),
    ],
)
def test_what_it_sends(name, choices, expected, quick, monkeypatch):
    """Two hosts of four: what belongs to a way of spreading is there, and nothing is made whole."""
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    sizes = {"LAYERS": 4, "WIDTH": 512, "HEADS": 8, "WORDS": 1024, "TOKENS": 256, "BATCH": 8}
    for size, value in sizes.items():
        monkeypatch.setenv(f"GPT_{size}", str(value))
    # At these sizes XLA would sum gradients of two types by one all-reduce, wrongly.
    flags = {**quick, FLAG: PASS}
    if name == "build_pipeline":
        import gpt

        flags |= {**gpt.PIPELINE_FLAGS, FLAG: f"{gpt.PIPELINE_FLAGS[FLAG]},{PASS}"}
    found = compilation(f"{EXAMPLE}:{name}", choices, on="2x4xH200", flags=flags)
    kinds = {one.collective.kind for one in found.program.scheduled if one.collective}
    assert expected <= kinds and found.devices == 8
    attention = [one for one in found.program.instructions if "cudnn" in one.custom_call_target]
    assert bool(attention) == ("attention" in choices)
    assert found.messages == ()
