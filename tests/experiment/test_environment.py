"""What a receipt says of how its job was started."""

import sys

from slipstream.experiment.environment import launch_facts, relevant_variables


def test_what_the_script_names_is_told_and_secrets_are_not():
    script = """# Sizes: GPT_TOKENS and so on.
steps = int(os.environ.get("GPT_STEPS", "3")); os.getenv('WANDB_API_KEY'); HF_TOKEN = None"""
    given = {
        "GPT_STEPS": "1400", "WANDB_API_KEY": "x", "HOME": "/home/me", "XLA_FLAGS": "--a",
        "JAX_AUTH_TOKEN": "y", "GPT_OTHER": "7", "GPT_TOKENS": "512", "HF_TOKEN": "z",
    }  # fmt: skip
    told = {"GPT_STEPS": "1400", "GPT_TOKENS": "512", "XLA_FLAGS": "--a"}
    assert relevant_variables(given, script) == told


def test_a_job_without_a_script_has_surroundings_too(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", [str(tmp_path)])
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    found = launch_facts()
    assert found["environment"]["NCCL_DEBUG"] == "INFO" and found["command"] == [str(tmp_path)]
