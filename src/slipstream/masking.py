"""Secrets kept out of receipts, pages and logs.

Of the environment, only variables that decide how fast a program runs keep their values. Of a
command, options and assignments with the name of a credential lose their value, and so does any
text in the form of one: `--api-key ***`, `HF_TOKEN=***`, `postgresql://host/db`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "***"

PERFORMANCE_VARIABLES = (
    "XLA_", "JAX_", "LIBTPU_", "TPU_", "MEGASCALE_",
    "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_TF32_", "NVTE_", "HIP_", "ROCR_",
    "NCCL_", "RCCL_", "NVSHMEM_", "UCX_", "FI_", "GLOO_",
    "TF_CPP_", "TF_GPU_", "TF_XLA_", "OMP_", "MKL_", "OPENBLAS_", "MALLOC_", "SLIPSTREAM_",
)  # fmt: skip
"""prefixes of the variables whose values are kept"""

_ANYWHERE = frozenset(
    (
        *("secret", "secrets", "password", "passwords", "passwd", "pwd", "passphrase"),
        *("credential", "credentials"),
    )
)
"""words that make any name the name of a secret"""
_AT_THE_END = frozenset(
    ("token", "key", "apikey", "auth", "authorization", "bearer", "cookie", "jwt", "pat")
)
_HARMLESS = frozenset(
    (
        *("pad", "eos", "bos", "unk", "cls", "sep", "mask"),
        *("prng", "rng", "sort", "primary", "num", "per"),
    )
)
"""before such an ending: `--pad-token 0` is no secret"""
_CLOUD = ("AWS_", "AZURE_", "WANDB_API", "HUGGING_FACE_HUB_")

_USER_PART = re.compile(
    r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s/@'\"]*|[^\s/'\"]*:[^\s'\"]*)@"
)
_FORMS = re.compile(
    r"\b(?:hf|ghp|gho|ghu|ghs|ghr|npm|pypi|dop_v1|shpat)[_-][A-Za-z0-9]{16,}"
    r"|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bxox[a-z]-[\w-]{10,}|\bsk-[\w-]{16,}"
    r"|\bya29\.[\w-]{16,}|\bAIza[\w-]{30,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.DOTALL,
)
"""tokens that show by their form what they are"""
_SCHEME = r"(?:bearer|basic|token)\s+"
_AUTHORIZED = re.compile(rf"\b({_SCHEME})[\w+/=.~%-]{{8,}}", re.IGNORECASE)
_NAME = re.compile(
    r"(?<![\w.-])(?:(?P<name>[A-Za-z_][\w.-]*)(?:[\"']?\s*:\s*|\s*=\s*)"
    r"|(?P<option>--?[A-Za-z][\w.-]*)(?:\s*=\s*|\s+(?!-)))"
)
_VALUE = re.compile(rf"\"[^\"]*\"|'[^']*'|(?:{_SCHEME})?[^\s&;,\"']+", re.IGNORECASE)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_secret_name(name: str) -> bool:
    """Whether an option or a variable has the name of a credential."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if name.startswith(_CLOUD) or _ANYWHERE.intersection(words):
        return True
    if not words or words[-1] not in _AT_THE_END:
        return False
    return len(words) == 1 or words[-2] not in _HARMLESS


def mask_text(text: str) -> str:
    """`text` without credentials, and without the user in its URLs."""
    text = _USER_PART.sub(r"\1", text)
    text = _AUTHORIZED.sub(rf"\1{MASK}", text)
    text = _FORMS.sub(MASK, text)
    parts, at, done = [], 0, 0
    while (found := _NAME.search(text, at)) is not None:
        at = found.end()
        value = _VALUE.match(text, at)
        if value is None or value[0].startswith("$"):
            continue  # a reference to a variable is no secret
        if is_secret_name(found["name"] or found["option"]):
            quote = value[0][0] if value[0][0] in "\"'" else ""
            parts.append(f"{text[done:at]}{quote}{MASK}{quote}")
            at = done = value.end()
    return "".join(parts) + text[done:]


def mask_command(words: Sequence[str]) -> list[str]:
    """A command without credentials; every other word as it is."""
    found: list[str] = []
    after_secret = False
    for word in words:
        name, equals, _ = word.partition("=")
        is_option = word.startswith("-")
        if after_secret and not is_option:
            found.append(MASK)
        elif equals and " " not in name and is_secret_name(name):
            found.append(f"{name}={MASK}")
        else:
            found.append(mask_text(word))
        after_secret = is_option and not equals and is_secret_name(word)
    return found


def kept_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The performance variables of an environment, with their values."""
    return {
        name: mask_text(value)
        for name, value in sorted(environment.items())
        if name.startswith(PERFORMANCE_VARIABLES) and not is_secret_name(name)
    }


def masked(data: Any) -> Any:
    """JSON data with every text masked."""
    if isinstance(data, str):
        return mask_text(data)
    if isinstance(data, Mapping):
        return {
            key: MASK if isinstance(value, str) and is_secret_name(str(key)) else masked(value)
            for key, value in data.items()
        }
    return [masked(one) for one in data] if isinstance(data, list | tuple) else data
