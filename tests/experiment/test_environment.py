"""What a receipt says of how its job was started."""

import sys

from slipstream.experiment.environment import launch_facts, other_variables


def test_variables_that_the_script_names_are_told_without_their_values():
    script = """# Sizes: GPT_TOKENS and so on.
steps = int(os.environ.get("GPT_STEPS", "3")); os.getenv('WANDB_API_KEY'); HF_TOKEN = None"""
    given = {
        "GPT_STEPS": "1400", "WANDB_API_KEY": "x", "HOME": "/home/me", "XLA_FLAGS": "--a",
        "GPT_OTHER": "7", "GPT_TOKENS": "512", "HF_TOKEN": "z",
    }  # fmt: skip
    assert other_variables(given, script) == [
        "GPT_STEPS",
        "GPT_TOKENS",
        "HF_TOKEN",
        "WANDB_API_KEY",
    ]


def test_what_a_receipt_holds_of_the_launch(monkeypatch, tmp_path):
    (tmp_path / "train.py").write_text('os.environ["MY_DATABASE"]')
    argv = [str(tmp_path / "train.py"), "--api-key=abc", "--lr", "3", "https://me:pw@host/data"]
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setenv("MY_DATABASE", "postgresql://me:pw@host")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    found = launch_facts()
    assert found["command"] == [argv[0], "--api-key=***", "--lr", "3", "https://host/data"]
    assert found["environment"]["NCCL_DEBUG"] == "INFO"
    assert found["other_variables"] == ["MY_DATABASE"]
    assert "pw" not in str({**found, "cwd": ""})


def test_a_job_without_a_script_has_surroundings_too(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", [str(tmp_path)])
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    found = launch_facts()
    assert found["environment"]["NCCL_DEBUG"] == "INFO" and found["command"] == [str(tmp_path)]
