"""What presets are made of: guides, entries, and presets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guide:
    """A page that recommends flags."""

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
    "maxtext": Guide(
        "MaxText's XLA flags for TPUs",
        "https://github.com/AI-Hypercomputer/maxtext/blob/main/benchmarks/xla_flags_library.py",
    ),
    "guidance": Guide("XLA flags guidance", "https://openxla.org/xla/flags_guidance"),
}

HERE = "slipstream"
"""in place of a guide: settings that no guide names but today's XLA needs"""


@dataclass(frozen=True)
class PresetEntry:
    """A setting as a guide recommends it."""

    name: str
    """a flag, or a variable in capitals"""
    value: str
    reason: str
    guide: str
    """a key of `GUIDES`, or `HERE`"""
    said: str = ""
    """what the guide says, if that is not `name=value`"""
    until: str | None = None
    """the last jaxlib that needs it"""
    withheld: str = ""
    """why it is never set although a guide recommends it: what today's XLA does with it"""
    is_met_by_any: bool = False
    """whether any default that is not empty already does what this asks for"""
    only_with_estimator: bool = False
    """for Hopper and Blackwell only"""

    variable: str = "XLA_FLAGS"
    """where it is set, if it is a flag: `XLA_FLAGS` or `LIBTPU_INIT_ARGS`"""

    @property
    def is_flag(self) -> bool:
        return self.is_for_tpus or self.name.startswith("xla_")

    @property
    def is_for_tpus(self) -> bool:
        return self.variable == "LIBTPU_INIT_ARGS"

    @property
    def as_said(self) -> str:
        """The line in the guide."""
        if self.guide == HERE:
            return ""
        return self.said or f"{'--' if self.is_flag else ''}{self.name}={self.value}"


@dataclass(frozen=True)
class Preset:
    """Settings that belong together."""

    name: str
    purpose: str
    """a sentence"""
    entries: tuple[PresetEntry, ...]
    includes: tuple[str, ...] = ()
    """presets whose entries it includes"""
