"""Secrets don't reach receipts, pages and logs."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.masking import (
    is_secret_name,
    kept_variables,
    mask_command,
    mask_text,
    masked,
)

HF = "hf_" + "aB3" * 12
GITHUB = "ghp_" + "x1" * 18


@pytest.mark.parametrize(
    "name",
    [
        *(
            "--api-key",
            "--token",
            "--hf_token",
            "HF_TOKEN",
            "WANDB_API_KEY",
            "--password",
            "apiKey",
        ),
        *("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AZURE_CLIENT_ID", "--db-passwd"),
        *("client_secret_file", "GOOGLE_APPLICATION_CREDENTIALS", "JAX_AUTH_TOKEN", "--auth"),
    ],
)
def test_names_of_credentials(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("--tokens", "--max_tokens", "--tokenizer", "tokens_per_batch", "eos_token_id", "--lr"),
        *("--pad-token", "prng_key", "--keys", "--author", "--num-key-value-heads", "monkey", ""),
    ],
)
def test_names_of_other_things(name):
    assert not is_secret_name(name)


def test_a_command_keeps_everything_but_its_credentials():
    command = [
        *("env", "HF_TOKEN=abc", "python", "train.py", "--lr=3e-4", "--api-key", "k123", "--steps"),
        *("100", "--wandb-key=zzz", "--tokens=512", "--db", "postgresql://me:pw@db:5432/x"),
        *("--header", "Authorization: Bearer abcdefghijk", HF, "--token", "--flag", "value"),
        "DB_PASSWORD=one two;three",
    ]
    assert mask_command(command) == [
        *("env", "HF_TOKEN=***", "python", "train.py", "--lr=3e-4", "--api-key", "***", "--steps"),
        *("100", "--wandb-key=***", "--tokens=512", "--db", "postgresql://db:5432/x"),
        *("--header", "Authorization: ***", "***", "--token", "--flag", "value"),
        "DB_PASSWORD=***",
    ]


def test_a_script_inside_a_command():
    script = "export HF_TOKEN={}; curl -u x https://{}git/x && python t.py --password '{}'"
    given_words = ["bash", "-c", script.format(HF, f"me:{GITHUB}@", "p w")]
    assert mask_command(given_words) == ["bash", "-c", script.format("***", "", "***")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:p%40ss@host/path?x=1", "https://host/path?x=1"),
        ("https://user@host", "https://host"),
        ("postgresql+psycopg://u:p/w:d@db/x", "postgresql+psycopg://db/x"),
        ("gs://bucket/a/b", "gs://bucket/a/b"),
        ("https://host/x?token=abc&page=2", "https://host/x?token=***&page=2"),
        ("AKIA" + "A" * 16, "***"),
        ("the server refused Bearer abcdefghijkl", "the server refused Bearer ***"),
        ('{"password": "x y", "lr": "1"}', '{"password": "***", "lr": "1"}'),
        ("TOKEN=$HF_TOKEN python x", "TOKEN=$HF_TOKEN python x"),
        ("--xla_gpu_enable_x=true a=b", "--xla_gpu_enable_x=true a=b"),
        ("the profile holds 3 steps; type: slipstream summary x", None),
    ],
)
def test_a_text(text, shown):
    assert mask_text(text) == (text if shown is None else shown)


def test_a_value_under_the_name_of_a_credential():
    """Its form says nothing, and there is no name beside it in its text."""
    data = {"password": "x y", "steps": "10", "more": [{"apiKey": "abc", "tokens": 3}]}
    shown = {"password": "***", "steps": "10", "more": [{"apiKey": "***", "tokens": 3}]}
    assert masked(data) == shown


def test_values_of_performance_variables_only():
    given_variables = {
        "XLA_FLAGS": "--a=1", "NCCL_DEBUG": "INFO", "HOME": "/home/me", "MY_SETTING": "7",
        "JAX_COMPILATION_CACHE_DIR": "s3://k:s@bucket/x", "JAX_AUTH_TOKEN": "y", "HF_TOKEN": "z",
    }  # fmt: skip
    assert kept_variables(given_variables) == {
        "JAX_COMPILATION_CACHE_DIR": "s3://bucket/x", "NCCL_DEBUG": "INFO", "XLA_FLAGS": "--a=1",
    }  # fmt: skip


SECRET = st.text(string.ascii_letters + string.digits + "_-+/.~%", min_size=12, max_size=40).filter(
    lambda text: not text.startswith("-")
)
FORMS = st.sampled_from(
    [
        "--api-key={}", "--token={}", "HF_TOKEN={}", "https://me:{}@host/x", "DB_PASSWORD={}",
        "Authorization: Bearer {}", "bash -c 'WANDB_API_KEY={} python x'", "x --secret {} --lr 3",
        "https://host/?access_token={}",
    ]
)  # fmt: skip


@given(st.lists(st.tuples(FORMS, SECRET), min_size=1, max_size=4))
def test_no_secret_passes(pairs):
    words = [form.format(secret) for form, secret in pairs]
    for text in (str(masked(words)), str(mask_command(words)), str(masked({"repeat": [words]}))):
        assert not [secret for _, secret in pairs if secret in text]


@given(st.lists(st.text(string.ascii_lowercase + "-=/.0123456789", max_size=12), max_size=6))
def test_what_is_no_secret_stays(words):
    kept = [
        word for word in words if not is_secret_name(word.partition("=")[0]) and "@" not in word
    ]
    assert mask_command(kept) == kept
    assert mask_command(mask_command(words)) == mask_command(words)
