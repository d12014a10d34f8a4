"""Rules for flags of TPUs that need each other, or exclude each other, as their guides say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slipstream.flags.catalogue.libtpu import LibtpuCatalogue
from slipstream.flags.lint.findings import LintFinding
from slipstream.flags.lint.libtpu import flag_and_value
from slipstream.flags.settings import Setting

_FUSION = "xla_tpu_enable_async_collective_fusion"
_OFFLOAD = "xla_tpu_enable_sparse_core_collective_offload"
_CHAIN = (
    "xla_should_allow_loop_variant_parameter_in_chain",
    "xla_should_add_loop_invariant_op_in_chain",
)
NEEDS = {
    **dict.fromkeys(
        (
            f"{_FUSION}_fuse_all_gather",
            f"{_FUSION}_fuse_all_reduce",
            f"{_FUSION}_fuse_reduce_scatter",
            f"{_FUSION}_multiple_steps",
        ),
        (_FUSION,),
    ),
    "xla_tpu_enable_ici_ag_pipelining": _CHAIN,
    "xla_latency_hiding_scheduler_rerun": ("xla_tpu_enable_latency_hiding_scheduler",),
}
"""a flag, and those that must be on for it to have an effect: openxla.org/xla/flags_guidance"""
EXCLUDES = {
    f"{_OFFLOAD}_{kind}": f"{_FUSION}_fuse_{kind}"
    for kind in ("all_gather", "all_reduce", "reduce_scatter")
}
"""SparseCore or fusion runs a kind of collective, not both: MaxText's xla_flags_library.py"""


@dataclass(frozen=True)
class _Values:
    """The values that libtpu gets from one variable; the last of two counts."""

    libtpu: LibtpuCatalogue
    given: dict[str, tuple[Setting, str]]

    def is_on(self, name: str) -> bool | None:
        """True or false, by the setting or else the default; None if libtpu decides."""
        flag = self.libtpu.flags.get(name)
        if flag is None:
            return None
        value = self.given[name][1] if name in self.given else flag.default
        return {"true": True, "false": False, "0": False}.get(flag.normalized(value))


def tpu_conflicts(settings: Sequence[Setting], libtpu: LibtpuCatalogue) -> Iterator[LintFinding]:
    """The findings of all rules, for each variable that holds flags of libtpu."""
    for group in sorted({one.group for one in settings if one.kind == "libtpu"}):
        given = {}
        for setting in settings:
            flag, value = flag_and_value(setting, libtpu)
            is_here = setting.kind == "libtpu" and setting.group == group
            if is_here and flag is not None and value is not None and setting.is_known:
                given[flag.name] = setting, value
        values = _Values(libtpu, given)
        yield from _without_effect(values)
        yield from _excluded(values)


def _without_effect(values: _Values) -> Iterator[LintFinding]:
    for name, needed in NEEDS.items():
        if name not in values.given or values.is_on(name) is False:
            continue
        off = [one for one in needed if values.is_on(one) is False]
        if off:
            setting = values.given[name][0]
            add = " ".join(f"--{one}=true" for one in off)
            message = (
                f"{name} has no effect while {' and '.join(off)} "
                f"{'is' if len(off) == 1 else 'are'} off; set {add}, or remove it"
            )
            yield LintFinding("no-effect", "warning", name, message, setting.place)


def _excluded(values: _Values) -> Iterator[LintFinding]:
    for name, other in EXCLUDES.items():
        if name not in values.given or values.is_on(name) is not True:
            continue
        if values.is_on(other) is not False:
            setting = values.given[name][0]
            kind = name.removeprefix(f"{_OFFLOAD}_").replace("_", "-")
            message = (
                f"{name} moves {kind}s to the SparseCore, but {other} is "
                f"{values.given[other][1] if other in values.given else 'left to libtpu'}; one of "
                f"the two can run them: add --{other}=false"
            )
            fix = None if other in values.given else f"{setting.text} --{other}=false"
            yield LintFinding("contradictory", "warning", name, message, setting.place, fix)
