"""The stable JSON that commands print with `--json`; docs/json.md is the contract.

Times are microseconds (`_us`), shares are 0 to 1, and unknown values are null, never NaN. The JSON
of other commands is in `outputs.terminal`; these three are needed without importing rich.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slipstream.analyses.op_groups import Op, ScopeTotal
    from slipstream.analyses.ops import Ops
    from slipstream.analyses.summary import ProgramSummary, Summary
    from slipstream.profile.profile import ProfileWarning


def dumps(data: Any) -> str:
    """JSON with two-space indentation; NaN and infinities become null.

    Letters stay as they are; what a terminal would obey is escaped.
    """
    text = json.dumps(_finite(data), indent=2, ensure_ascii=False, allow_nan=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def summary_json(summary: Summary) -> dict[str, Any]:
    """What `summary --json` prints."""
    return {
        "hosts": list(summary.hosts),
        "versions": dict(summary.versions),
        "devices": [asdict(device) for device in summary.devices],
        "programs": [asdict(program) for program in summary.programs],
        "steps": {
            "count": summary.step_count,
            "median_us": summary.step_median_us,
            "basis": summary.step_basis,
            "rule": summary.step_rule,
        },
        "per_step_us": {
            name.removesuffix("_us"): value for name, value in asdict(summary.per_step).items()
        },
        "phases_us": dict(summary.phases_us),
        "top": [_op(op) for op in summary.top],
        "top_groups": [_op(op) for op in summary.top_groups],
        "warnings": [_warning(warning) for warning in summary.warnings],
    }


def ops_json(ops: Ops, top: int | None = None, tree: Sequence[ScopeTotal] = ()) -> dict[str, Any]:
    """What `ops --json` prints: all ops, or the `top` longest; `tree` is for scopes."""
    return {
        "by": ops.by,
        "steps": ops.steps,
        "attributed_share": ops.attributed_share,
        "total_us": ops.total_us,
        "ops": [_op(op) for op in ops.ops[:top]],
        "groups": [_op(op) for op in ops.groups[:top]],
        "tree": [asdict(one) for one in tree],
    }


def programs_json(programs: Sequence[ProgramSummary]) -> dict[str, Any]:
    """What `programs --json` prints."""
    return {"programs": [asdict(program) for program in programs]}


def _op(op: Op) -> dict[str, Any]:
    return asdict(op)


def _warning(warning: ProfileWarning) -> dict[str, str]:
    return {"code": warning.code, "message": warning.message}


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if value is None or isinstance(value, str | int):
        return value
    # A query may return dates, decimals or bytes; numpy's scalars have `item`.
    return _finite(value.item()) if hasattr(value, "item") else str(value)
