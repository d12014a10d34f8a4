"""`slipstream flags list`, `explain` and `diff` as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from slipstream.flags.catalogue.catalogue import Flag
from slipstream.flags.catalogue.libtpu import VARIABLE
from slipstream.flags.catalogue.replacements import replacement_of
from slipstream.outputs.terminal.layout import elide, pad, paragraph, wrap

if TYPE_CHECKING:
    from slipstream.flags.catalogue.history import FlagHistory
    from slipstream.flags.catalogue.libtpu import LibtpuCatalogue
    from slipstream.flags.catalogue.libtpu_flag import LibtpuFlag
    from slipstream.flags.explain import Explanation, FlagDiff

MAX_NAME_WIDTH = 52
"""columns for names; longer ones are never cut, so that they can be copied"""
MIN_TEXT_WIDTH = 16
"""columns reserved for a default"""
MAX_DEFAULT = 19
"""columns for a default of libtpu: as many as the largest number has"""
INDENT = "  "
UNVERIFIED = "The flag is gone from the releases; no public source gives the reason."
JUDGED = "Benefits and risks are our judgement: the source only describes the flag."


def list_json(version: str, flags: Sequence[Flag]) -> dict[str, Any]:
    """What `flags list --json` prints."""
    return {"jaxlib": version, "flags": [asdict(flag) for flag in flags]}


def explanation_json(found: Explanation) -> dict[str, Any]:
    """What `flags explain --json` prints."""
    return asdict(found)


def diff_json(found: FlagDiff) -> dict[str, Any]:
    """What `flags diff --json` prints."""
    removed = [
        {"name": name, "replacement": asdict(known) if (known := replacement_of(name)) else None}
        for name in found.removed
    ]
    return {**asdict(found), "removed": removed}


def render_list(version: str, flags: Sequence[Flag], total: int, width: int = 80) -> Text:
    """A table of flags: type, default, and where each may be set."""
    rows = [[flag.name, places(flag), flag.kind, _default(flag.default)] for flag in flags]
    lines = _lines([["flag", "set in", "type", "default"], *rows], width) if rows else []
    shown = "" if len(flags) == total else f"{len(flags)} of "
    return Text("\n".join([*lines, f"jaxlib {version}: {shown}{total} flags"]))


def libtpu_list_json(catalogue: LibtpuCatalogue, flags: Sequence[LibtpuFlag]) -> dict[str, Any]:
    """What `flags list --tpu --json` prints."""
    return {
        "libtpu": catalogue.version,
        "instead_of": catalogue.instead_of,
        "flags": [asdict(flag) for flag in flags],
    }


def render_libtpu_list(catalogue: LibtpuCatalogue, flags: Sequence[LibtpuFlag]) -> Text:
    """A table of flags of libtpu; their names are long, so they come last and are never cut."""
    rows = [["type", "default", "set in", "flag"]]
    for flag in flags:
        place = "both" if flag.in_compiler_options else "args"
        rows.append([flag.short_kind, elide(_default(flag.default), MAX_DEFAULT), place, flag.name])
    sizes = [max(len(row[at]) for row in rows) for at in range(3)]
    lines = [
        INDENT.join([*(pad(text, size) for text, size in zip(row, sizes, strict=False)), row[3]])
        for row in rows
        if flags
    ]
    total = len(catalogue.flags)
    shown = "" if len(flags) == total else f"{len(flags)} of "
    return Text("\n".join([*lines, f"{catalogue.label}: {shown}{total} flags"]))


def _lines(rows: Sequence[Sequence[str]], width: int, indent: str = "") -> list[str]:
    """Rows of a name, short texts and a long one; only the long one is cut."""
    short = [max(len(row[at]) for row in rows) for at in range(1, len(rows[0]) - 1)]
    name_width = _name_width([row[0] for row in rows])
    lines = []
    for name, *texts, last in rows:
        cells = [pad(text, size) for text, size in zip(texts, short, strict=True)]
        head = INDENT.join([indent + pad(name, name_width), *cells])
        room = max(width - len(head) - len(INDENT), MIN_TEXT_WIDTH)
        lines.append(f"{head}{INDENT}{elide(last, room)}".rstrip())
    return lines


def _name_width(names: Sequence[str]) -> int:
    return max((len(name) for name in names if len(name) <= MAX_NAME_WIDTH), default=0)


def places(flag: Flag) -> str:
    """`both`, `XLA_FLAGS`, `options`; a deprecated flag says so."""
    if flag.in_xla_flags and flag.in_compiler_options:
        text = "both"
    elif flag.in_compiler_options:
        text = "options" if flag.in_xla_flags is False else "options, ?"
    else:
        text = "XLA_FLAGS" if flag.in_xla_flags else "nowhere"
    return f"{text}, deprecated" if flag.is_deprecated else text


def render_explanation(found: Explanation, width: int = 80) -> Text:
    """All that is known about one name."""
    lines = [found.name]
    if found.setting is not None:
        lines += _setting_lines(found, width)
    if found.note is not None:
        lines += ["", *paragraph(found.note.what, width)]
    lines += ["", *_flag_lines(found, width)] if found.setting is None else []
    for label, text in _sentences(found):
        lines += ["", *paragraph(text, width, f"{label}  ", " " * (len(label) + 2))]
    sources = _sources(found)
    if sources:
        lines += ["", "sources", *(INDENT + source for source in sources)]
    return Text("\n".join(lines))


def _setting_lines(found: Explanation, width: int) -> list[str]:
    setting = found.setting
    assert setting is not None
    kind = f"environment variable · {setting.kind}"
    default = "decided at run time" if setting.default is None else _default(setting.default)
    lines = [*wrap([kind, f"default {default}"], width), "", *paragraph(setting.doc, width)]
    if setting.values:
        lines += ["", *wrap(["values", *setting.values], width, " ")]
    return lines


def _flag_lines(found: Explanation, width: int) -> list[str]:
    """Type, default and places in this release, then the history."""
    is_of_libtpu = found.libtpu_flag is not None or found.libtpu_history is not None
    if is_of_libtpu and found.flag is None and found.history is None:
        return _libtpu_lines(found, width)
    lines: list[str] = []
    if found.flag is None:
        other = "" if found.history else f" or libtpu {found.libtpu_version}"
        lines.append(f"not in jaxlib {found.jaxlib_version}{other}")
    else:
        flag = found.flag
        default = "not known" if flag.default is None else _default(flag.default)
        lines += paragraph(
            f"{flag.kind}, default {default}, set in {_long_places(flag)}",
            width,
            f"jaxlib {found.jaxlib_version}: ",
            INDENT,
        )
        if flag.enum_values:
            lines += wrap(flag.enum_values, width, ", ", INDENT)
    if found.history is not None:
        lines += _history_lines(found.history, found.is_current, width)
    return lines


def _libtpu_lines(found: Explanation, width: int) -> list[str]:
    flag, past = found.libtpu_flag, found.libtpu_history
    if flag is None:
        lines = [f"not in libtpu {found.libtpu_version}"]
    else:
        also = " and compiler_options" if flag.in_compiler_options else " only"
        default = f"default {_default(flag.default)}, set in {VARIABLE}{also}"
        label = f"libtpu {found.libtpu_version}: "
        lines = paragraph(f"{flag.short_kind}, {default}", width, label, INDENT)
        lines += wrap(flag.words, width, ", ", INDENT) if flag.words else []
    if past is None:
        return lines
    until = "still there in" if past.is_current else "last seen in"
    return lines + wrap(
        [f"history: first seen in libtpu {past.first}", f"{until} {past.last}"], width
    )


def _long_places(flag: Flag) -> str:
    names = [
        name
        for name, is_accepted in (
            ("XLA_FLAGS", flag.in_xla_flags),
            ("compiler_options", flag.in_compiler_options),
        )
        if is_accepted
    ]
    text = " and ".join(names) or "neither XLA_FLAGS nor compiler_options"
    only = " only" if len(names) == 1 else ""
    deprecated = "; deprecated" if flag.is_deprecated else ""
    return f"{text}{only}{deprecated}"


def _history_lines(past: FlagHistory, is_current: bool, width: int) -> list[str]:
    until = "still there in" if is_current else "last seen in"
    parts = [f"first seen in {past.first}", f"{until} {past.last}"]
    if past.accepted_first is None:
        parts.append("never accepted in XLA_FLAGS")
    elif (past.accepted_first, past.accepted_last) != (past.first, past.last):
        parts.append(f"in XLA_FLAGS from {past.accepted_first} to {past.accepted_last}")
    lines = wrap(["history: " + parts[0], *parts[1:]], width)
    changes = [(version, text) for version, text in past.defaults if text is not None]
    if len(changes) > 1:
        told = [f"{_default(text)} from {version}" for version, text in changes]
        lines += paragraph(", ".join(told), width, "default: ", INDENT)
    return lines


def _sentences(found: Explanation) -> list[tuple[str, str]]:
    note, replacement = found.note, found.replacement
    sentences = [
        ("helps", note.helps if note else None),
        ("hurts", note.hurts if note else None),
        ("basis", JUDGED if note and note.is_judged else None),
    ]
    if replacement is not None:
        use = f" Use {replacement.use}." if replacement.use else ""
        when = f" ({replacement.removed})" if replacement.removed else ""
        doubt = "" if replacement.is_verified else f" {UNVERIFIED}"
        sentences.append(("retired", f"{replacement.because}{use}{when}{doubt}"))
    return [(label, text) for label, text in sentences if text]


def _sources(found: Explanation) -> list[str]:
    sources = list(found.note.sources) if found.note else []
    sources += [part.source for part in (found.setting, found.replacement) if part is not None]
    return list(dict.fromkeys(sources))


def render_diff(found: FlagDiff, width: int = 80) -> Text:
    """What changes between two jaxlib releases, breaking changes first."""
    sections = [
        ("removed", _removed_lines(found, width)),
        (_moved(found), _place_lines(found, width)),
        ("new default", _default_lines(found, width)),
        ("added", _added_lines(found, width)),
    ]
    lines = [f"{found.library} {found.old} → {found.new}"]
    for title, body in sections:
        if body:
            lines += ["", title, *body]
    counts = (
        f"{len(found.removed)} removed",
        f"{len(found.places)} {_moved(found)}",
        f"{len(found.defaults)} with a new default",
        f"{len(found.added)} added",
    )
    return Text("\n".join([*lines, "", *wrap(counts, width)]))


def _moved(found: FlagDiff) -> str:
    return "set in another place" if found.library == "jaxlib" else "with another type"


def _removed_lines(found: FlagDiff, width: int) -> list[str]:
    lines: list[str] = []
    for name in found.removed:
        known = replacement_of(name)
        lines.append(INDENT + name)
        if known is not None:
            use = f" Use {known.use}." if known.use else ""
            lines += paragraph(known.because + use, width, INDENT * 3, INDENT * 3)
    return lines


def _place_lines(found: FlagDiff, width: int) -> list[str]:
    rows = [[change.name, ", ".join(change.changes)] for change in found.places]
    return _lines(rows, width, INDENT) if rows else []


def _default_lines(found: FlagDiff, width: int) -> list[str]:
    name_width = _name_width([change.name for change in found.defaults])
    lines: list[str] = []
    for change in found.defaults:
        values = f"{_default(change.before)} → {_default(change.after)}"
        whole = f"{INDENT}{pad(change.name, name_width)}{INDENT}{values}"
        folded = [INDENT + change.name, *paragraph(values, width, INDENT * 3, INDENT * 3)]
        lines += [whole] if len(whole) <= width else folded
    return lines


def _added_lines(found: FlagDiff, width: int) -> list[str]:
    rows = [[flag.name, flag.kind, _default(flag.default)] for flag in found.added]
    return _lines(rows, width, INDENT) if rows else []


def _default(text: str | None) -> str:
    """A default as text; `–` if unknown."""
    return "–" if text is None else text or "(empty)"
