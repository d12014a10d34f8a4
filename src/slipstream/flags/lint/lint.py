"""Find settings that abort the process, have no effect, or contradict each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from slipstream.did_you_mean import certain_match, close_matches
from slipstream.flags.catalogue.catalogue import SIMILAR, Catalogue, Flag
from slipstream.flags.catalogue.env_vars import ENV_VARS, EnvVar
from slipstream.flags.catalogue.libtpu import LibtpuCatalogue, libtpu_catalogue
from slipstream.flags.catalogue.replacements import replacement_of
from slipstream.flags.catalogue.retired import renamed_form, retirement_of
from slipstream.flags.catalogue.values import (
    flag_value_error,
    meant_bool,
    normalized,
    option_value_error,
    repaired_value,
)
from slipstream.flags.lint.conflicts import find_conflicts
from slipstream.flags.lint.findings import FAILING, LintFinding, Severity
from slipstream.flags.lint.libtpu import (
    check_libtpu,
    check_libtpu_option,
    misplaced_in_xla_flags,
)
from slipstream.flags.lint.tpu_conflicts import tpu_conflicts
from slipstream.flags.settings import Setting

_SIMILAR_VARIABLE = 0.88


def lint(
    settings: Sequence[Setting],
    catalogue: Catalogue,
    gpu: str | None = None,
    libtpu: LibtpuCatalogue | None = None,
) -> tuple[LintFinding, ...]:
    """All problems of the settings with one jaxlib, libtpu and GPU, in the order of the file.

    Without `libtpu`, flags for TPUs are checked for the one that the jaxlib installs.
    """
    tpu = libtpu or libtpu_catalogue(catalogue.jaxlib_version)
    findings = [
        finding for setting in settings for finding in _check(setting, settings, catalogue, tpu)
    ]
    # A flag that is refused can't conflict with anything.
    broken = {finding.place for finding in findings if finding.severity in FAILING}
    findings += [
        finding
        for finding in [*find_conflicts(settings, catalogue, gpu), *tpu_conflicts(settings, tpu)]
        if finding.place not in broken or finding.place.span is None
    ]
    order = {place: number for number, place in enumerate(setting.place for setting in settings)}
    return tuple(sorted(findings, key=lambda finding: order.get(finding.place, len(order))))


def _check(
    setting: Setting, settings: Sequence[Setting], catalogue: Catalogue, libtpu: LibtpuCatalogue
) -> Iterator[LintFinding]:
    if setting.kind == "unread":
        yield _unread(setting)
    elif setting.kind == "env":
        yield from _check_variable(setting)
    elif setting.kind == "compiler_options":
        yield from _check_option(setting, catalogue, libtpu)
    elif setting.kind == "libtpu":
        yield from check_libtpu(setting, settings, libtpu, catalogue)
    elif not setting.text.startswith("--"):
        yield _stray(setting, settings, catalogue)
    else:
        yield from _check_flag(setting, settings, catalogue, libtpu)


def _unread(setting: Setting) -> LintFinding:
    message = (
        f"{setting.name.split()[0]} was not recognised as a setting here, so it was not checked; "
        "expected a mapping, a list of name and value, NAME=value, or a shell script"
    )
    return LintFinding("unread", "warning", setting.name.split()[0], message, setting.place)


def _check_flag(
    setting: Setting, settings: Sequence[Setting], catalogue: Catalogue, libtpu: LibtpuCatalogue
) -> Iterator[LintFinding]:
    flag = catalogue.flags.get(setting.name)
    if flag is None or flag.in_xla_flags is False:
        yield _absent(setting, settings, catalogue, libtpu)
        return
    version = catalogue.jaxlib_version
    error = flag_value_error(flag, setting.value, version) if setting.is_known else None
    if error is not None:
        meant = repaired_value(flag, setting.value, False, version)
        fix = None if meant is None else f"--{setting.name}={meant}"
        message = f"{setting.name} {error}; XLA aborts at startup"
        yield LintFinding("malformed", "abort", setting.name, message, setting.place, fix)
        return
    renamed = renamed_form(flag, setting.value or "true", catalogue) if setting.is_known else None
    if renamed is not None:
        yield _renamed(setting, *renamed)
        return
    yield from _check_deprecated(setting, flag)
    yield from _check_default(setting, flag)


def _renamed(setting: Setting, name: str, value: str) -> LintFinding:
    known = replacement_of(setting.name)
    because = known.because if known is not None else "It was renamed."
    message = f"{setting.name} is an old name. {because} Use --{name}={value}"
    return LintFinding(
        "deprecated", "warning", setting.name, message, setting.place, f"--{name}={value}"
    )


def _check_option(
    setting: Setting, catalogue: Catalogue, libtpu: LibtpuCatalogue
) -> Iterator[LintFinding]:
    flag = catalogue.flags.get(setting.name)
    for_tpus = libtpu.flags.get(setting.name)
    if flag is None and for_tpus is not None:
        yield from check_libtpu_option(setting, for_tpus, libtpu)
        return
    if flag is None or not flag.in_compiler_options:
        yield _absent_option(setting, flag, catalogue)
        return
    version = catalogue.jaxlib_version
    error = (
        option_value_error(flag, setting.value or "", version, setting.python_type)
        if setting.is_known
        else None
    )
    if error is not None:
        meant = repaired_value(flag, setting.value, True, version)
        if meant is None and option_value_error(flag, setting.value or "", version) is None:
            meant = setting.value  # it only needs quotes
        fix = None if meant is None else _with_value(setting, meant)
        message = f"compile option {setting.name} {error}; the compile fails"
        yield LintFinding("malformed", "error", setting.name, message, setting.place, fix)
        return
    yield from _check_deprecated(setting, flag)
    yield from _check_default(setting, flag)


def _with_value(setting: Setting, value: str) -> str:
    key, _, _ = setting.text.partition(":")
    return f'{key}: "{value}"'


def _check_deprecated(setting: Setting, flag: Flag) -> Iterator[LintFinding]:
    if flag.is_deprecated:
        known = replacement_of(setting.name)
        advice = f"{known.because} Use {known.use}." if known and known.use else "Remove it."
        message = f"{setting.name} is deprecated and will be removed. {advice}"
        yield LintFinding("deprecated", "warning", setting.name, message, setting.place)


def _check_default(setting: Setting, flag: Flag) -> Iterator[LintFinding]:
    if flag.default is None or not setting.is_known or flag.kind == "unknown":
        return
    if normalized(flag, setting.value) == normalized(flag, flag.default):
        shown = flag.default or "empty"
        message = f"{setting.name} is {shown} by default; it can be left out"
        yield LintFinding("default", "note", setting.name, message, setting.place)


def _stray(setting: Setting, settings: Sequence[Setting], catalogue: Catalogue) -> LintFinding:
    if setting.text.startswith("-"):
        name = setting.name.lstrip("-")
        fix = f"--{setting.text.lstrip('-')}" if name in catalogue.flags else None
        message = f"{setting.text} starts with one dash; expected two: XLA aborts at startup"
        return LintFinding("malformed", "abort", name, message, setting.place, fix)
    together = [o for o in settings if (o.kind, o.group) == (setting.kind, setting.group)]
    if together[0] is setting:
        message = (
            f"XLA_FLAGS starts with {setting.text!r}, which XLA takes as the name of a file of "
            "flags; expected flags that start with --"
        )
        severity: Severity = "warning" if len(together) == 1 else "abort"
        return LintFinding("malformed", severity, setting.text, message, setting.place)
    message = (
        f"{setting.text!r} is not a flag; XLA stops reading here and ignores all flags after it; "
        "remove it, or quote a value with spaces: --name='a b'"
    )
    # A backslash between single quotes was meant to continue the line; other words may be meant.
    fix = "" if not setting.text.strip("\\") else None
    return LintFinding("malformed", "warning", setting.text, message, setting.place, fix)


def _absent(
    setting: Setting, settings: Sequence[Setting], catalogue: Catalogue, libtpu: LibtpuCatalogue
) -> LintFinding:
    """A name that `XLA_FLAGS` rejects: retired, too new, misspelt, or never a flag."""
    known = retirement_of(setting, settings, catalogue)
    if known is not None:
        return LintFinding(
            known.code, "abort", setting.name, known.message, setting.place, known.fix
        )
    version = catalogue.jaxlib_version
    if setting.name in catalogue.flags:
        message = (
            f"{setting.name} is a compile option of jaxlib {version}, but XLA_FLAGS rejects it and "
            f'XLA aborts at startup; pass compiler_options={{"{setting.name}": …}}'
        )
        return LintFinding("unknown", "abort", setting.name, message, setting.place)
    misplaced = misplaced_in_xla_flags(setting, libtpu)
    if misplaced is not None:
        return misplaced
    return _misspelt(setting, catalogue, "abort", "XLA aborts at startup")


def _misspelt(setting: Setting, catalogue: Catalogue, severity: Severity, then: str) -> LintFinding:
    usable = [
        name
        for name in close_matches(setting.name, catalogue.flags, 5, SIMILAR)
        if _is_usable(catalogue.flags[name], setting.kind == "compiler_options")
    ]
    version = catalogue.jaxlib_version
    if usable:
        message = f"jaxlib {version} has no flag {setting.name}; {then}; did you mean {usable[0]}?"
        fix = _respelt(setting, catalogue)
        return LintFinding("misspelt", severity, setting.name, message, setting.place, fix)
    stem = "_".join(setting.name.split("_")[-2:])
    message = (
        f"jaxlib {version} has no flag {setting.name}; {then}; remove it, or search for one: "
        f"slipstream flags list --grep {stem}"
    )
    return LintFinding("unknown", severity, setting.name, message, setting.place)


def _respelt(setting: Setting, catalogue: Catalogue) -> str | None:
    """The setting under the only name that is near enough, if that flag takes its value."""
    is_option = setting.kind == "compiler_options"
    names = [name for name, flag in catalogue.flags.items() if _is_usable(flag, is_option)]
    meant = certain_match(setting.name, names, _letters(setting.name))
    if meant is None or not setting.is_known:
        return None
    flag, version = catalogue.flags[meant], catalogue.jaxlib_version
    error = (
        option_value_error(flag, setting.value or "", version, setting.python_type)
        if is_option
        else flag_value_error(flag, setting.value, version)
    )
    return None if error is not None else setting.text.replace(setting.name, meant, 1)


def _letters(name: str) -> int:
    """How many letters of a name may be wrong: two, and fewer if it is short."""
    own = name.removeprefix("xla_").removeprefix("gpu_").removeprefix("JAX_").removeprefix("NCCL_")
    return min(2, len(own) // 4)


def _is_usable(flag: Flag, as_option: bool) -> bool:
    return flag.in_compiler_options if as_option else flag.in_xla_flags is not False


def _absent_option(setting: Setting, flag: Flag | None, catalogue: Catalogue) -> LintFinding:
    if flag is not None:
        message = (
            f"{setting.name} is not a compile option, so the compile fails; "
            f"set it in the environment: XLA_FLAGS=--{setting.name}=…"
        )
        return LintFinding("unknown", "error", setting.name, message, setting.place)
    known = retirement_of(setting, [setting], catalogue)
    if known is not None:
        return LintFinding(
            known.code, "error", setting.name, known.message, setting.place, known.fix
        )
    return _misspelt(setting, catalogue, "error", "the compile fails")


def _check_variable(setting: Setting) -> Iterator[LintFinding]:
    variable = ENV_VARS.get(setting.name)
    if variable is None:
        close = close_matches(setting.name, ENV_VARS, cutoff=_SIMILAR_VARIABLE)
        if close:
            message = f"no known library reads {setting.name}; did you mean {close[0]}?"
            meant = certain_match(setting.name, ENV_VARS, _letters(setting.name))
            is_certain = meant is not None and _variable_error(ENV_VARS[meant], setting) is None
            fix = setting.text.replace(setting.name, meant, 1) if meant and is_certain else None
            yield LintFinding("misspelt", "warning", setting.name, message, setting.place, fix)
        return
    expected = _variable_error(variable, setting)
    if expected is None:
        return
    message = f"{setting.name} is {setting.value!r}; expected {expected}"
    # JAX reads its variables when it is imported, and raises ValueError.
    is_fatal = setting.name.startswith("JAX_") and variable.kind in ("bool", "int", "float")
    message += "; importing jax fails" if is_fatal else ""
    severity: Severity = "error" if is_fatal else "warning"
    fix = _with_bool(setting) if variable.kind == "bool" else None
    yield LintFinding("malformed", severity, setting.name, message, setting.place, fix)


def _variable_error(variable: EnvVar, setting: Setting) -> str | None:
    """What was expected instead of a variable's value; None if that is valid, or unknown."""
    value = setting.value or ""
    if not setting.is_known:
        return None
    if variable.values:
        is_valid = value.lower() in {one.lower() for one in variable.values}
        return None if is_valid else f"one of {', '.join(variable.values)}"
    if variable.name.startswith("JAX_") and variable.kind in ("int", "float"):
        parse = int if variable.kind == "int" else float
        try:
            parse(value)
        except ValueError:
            return "a whole number" if variable.kind == "int" else "a number"
    return None


def _with_bool(setting: Setting) -> str | None:
    """A variable with `true` for `ture`."""
    meant, value = meant_bool(setting.value or ""), setting.value or ""
    written = re.fullmatch(rf"(.*){re.escape(value)}([\"']?)", setting.text, re.DOTALL)
    return (
        None if meant is None or not value or written is None else written[1] + meant + written[2]
    )
