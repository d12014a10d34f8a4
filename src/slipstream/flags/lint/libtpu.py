"""Check flags for TPUs: in LIBTPU_INIT_ARGS, in XLA_FLAGS by mistake, and as compile options.

libtpu splits the variable at spaces and parses it as Abseil parses a command line: an unknown name
or a bad value ends the process, and words without a dash are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slipstream.did_you_mean import certain_match, close_matches
from slipstream.flags.catalogue.catalogue import SIMILAR, Catalogue
from slipstream.flags.catalogue.history import version_key
from slipstream.flags.catalogue.libtpu import VARIABLE, LibtpuCatalogue, libtpu_history
from slipstream.flags.catalogue.libtpu_flag import LibtpuFlag
from slipstream.flags.catalogue.replacements import replacement_of
from slipstream.flags.lint.findings import LintFinding
from slipstream.flags.settings import Setting

_ENDS = "libtpu ends the process at startup"
_PREFIXES = ("xla_tpu_", "xla_jf_", "xla_sc_", "megascale_")
"""names that can only be flags of TPUs"""


def check_libtpu(
    setting: Setting, settings: Sequence[Setting], libtpu: LibtpuCatalogue, catalogue: Catalogue
) -> Iterator[LintFinding]:
    """The problem of one word of LIBTPU_INIT_ARGS."""
    together = [one for one in settings if (one.kind, one.group) == (setting.kind, setting.group)]
    at = next(number for number, one in enumerate(together) if one is setting)
    if not setting.text.startswith("-"):
        if at == 0 or _taken_value(together[at - 1], setting, libtpu) is None:
            yield _ignored(setting)
        return
    flag, value = flag_and_value(setting, libtpu)
    if flag is None:
        if _name(setting) not in _tolerated(together):
            yield _absent(setting, libtpu, catalogue)
        return
    if value is None:
        value = _taken_value(setting, together[at + 1] if at + 1 < len(together) else None, libtpu)
    if not setting.is_known:
        return
    if value is None:
        message = f"{flag.name} has no value; expected --{flag.name}=…, {flag.expected}; {_ENDS}"
        yield LintFinding("malformed", "abort", flag.name, message, setting.place)
    elif not flag.accepts(value):
        yield _malformed(setting, flag, value)
    elif flag.normalized(value) == flag.normalized(flag.default):
        message = f"{flag.name} is {flag.default or 'empty'} by default; it can be left out"
        yield LintFinding("default", "note", flag.name, message, setting.place)


def check_libtpu_option(
    setting: Setting, flag: LibtpuFlag, libtpu: LibtpuCatalogue
) -> Iterator[LintFinding]:
    """The problem of a flag for TPUs among compile options."""
    if not flag.in_compiler_options:
        message = (
            f"{flag.name} is not a compile option of {libtpu.label}, so the compile fails; set it "
            f"in the environment: {VARIABLE}=--{flag.name}=…"
        )
        yield LintFinding("misplaced", "error", flag.name, message, setting.place)
    elif setting.is_known and not flag.accepts(setting.value or ""):
        is_bool = setting.python_type == "bool" and {"true", "false"} <= set(flag.words)
        if not is_bool:
            message = (
                f"compile option {flag.name} is {setting.value!r}; expected {flag.expected}; the "
                "compile fails"
            )
            yield LintFinding("malformed", "error", flag.name, message, setting.place)


def misplaced_in_xla_flags(setting: Setting, libtpu: LibtpuCatalogue) -> LintFinding | None:
    """A flag for TPUs in XLA_FLAGS, with the name that was probably meant; None if it is none."""
    name, then = setting.name, "XLA_FLAGS rejects it, and XLA aborts at startup"
    if name in libtpu.flags or libtpu_history(name) is not None:
        message = f"{name} is a flag for TPUs: {then}; move it to {VARIABLE}"
        return LintFinding("misplaced", "abort", name, message, setting.place)
    if not name.startswith(_PREFIXES):
        return None
    close = close_matches(name, libtpu.flags, 1, SIMILAR)
    guess = f"; did you mean {close[0]}?" if close else ""
    message = f"{name} looks like a flag for TPUs: {then}. Those belong in {VARIABLE}{guess}"
    return LintFinding("misplaced", "abort", name, message, setting.place)


def flag_and_value(
    setting: Setting, libtpu: LibtpuCatalogue
) -> tuple[LibtpuFlag | None, str | None]:
    """The flag that a word sets, and its value; `--noNAME` sets a switch to false."""
    name = _name(setting)
    flag = libtpu.flags.get(name)
    if flag is not None:
        return flag, "true" if setting.value is None and flag.is_switch else setting.value
    negated = libtpu.flags.get(name.removeprefix("no"))
    if setting.value is None and negated is not None and negated.is_switch:
        return negated, "false"
    return None, setting.value


def _name(setting: Setting) -> str:
    return setting.name.lstrip("-")


def _taken_value(
    setting: Setting, following: Setting | None, libtpu: LibtpuCatalogue
) -> str | None:
    """The next word, if a flag without `=` takes it for its value."""
    flag, value = flag_and_value(setting, libtpu)
    is_open = setting.text.startswith("-") and flag is not None and value is None
    return following.text if is_open and following is not None else None


def _tolerated(together: Sequence[Setting]) -> set[str]:
    """Names that `--undefok` lets be unknown."""
    listed = [one.value or "" for one in together if _name(one) == "undefok"]
    return {name for value in listed for name in value.split(",")}


def _ignored(setting: Setting) -> LintFinding:
    message = (
        f"{setting.text.strip()!r} is not a flag, and libtpu ignores it; expected --name=value, "
        "separated by spaces; remove it"
    )
    return LintFinding("malformed", "warning", setting.text, message, setting.place)


def _malformed(setting: Setting, flag: LibtpuFlag, value: str) -> LintFinding:
    meant = flag.meant(value)
    fix = None if meant is None or setting.value is None else f"--{flag.name}={meant}"
    why = ""
    if any(end in value.strip() for end in "\n\t"):
        why = (
            "; libtpu separates flags by spaces only, so it reads the next line as part of this one"
        )
        fix = None
    elif value[:1] in ("'", '"'):
        why = "; libtpu keeps the quotes: remove them"
    message = f"{flag.name} is {value!r}; expected {flag.expected}{why}; {_ENDS}"
    return LintFinding("malformed", "abort", flag.name, message, setting.place, fix)


def _absent(setting: Setting, libtpu: LibtpuCatalogue, catalogue: Catalogue) -> LintFinding:
    """A name that libtpu rejects: of another place, retired, too new, or misspelt."""
    name = _name(setting)
    seen = f"{libtpu.label} has no flag {name}, and ends the process at startup"
    if name in catalogue.flags or name.startswith("xla_gpu_"):
        what = "a flag for GPUs" if name.startswith("xla_gpu_") else "not a flag of libtpu"
        message = f"{name} is {what}: {_ENDS}; move it to XLA_FLAGS, or remove it"
        return LintFinding("misplaced", "abort", name, message, setting.place)
    known, past = replacement_of(name), libtpu_history(name)
    if past is not None and version_key(past.first) > version_key(libtpu.version):
        message = f"{seen}. libtpu {past.first} added it. Update jax, or remove it."
        return LintFinding("unknown", "abort", name, message, setting.place)
    if known is not None or past is not None:
        last = f"The last known libtpu with it is {past.last}." if past is not None else ""
        message = f"{seen}. {known.because if known is not None else last} Remove it."
        return LintFinding("retired", "abort", name, message, setting.place, "")
    return _misspelt(setting, libtpu, seen)


def _misspelt(setting: Setting, libtpu: LibtpuCatalogue, seen: str) -> LintFinding:
    name = _name(setting)
    close = close_matches(name, libtpu.flags, 1, SIMILAR)
    if not close:
        stem = "_".join(name.split("_")[-2:])
        message = f"{seen}; remove it, or search: slipstream flags list --tpu --grep {stem}"
        return LintFinding("unknown", "abort", name, message, setting.place)
    meant = certain_match(name, libtpu.flags)
    is_fine = (
        meant is not None
        and setting.is_known
        and setting.value is not None
        and libtpu.flags[meant].accepts(setting.value)
    )
    fix = setting.text.replace(name, str(meant), 1) if is_fine else None
    message = f"{seen}; did you mean {meant or close[0]}?"
    return LintFinding("misspelt", "abort", name, message, setting.place, fix)
