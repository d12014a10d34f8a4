"""The guides that the presets come from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guide:
    """A page that tells people which flags to set."""

    title: str
    source: str


GUIDES = {
    "pgle": Guide(
        "PGLE workflow for GPU with Nsight",
        "https://github.com/NVIDIA/JAX-Toolbox/blob/main/rosetta/docs/PGLE.md",
    ),
    "jax": Guide(
        "GPU performance tips (JAX)", "https://docs.jax.dev/en/latest/gpu_performance_tips.html"
    ),
    "llm": Guide(
        "Tips for high-performance LLMs with JAX and XLA",
        "https://github.com/NVIDIA/JAX-Toolbox/blob/main/rosetta/docs/GPU_performance.md",
    ),
    "megascale": Guide(
        "Performance of Megascale runs", "https://openxla.org/xla/megascale/debugging_workflow"
    ),
    "levanter": Guide(
        "Levanter's performance guide",
        "https://github.com/stanford-crfm/levanter/blob/main/docs/Performance-Guide.md",
    ),
}

HERE = "slipstream"
"""in place of a guide: what no guide says, and today's XLA needs"""
