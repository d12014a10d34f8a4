"""Messages parsed from XLA's log.

W0815 12:00:00.000000  123 spmd_partitioner.cc:687] [SPMD] Involuntary full rematerialization. …
▲ severity                 ▲ where in XLA            ▲ text, possibly of several lines
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

from slipstream.jaxhooks.jax_types import OUT_OF_MEMORY

SEVERITIES = ("info", "warning", "error")
_LINE = re.compile(
    r"^(?:(?P<short>[IWEF])\d{4} [\d:.]+|[\d-]+ [\d:.]+:? (?P<long>[IWEF]))\s+(?:\d+ )?"
    r"(?P<file>[\w./-]+\.(?:cc|h|cu|py)):\d+\] (?P<text>.*)$"
)
_MISSING = re.compile(r"Missing (\d+) instructions from the profile")
_TUNING = re.compile(r"Autotune results loaded from file: (\S+)")
_TUNING_USED = re.compile(r"cache stats: hits=(\d+), misses=(\d+)")
_SPILL = re.compile(r"[Rr]egisters? (?:are )?spill|bytes spill stores")
_SPILLER = re.compile(r"in function '([^']+)'")
_CHECKER = "profile_guided_latency_estimator.cc"
_MOST_NAMES = 5


@dataclass(frozen=True)
class CompilerMessage:
    """One message from XLA, or from us about its result."""

    code: str
    """the kind of message: `involuntary-remat`"""
    text: str
    severity: str = "info"
    """one of SEVERITIES"""
    instruction: str | None = None
    """the instruction that it is about, if any"""


@dataclass(frozen=True)
class LogEntry:
    """One entry of the log: a first line and its continuation lines."""

    severity: str
    file: str
    text: str


def read_log(log: str) -> Iterator[LogEntry]:
    """The entries of a log; lines before the first entry are ignored."""
    head: re.Match[str] | None = None
    lines: list[str] = []
    for line in log.splitlines():
        match = _LINE.match(line)
        if match is None:
            lines.append(line)
            continue
        if head is not None:
            yield _entry(head, lines)
        head, lines = match, []
    if head is not None:
        yield _entry(head, lines)


def parse_messages(log: str) -> tuple[CompilerMessage, ...]:
    """The messages in a log, without duplicates, in order of appearance."""
    entries = list(read_log(log))
    found = dict.fromkeys(message for entry in entries if (message := _message_of(entry)))
    found |= dict.fromkeys(_missing(entries))
    found |= dict.fromkeys(_tuned(entries))
    found |= dict.fromkeys(_spilled(entries))
    return tuple(found)


def naming_costs(
    messages: Iterable[CompilerMessage], costs: str, is_folder: bool
) -> tuple[CompilerMessage, ...]:
    """The same, with the costs called what the user calls them.

    XLA names the copy of a URL, or the file with equal costs that an earlier compile was given.
    """
    found = []
    for one in messages:
        if one.code == "pgle-used":
            file = one.text.removeprefix(_USED).rpartition("/")[2]
            place = f"{costs.rstrip('/')}/{file}" if is_folder else costs
            one = replace(one, text=_USED + place)
        found.append(one)
    return tuple(found)


def _entry(head: re.Match[str], lines: Iterable[str]) -> LogEntry:
    text = "\n".join([head["text"], *lines]).rstrip()
    return LogEntry(head["short"] or head["long"], head["file"], text)


def _message_of(entry: LogEntry) -> CompilerMessage | None:
    for pattern, build in _PATTERNS.items():
        match = pattern.search(entry.text)
        if match is not None:
            return build(match)
    # Report errors that we don't know.
    if entry.severity in "EF" and not any(known in entry.text for known in _HARMLESS):
        return CompilerMessage("xla-error", _first_line(entry.text), "warning")
    return None


def _first_line(text: str, most: int = 240) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= most else line[: most - 1] + "…"


def _size(text: str) -> str:
    """`135.62GiB`, as XLA writes it, to `145.6 GB`."""
    from slipstream.units import format_bytes

    match = re.fullmatch(r"([\d.]+)\s*([KMGT]?)i?B?", text)
    if match is None:
        return text
    scale = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}[match[2]]
    return format_bytes(float(match[1]) * 1024**scale)


def _remat(match: re.Match[str]) -> CompilerMessage:
    name = re.search(r"HLO operation:? %?([\w.-]+)", match.string)
    op = re.search(r'op_name="([^"]+)"', match.string)
    way = re.search(r"from sharding (\{.*?\}) to (\{.*?\}) efficiently", match.string)
    what = (op and op[1]) or (name and name[1]) or "a value"
    between = f" from {way[1]} to {way[2]}" if way else ""
    return CompilerMessage(
        "involuntary-remat",
        f"{what} can't be resharded{between} directly, so every device gathers all of it first "
        "(XLA: involuntary full rematerialization); change its sharding, or that of its inputs",
        "warning",
        name[1] if name else None,
    )


def _memory(match: re.Match[str]) -> CompilerMessage:
    limit, least = _size(match["limit"]), _size(match["least"])
    return CompilerMessage(
        "memory-not-reduced",
        f"XLA can't reduce the program's memory below {limit}, only to {least}; reduce the batch "
        "size, checkpoint more layers, or shard over more devices",
        "warning",
    )


def _arguments(match: re.Match[str]) -> CompilerMessage:
    from slipstream.units import format_bytes

    size, limit = format_bytes(int(match["size"])), format_bytes(int(match["limit"]))
    return CompilerMessage(
        "arguments-too-big",
        f"arguments and results alone need {size} of the {limit} that XLA plans for on each "
        "device; shard the parameters over more devices",
        "warning",
    )


def _missing(entries: list[LogEntry]) -> Iterator[CompilerMessage]:
    """Instructions without a cost; their names follow as separate entries."""
    for place, entry in enumerate(entries):
        match = _MISSING.search(entry.text)
        if match is None or entry.file != _CHECKER:
            continue
        following = takewhile(_is_name, entries[place + 1 :])
        names = [one.text.strip() for one in following]
        shown = ", ".join(names[:_MOST_NAMES]) + ("…" if len(names) > _MOST_NAMES else "")
        listed = f": {shown}" if shown else ""
        text = f"{match[1]} instructions have no cost in the file{listed}"
        yield CompilerMessage("pgle-missing", text, "warning" if int(match[1]) else "info")


def _is_name(entry: LogEntry) -> bool:
    return entry.file == _CHECKER and entry.text.startswith("  ")


def _tuned(entries: list[LogEntry]) -> Iterator[CompilerMessage]:
    """How many of the given autotuning results XLA used; often none."""
    files = [match[1] for entry in entries if (match := _TUNING.search(entry.text))]
    stats = [match for entry in entries if (match := _TUNING_USED.search(entry.text))]
    hits, misses = (sum(int(one[group]) for one in stats) for group in (1, 2))
    if not files:
        return
    if not stats:
        yield CompilerMessage("autotuning", f"autotuning results loaded from {files[0]}")
        return
    text = f"{hits} of {hits + misses} kernels use the autotuning results in {files[0]}"
    if misses:
        text += "; it has no more for this GPU and jaxlib, so the rest use XLA's defaults"
    yield CompilerMessage("autotuning", text, "warning" if misses else "info")


def _spilled(entries: list[LogEntry]) -> Iterator[CompilerMessage]:
    """Kernels that spill registers; autotuning tries many and keeps few of them."""
    spills = [entry.text for entry in entries if _SPILL.search(entry.text)]
    names = list(dict.fromkeys(m[1] for text in spills if (m := _SPILLER.search(text))))
    if not spills:
        return
    shown = ", ".join(names[:_MOST_NAMES]) + ("…" if len(names) > _MOST_NAMES else "")
    kernels = f"{len(names) or len(spills)} kernel{'' if len(names) == 1 else 's'}"
    text = f"{kernels} spill registers to memory{f': {shown}' if shown else ''}"
    yield CompilerMessage("spilling", f"{text}; some may be autotuning candidates only", "info")


def _say(code: str, text: str, severity: str) -> Callable[[re.Match[str]], CompilerMessage]:
    """A message whose text may refer to the groups of the pattern."""
    return lambda match: CompilerMessage(code, match.expand(text), severity)


def _unified(match: re.Match[str]) -> CompilerMessage:
    return CompilerMessage(
        "estimator-fallback",
        "XLA's cost tables don't cover this GPU or layout, so it schedules with rough estimates "
        f"({_first_line(match.string, 160)}); provide costs: --costs FILE",
        "warning",
    )


_USED = "the scheduler uses the costs in "
_PATTERNS: Mapping[re.Pattern[str], Callable[[re.Match[str]], CompilerMessage]] = {
    re.compile(r"[Ii]nvoluntary full rematerialization"): _remat,
    re.compile(
        r"Can't reduce memory use below (?P<limit>[\d.]+\s*\w+).*only reduced to "
        r"(?P<least>[\d.]+\s*\w+)",
        re.DOTALL,
    ): _memory,
    re.compile(
        r"size of input/output arguments \((?P<size>\d+)\) exceeds the base limit "
        r"\((?P<limit>\d+)\)"
    ): _arguments,
    re.compile(r"Found (\d+) instructions from the profile"): _say(
        "pgle-found", r"\1 instructions have a cost in the file", "info"
    ),
    re.compile(r"Using PGLE profile from (.+)"): _say("pgle-used", _USED + r"\1", "info"),
    re.compile(r"PGLE profile file does not exist:? ?(.*)"): _say(
        "pgle-absent", r"XLA found no cost file for this program (\1)", "warning"
    ),
    re.compile(r"PGLE fallback: (.+)"): _say("pgle-fallback", r"for missing costs: \1", "info"),
    re.compile(r"Cannot construct unified latency estimator"): _unified,
    OUT_OF_MEMORY: lambda match: CompilerMessage(
        "out-of-memory", _first_line(match.string), "error"
    ),
    re.compile(r"^(\S+) sets XLA_FLAGS=(.*)"): _say(
        "flags-too-late",
        r"\1 sets XLA_FLAGS after XLA has started, so they have no effect here; "
        r"pass them with: --flags '\2'",
        "warning",
    ),
    re.compile(r"^memory kinds are lost: (.*)"): _say(
        "memory-kinds",
        r"shardings lose their memory kind, so that arrays in pinned_host count as on the device; "
        r"use jax.sharding.AbstractMesh for them (\1)",
        "warning",
    ),
    re.compile(r"No such compile option: '?([\w]+)"): _say(
        "unknown-option", r"XLA has no option \1", "error"
    ),
    re.compile(r"very slow compile|Constant folding an instruction is taking"): lambda match: (
        CompilerMessage("slow-compile", _first_line(match.string), "info")
    ),
}
_HARMLESS = ("cuInit", "libcuda", "Unable to register cu", "failed call to", "AutotuneCache")
"""errors that don't affect a compile: no GPU, or a file in the format of an older release"""
