"""Settings that would end the process, do nothing, or fight each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slipstream.did_you_mean import close_matches
from slipstream.flags.catalogue.catalogue import SIMILAR, Catalogue, Flag
from slipstream.flags.catalogue.env_vars import ENV_VARS
from slipstream.flags.catalogue.replacements import replacement_of
from slipstream.flags.catalogue.retired import renamed_form, retirement_of
from slipstream.flags.catalogue.values import (
    flag_value_error,
    normalized,
    option_value_error,
    repaired_value,
)
from slipstream.flags.lint.conflicts import find_conflicts
from slipstream.flags.lint.findings import FAILING, LintFinding, Severity
from slipstream.flags.settings import Setting

_SIMILAR_VARIABLE = 0.88
_TPU_PREFIXES = ("xla_tpu_", "xla_jf_", "megascale_")


def lint(
    found: Sequence[Setting], catalogue: Catalogue, gpu: str | None = None
) -> tuple[LintFinding, ...]:
    """Everything wrong with the settings, for one jaxlib and one GPU; in the order of the file."""
    findings = [finding for one in found for finding in _check(one, found, catalogue)]
    # What a flag does matters once it is a flag at all.
    broken = {finding.place for finding in findings if finding.severity in FAILING}
    findings += [
        finding
        for finding in find_conflicts(found, catalogue, gpu)
        if finding.place not in broken or finding.place.span is None
    ]
    order = {place: number for number, place in enumerate(one.place for one in found)}
    return tuple(sorted(findings, key=lambda finding: order.get(finding.place, len(order))))


def _check(one: Setting, found: Sequence[Setting], catalogue: Catalogue) -> Iterator[LintFinding]:
    if one.kind == "unread":
        yield _unread(one)
    elif one.kind == "env":
        yield from _check_variable(one)
    elif one.kind == "compiler_options":
        yield from _check_option(one, catalogue)
    elif not one.text.startswith("--"):
        yield _stray(one, found, catalogue)
    elif one.kind == "xla_flags":
        yield from _check_flag(one, found, catalogue)


def _unread(one: Setting) -> LintFinding:
    message = (
        f"{one.name.split()[0]} stands here, and was not read as a setting, so it was not checked; "
        "expected a map, a list of name and value, NAME=value, or a shell script"
    )
    return LintFinding("unread", "warning", one.name.split()[0], message, one.place)


def _check_flag(
    one: Setting, found: Sequence[Setting], catalogue: Catalogue
) -> Iterator[LintFinding]:
    flag = catalogue.flags.get(one.name)
    if flag is None or flag.in_xla_flags is False:
        yield _absent(one, found, catalogue)
        return
    version = catalogue.jaxlib_version
    error = flag_value_error(flag, one.value, version) if one.is_known else None
    if error is not None:
        meant = repaired_value(flag, one.value, False, version)
        fix = None if meant is None else f"--{one.name}={meant}"
        message = f"{one.name} {error}; XLA ends the process at start"
        yield LintFinding("malformed", "abort", one.name, message, one.place, fix)
        return
    renamed = renamed_form(flag, one.value or "true", catalogue) if one.is_known else None
    if renamed is not None:
        yield _renamed(one, *renamed)
        return
    yield from _check_deprecated(one, flag)
    yield from _check_default(one, flag)


def _renamed(one: Setting, name: str, value: str) -> LintFinding:
    known = replacement_of(one.name)
    because = known.because if known is not None else "It was renamed."
    message = f"{one.name} is an old name. {because} Write --{name}={value}"
    return LintFinding("deprecated", "warning", one.name, message, one.place, f"--{name}={value}")


def _check_option(one: Setting, catalogue: Catalogue) -> Iterator[LintFinding]:
    flag = catalogue.flags.get(one.name)
    if flag is None or not flag.in_compiler_options:
        yield _absent_option(one, flag, catalogue)
        return
    version = catalogue.jaxlib_version
    error = (
        option_value_error(flag, one.value or "", version, one.python_type)
        if one.is_known
        else None
    )
    if error is not None:
        meant = repaired_value(flag, one.value, True, version)
        if meant is None and option_value_error(flag, one.value or "", version) is None:
            meant = one.value  # the same in quotes will do
        fix = None if meant is None else _with_value(one, meant)
        message = f"compile option {one.name} {error}; the compile fails"
        yield LintFinding("malformed", "error", one.name, message, one.place, fix)
        return
    yield from _check_deprecated(one, flag)
    yield from _check_default(one, flag)


def _with_value(one: Setting, value: str) -> str:
    key, _, _ = one.text.partition(":")
    return f'{key}: "{value}"'


def _check_deprecated(one: Setting, flag: Flag) -> Iterator[LintFinding]:
    if flag.is_deprecated:
        known = replacement_of(one.name)
        advice = f"{known.because} Use {known.use}." if known and known.use else "Leave it out."
        message = f"{one.name} is deprecated and will be refused one day. {advice}"
        yield LintFinding("deprecated", "warning", one.name, message, one.place)


def _check_default(one: Setting, flag: Flag) -> Iterator[LintFinding]:
    if flag.default is None or not one.is_known or flag.kind == "unknown":
        return
    if normalized(flag, one.value) == normalized(flag, flag.default):
        shown = flag.default or "empty"
        message = f"{one.name} is {shown} by default; it can be left out"
        yield LintFinding("default", "note", one.name, message, one.place)


def _stray(one: Setting, found: Sequence[Setting], catalogue: Catalogue) -> LintFinding:
    if one.text.startswith("-"):
        name = one.name.lstrip("-")
        fix = f"--{one.text.lstrip('-')}" if name in catalogue.flags else None
        message = f"{one.text} starts with one dash; expected two: XLA ends the process at start"
        return LintFinding("malformed", "abort", name, message, one.place, fix)
    together = [o for o in found if (o.kind, o.group) == (one.kind, one.group)]
    if together[0] is one and one.kind == "xla_flags":
        message = (
            f"XLA_FLAGS starts with {one.text!r}, which XLA takes for the name of a file with "
            "flags; expected flags that start with --"
        )
        severity: Severity = "warning" if len(together) == 1 else "abort"
        return LintFinding("malformed", severity, one.text, message, one.place)
    message = (
        f"{one.text!r} is no flag; XLA stops reading here, and ignores every flag after it; "
        "remove it, or put what belongs together into quotes after the ="
    )
    return LintFinding("malformed", "warning", one.text, message, one.place, "")


def _absent(one: Setting, found: Sequence[Setting], catalogue: Catalogue) -> LintFinding:
    """A name that `XLA_FLAGS` refuses: retired, too new, misspelt, or never a flag."""
    known = retirement_of(one, found, catalogue)
    if known is not None:
        return LintFinding(known.code, "abort", one.name, known.message, one.place, known.fix)
    version = catalogue.jaxlib_version
    if one.name in catalogue.flags:
        message = (
            f"{one.name} is a compile option of jaxlib {version}, but XLA_FLAGS refuses it and "
            f'XLA ends the process at start; pass compiler_options={{"{one.name}": …}}'
        )
        return LintFinding("unknown", "abort", one.name, message, one.place)
    if one.name.startswith(_TPU_PREFIXES):
        message = (
            f"{one.name} belongs to the TPU's compiler: jaxlib {version} refuses it in XLA_FLAGS "
            "and ends the process at start; put it into LIBTPU_INIT_ARGS"
        )
        return LintFinding("unknown", "abort", one.name, message, one.place)
    return _misspelt(one, catalogue, "abort", "XLA ends the process at start")


def _misspelt(one: Setting, catalogue: Catalogue, severity: Severity, then: str) -> LintFinding:
    usable = [
        name
        for name in close_matches(one.name, catalogue.flags, 5, SIMILAR)
        if _is_usable(catalogue.flags[name], one.kind == "compiler_options")
    ]
    version = catalogue.jaxlib_version
    if usable:
        message = f"jaxlib {version} has no flag {one.name}; {then}; did you mean {usable[0]}?"
        fix = one.text.replace(one.name, usable[0], 1)
        return LintFinding("misspelt", severity, one.name, message, one.place, fix)
    stem = "_".join(one.name.split("_")[-2:])
    message = (
        f"jaxlib {version} has no flag {one.name}; {then}; remove it, or look for one: "
        f"slipstream flags list --grep {stem}"
    )
    return LintFinding("unknown", severity, one.name, message, one.place)


def _is_usable(flag: Flag, as_option: bool) -> bool:
    return flag.in_compiler_options if as_option else flag.in_xla_flags is not False


def _absent_option(one: Setting, flag: Flag | None, catalogue: Catalogue) -> LintFinding:
    if flag is not None:
        message = (
            f"{one.name} can't be a compile option, the compile fails; "
            f"set it in the environment: XLA_FLAGS=--{one.name}=…"
        )
        return LintFinding("unknown", "error", one.name, message, one.place)
    known = retirement_of(one, [one], catalogue)
    if known is not None:
        return LintFinding(known.code, "error", one.name, known.message, one.place, known.fix)
    return _misspelt(one, catalogue, "error", "the compile fails")


def _check_variable(one: Setting) -> Iterator[LintFinding]:
    setting = ENV_VARS.get(one.name)
    if setting is None:
        close = close_matches(one.name, ENV_VARS, cutoff=_SIMILAR_VARIABLE)
        if close:
            message = f"nothing is known to read {one.name}; did you mean {close[0]}?"
            fix = one.text.replace(one.name, close[0], 1)
            yield LintFinding("misspelt", "warning", one.name, message, one.place, fix)
        return
    if (
        one.is_known
        and setting.values
        and (one.value or "").lower() not in {value.lower() for value in setting.values}
    ):
        expected = ", ".join(setting.values)
        message = f"{one.name} is {one.value!r}; expected one of {expected}"
        yield LintFinding("malformed", "warning", one.name, message, one.place)
