"""What a flag's value may look like; `XLA_FLAGS` and `compiler_options` differ in it.

               XLA_FLAGS                       compiler_options
bool           bare, true, False, 1, 0         True or False, nothing else
enum           the name                        the name, or its number
list of enums  A,B or +A,-B; any case          A,B, which replaces the default
number         an integer in range             the same
"""

from __future__ import annotations

import re

from slipstream.flags.catalogue import Flag

_BOOLS = {"true": "true", "1": "true", "false": "false", "0": "false"}
_INTEGER = re.compile(r"[+-]?\d+")
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_REPEATED = "repeated "
_EXACT = frozenset(
    (
        "xla_cpu_scheduler_type",
        "xla_gpu_command_buffer_scheduling_mode",
        "xla_gpu_command_buffer_update_mode",
        "xla_gpu_deviceless_cub_mode",
        "xla_gpu_experimental_autotune_cache_mode",
        "xla_gpu_experimental_pipeline_parallelism_opt_level",
        "xla_gpu_pgle_accuracy_checker",
        "xla_gpu_shape_checks",
        "xla_partitioning_algorithm",
        "xla_step_marker_location",
    )
)
"""enums that `XLA_FLAGS` takes by their whole name only; tried with jaxlib 0.10.2"""
_ANY_CASE = frozenset(
    ("xla_cpu_experimental_xnn_graph_fusion_mode", "xla_gpu_enable_while_loop_unrolling")
)
"""enums by their whole name, in any case"""
_LOWER_ENDS = frozenset(
    (
        "xla_detect_unstable_reductions",
        "xla_detect_unstable_reductions_post_optimizations",
        "xla_gpu_detect_inf",
        "xla_gpu_detect_nan",
    )
)
"""enums by the end of their name, in small letters: none, warning, fail"""
_MEMORIES = ("private", "symmetric", "peer")
_MEMORY_MODES = frozenset(
    (
        "xla_gpu_all_gather_mode",
        "xla_gpu_collective_permute_mode",
        "xla_gpu_ragged_all_to_all_mode",
    )
)
"""enums by one word of their name, in any case: the whole name ends the process"""
_NEVER_EMPTY = frozenset(("xla_gpu_disable_async_collectives",))
_SUFFIXES = {"k": 2**10, "kb": 10**3, "m": 2**20, "mb": 10**6, "g": 2**30, "gb": 10**9}
_SUFFIXES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30}


def flag_complaint(flag: Flag, value: str | None) -> str | None:
    """What is wrong with a value in `XLA_FLAGS`, and what was expected; None if nothing is."""
    if value is None:
        is_fine = flag.kind in ("bool", "unknown")
        return None if is_fine else f"has no value; expected --{flag.name}=…, {_expected(flag)}"
    if flag.kind == "bool" or _is_switch(flag):
        return None if value.lower() in _BOOLS else f"is {value!r}; expected true or false"
    if flag.kind == "enum":
        return None if _is_member(flag, value) else _not_member(value, flag)
    if flag.kind == _REPEATED + "enum":
        return _list_complaint(flag, value)
    return _number_complaint(flag.kind, value)


def option_complaint(flag: Flag, value: str) -> str | None:
    """What is wrong with a value in `compiler_options`, and what was expected."""
    if flag.kind == "bool":
        return None if value in ("True", "False") else f"is {value!r}; expected True or False"
    if flag.kind == "enum":
        is_member = value in flag.enum_values or _INTEGER.fullmatch(value) is not None
        return None if is_member else _not_member(value, flag)
    if flag.kind == _REPEATED + "enum":
        if value.startswith(("+", "-")):
            return (
                f"is {value!r}; expected the whole list: + and - are understood in XLA_FLAGS only"
            )
        wrong = [item for item in value.split(",") if item and item not in flag.enum_values]
        return _not_member(wrong[0], flag) if wrong else None
    return _number_complaint(flag.kind, value)


def normal(flag: Flag, value: str | None) -> str:
    """A value in one form, so that two ways of writing it compare equal."""
    text = "true" if value is None else value.strip()
    if flag.kind == "bool":
        return _BOOLS.get(text.lower(), text)
    if flag.kind.startswith(_REPEATED):
        return ",".join(sorted(item.strip().upper() for item in text.split(",") if item.strip()))
    if flag.kind in ("float", "double"):
        return str(float(text)) if _is_float(text) else text
    return str(int(text)) if flag.kind in _RANGES and _INTEGER.fullmatch(text) else text


def repaired(flag: Flag, value: str | None, is_option: bool) -> str | None:
    """The value that was probably meant; None if that can't be said."""
    if value is None:
        return None
    if flag.kind == "bool":
        meant = _BOOLS.get(
            {"yes": "1", "on": "1", "no": "0", "off": "0"}.get(value.lower(), value.lower())
        )
        return meant.capitalize() if meant and is_option else meant
    if flag.kind in _RANGES:
        meant = _as_integer(value)
        is_fine = meant is not None and _number_complaint(flag.kind, meant) is None
        return meant if is_fine else None
    if flag.kind == "enum":
        endings = [name for name in flag.enum_values if name.endswith("_" + value.upper())]
        return endings[0] if len(endings) == 1 else None
    return None


def _is_switch(flag: Flag) -> bool:
    """A name without a field, which XLA still reads as a switch."""
    return flag.kind == "unknown" and flag.name.startswith(("xla_gpu_enable_", "xla_cpu_use_"))


def _as_integer(value: str) -> str | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([a-z]*)", value.lower())
    if match is None or (match[2] and match[2] not in _SUFFIXES):
        return None
    number = float(match[1]) * _SUFFIXES.get(match[2], 1)
    return str(int(number)) if number == int(number) else None


def _list_complaint(flag: Flag, value: str) -> str | None:
    items = [item.strip() for item in value.split(",") if item.strip()]
    changes = [item for item in items if item[0] in "+-"]
    if changes and len(changes) < len(items):
        return f"is {value!r}; expected all with + or -, or none: they change the default"
    if not items and flag.name in _NEVER_EMPTY:
        return f"is empty; expected {_expected(flag)}, or no flag at all"
    wrong = [item for item in items if not _is_member(flag, item.lstrip("+-"))]
    return _not_member(wrong[0], flag) if wrong else None


def _number_complaint(kind: str, value: str) -> str | None:
    if kind in _RANGES:
        least, most = _RANGES[kind]
        is_fine = _INTEGER.fullmatch(value) is not None and least <= int(value) <= most
        return None if is_fine else f"is {value!r}; expected an integer, in digits only"
    if kind in ("float", "double"):
        return None if _is_float(value) else f"is {value!r}; expected a number"
    return None


def _is_float(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _is_member(flag: Flag, value: str) -> bool:
    """Which spellings a flag takes differs; where it isn't known, one that might do is let pass."""
    if flag.name in _EXACT:
        return value in flag.enum_values
    names = [name.upper() for name in flag.enum_values]
    if flag.name in _ANY_CASE:
        return value.upper() in names
    if flag.name in _LOWER_ENDS:
        return value.islower() and any(name.endswith("_" + value.upper()) for name in names)
    if flag.name in _MEMORY_MODES:
        return value.lower() in _MEMORIES
    return not names or any(_resembles(value.upper(), name) for name in names)


def _resembles(value: str, name: str) -> bool:
    """`PRIVATE` and `PRIVATE_MEMORY` are parts of `COLLECTIVES_PRIVATE_MEMORY`."""
    return bool(value) and f"_{value}_" in f"_{name}_"


def _not_member(value: str, flag: Flag) -> str:
    return f"is {value!r}; expected {_expected(flag)}"


def _expected(flag: Flag) -> str:
    if flag.name in _MEMORY_MODES:
        return "one of " + ", ".join(_MEMORIES)
    if flag.name in _LOWER_ENDS:
        endings = [name.rpartition("_")[2].lower() for name in flag.enum_values]
        return "one of " + ", ".join(endings)
    if flag.enum_values:
        return "one of " + ", ".join(flag.enum_values)
    if flag.kind in _RANGES:
        return "an integer"
    return {"bool": "true or false", "float": "a number", "double": "a number"}.get(
        flag.kind, "a text"
    )
