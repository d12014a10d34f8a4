"""examples/llama.py and moe.py: they learn, layouts compute the same, and XLA cuts them well."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import layout_losses
from slipstream.compiler.compile import compilation

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("name", ["llama", "moe"])
def test_it_learns_and_every_layout_computes_the_same(name):
    done = subprocess.run(
        [sys.executable, layout_losses.__file__, name], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)

    for full, dots in found["products"]:
        assert full - dots == 6, "all products with weights that the backward pass needs are saved"
    learnt = found["script"]
    assert len(learnt) == layout_losses.STEPS and learnt[-1] < learnt[0] - 0.3
    assert found["one"][1] < found["one"][0]
    for layout in layout_losses.LAYOUTS[name]:
        assert found[layout] == pytest.approx(found["one"], rel=1e-3), layout
        # Rounding sends some tokens to other experts.
        assert max(found[f"{layout} gradients"]) < (0.2 if name == "moe" else 0.05), layout
    assert learnt[:2] == pytest.approx(found["one"], rel=1e-3)


FSDP = {"all-gather", "reduce-scatter"}
LAYER_BYTES = 2 * (2 * 512 * 512 + 2 * 512 * 256 + 3 * 512 * 1024)
OUTER_BYTES = 2 * (2 * 1024 * 512)


@pytest.mark.parametrize(
    ("name", "choices", "expected", "absent"),
    [
        ("llama", {"data": 2, "attention": "xla", "remat": "none"}, FSDP, {"all-to-all"}),
        ("llama", {"data": 2, "context": 2}, {"all-to-all", *FSDP}, set()),
        ("moe", {"expert": 4}, {"all-to-all", *FSDP}, set()),
    ],
)
def test_what_it_sends(name, choices, expected, absent, quick, monkeypatch):
    """Collectives that belong to a layout are there."""
    kinds = {one.kind for one in collectives(name, choices, quick, monkeypatch)}
    assert expected <= kinds and not absent & kinds


def test_unrolled_layers_are_gathered_again_for_the_backward_pass(quick, monkeypatch):
    choices = {"tensor": 2, "layers": "unrolled", "remat": "dots"}
    found = collectives("llama", choices, quick, monkeypatch)
    assert {"all-reduce", *FSDP} <= {one.kind for one in found}
    gathered = sum(one.bytes for one in found if one.kind == "all-gather")
    assert gathered == (2 * 2 * LAYER_BYTES + OUTER_BYTES) // choices["tensor"]


def test_a_pipeline_sends_microbatches_on_and_gathers_each_stage_once(quick, monkeypatch):
    program = compiled("llama", {"pipeline": 2, "batch": 4}, quick, monkeypatch).program
    found = [one.collective for one in program.scheduled if one.collective]
    microbatch = 2 * 256 * 512
    sent = [one.bytes for one in found if one.kind == "collective-permute"]
    assert sent.count(microbatch) == 2, "forward and backward"
    # Besides its own layer: the embedding, the head, and activations around the layers.
    gathered = sum(one.bytes for one in found if one.kind == "all-gather")
    assert gathered == LAYER_BYTES + OUTER_BYTES + 2 * 4 * microbatch
    # Its gradients are reduced behind the loop over microbatches.
    once = [one.collective for one in program.entry.instructions if one.collective]
    assert LAYER_BYTES in [one.bytes for one in once if one.kind == "reduce-scatter"]


def collectives(name, choices, flags, monkeypatch):
    program = compiled(name, choices, flags, monkeypatch).program
    return [one.collective for one in program.scheduled if one.collective]


def compiled(name, choices, flags, monkeypatch):
    sizes = {"SIZE": "tiny", "WIDTH": 512, "INNER": 1024, "TOKENS": 256, "WORDS": 1024}
    for size, value in sizes.items():
        monkeypatch.setenv(f"{name.upper()}_{size}", str(value))
    return compilation(f"{EXAMPLES / name}.py:build", args=choices, on="8xH100", flags=flags)


@pytest.mark.parametrize(
    ("name", "count", "choices", "said"),
    [
        ("llama", 8, {"fsdp": 3}, "fsdp 3 × context 1 × tensor 1 = 3 devices; expected 8"),
        ("llama", 8, {"tensor": 3}, "data 1 × context 1 × tensor 3 = 3 does not divide"),
        (
            "llama",
            8,
            {"tensor": 8},
            "context × tensor = 8 does not divide the 4 key",
        ),
        ("llama", 8, {"pipeline": 4}, "pipeline = 4 does not divide the 2 layers"),
        ("llama", 8, {"microbatches": 2}, "microbatches = 2 without a pipeline; leave them out"),
        (
            "llama",
            8,
            {"pipeline": 2, "batch": 4, "microbatches": 3},
            "microbatches = 3 do not divide the batch of 4",
        ),
        ("moe", 8, {"fsdp": 2, "expert": 8}, "= 16 devices; expected 8"),
        ("moe", 16, {"expert": 16}, "expert = 16 does not divide the 8 experts"),
    ],
)
def test_a_layout_that_does_not_fit_is_an_error(name, count, choices, said, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module(name)
    devices = [Device() for _ in range(count)]
    with pytest.raises(ValueError, match=re.escape(said)):
        example.build(devices, **choices)


class Device:
    """All that a layout asks of a device."""

    platform = "cpu"
