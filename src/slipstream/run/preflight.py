"""Checks before the job starts: settings that would end it, and what would spoil a profile."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from slipstream.doctor.machine_facts import MachineFacts, read_machine_facts
from slipstream.errors import BadInput, SlipstreamError
from slipstream.experiment.variants import Variant
from slipstream.flags.catalogue.catalogue import Catalogue, default_catalogue, installed_catalogue
from slipstream.flags.lint.findings import FAILING
from slipstream.flags.lint.lint import lint
from slipstream.flags.presets.presets import compose
from slipstream.flags.readers.python import read_python
from slipstream.flags.settings import read_environment
from slipstream.jaxhooks.compat import OLDEST_SUPPORTED, is_too_old, untested
from slipstream.run.job_command import obstacle, python_call
from slipstream.run.job_python import JobPython, check_python
from slipstream.run.rank import LAUNCHERS
from slipstream.run.settings import Settings

_NOT_FOR_US = ("command-buffers", "no-jax")
"""attribution handles kernels in command buffers; a job without jax just runs"""


@dataclass(frozen=True)
class Preflight:
    """What the job is started with, and what the checks found."""

    environment: Mapping[str, str]
    """variables to set for the job, in addition to the user's"""
    variants: tuple[Variant, ...]
    """flag sets to try, each as an arm of its own"""
    flags: Mapping[str, str]
    """XLA flags for the whole job, from presets and --flags"""
    jaxlib: str | None
    gpus: tuple[str, ...]
    warnings: tuple[str, ...]
    python: JobPython | None = None
    """the job's Python; None if the command is not recognisably Python"""
    obstacle: str | None = None
    """what in the command keeps Slipstream out of the job, and what to do about it"""

    @property
    def xla_flags(self) -> str:
        """The job's XLA_FLAGS."""
        return self.environment.get("XLA_FLAGS", os.environ.get("XLA_FLAGS", "")).strip()


def check_job(settings: Settings) -> Preflight:
    """BadInput or Missing, with the fix, if the job would end or could not be measured."""
    found = _check(settings)
    seen = obstacle(settings.command, os.environ)
    warnings = (
        f"nothing will be measured: {seen}" if seen else None,
        *found.warnings,
        _sets_flags_itself(settings) if found.flags else None,
        *job_warnings(settings.command, found.jaxlib),
    )
    return replace(found, warnings=tuple(filter(None, warnings)), obstacle=seen)


def job_warnings(command: Sequence[str], jaxlib: str | None) -> tuple[str, ...]:
    """What the job's command and its JAX give reason to doubt."""
    texts = []
    if jaxlib and (text := untested(jaxlib)):
        texts.append(text)
    if jaxlib and is_too_old(jaxlib):
        texts.append(
            f"JAX {jaxlib} is older than {OLDEST_SUPPORTED}, the oldest that Slipstream supports: "
            "the job runs as it is, and nothing is measured; type: pip install --upgrade jax"
        )
    launcher = Path(command[0]).name
    if launcher in LAUNCHERS:
        texts.append(
            f"{launcher} is part of the job: if it starts several processes, nothing is compared, "
            f"because each needs its own slipstream; write: {launcher} … slipstream run -- python …"
        )
    return tuple(texts)


def _check(settings: Settings) -> Preflight:
    base, presets, flags = os.environ, settings.presets, settings.flags
    python = check_python(settings.command, base)
    try:
        catalogue = _catalogue(python)
    except SlipstreamError as problem:
        if presets or flags:
            raise
        jaxlib = python.jaxlib if python else None
        return Preflight({}, (), {}, jaxlib, (), (f"the flags are not checked: {problem}",), python)
    facts = read_machine_facts(base, is_profiled=True)
    gpus = tuple(gpu.name for gpu in facts.gpus or ())
    gpu = gpus[0] if gpus else None
    for_job, variants = _flag_sets(flags, catalogue)
    composed = compose(presets, catalogue, gpu) if presets else None
    names = {**(composed.xla_flags if composed else {}), **for_job}
    flag_sets = {**(composed.flags if composed else {}), "XLA_FLAGS": names}
    environment = _environment(flag_sets, composed.variables if composed else {}, base)
    _refuse_fatal({**base, **environment}, catalogue, gpu)
    jaxlib = catalogue.jaxlib_version
    return Preflight(environment, variants, names, jaxlib, gpus, _warnings(facts), python)


def _catalogue(python: JobPython | None) -> Catalogue:
    """The flags of the jaxlib that the job will load."""
    if python is None or python.jaxlib is None or python.jaxlib == _own_jaxlib():
        return installed_catalogue()
    return default_catalogue(python.jaxlib)


def _own_jaxlib() -> str | None:
    try:
        return version("jaxlib")
    except PackageNotFoundError:
        return None


def _flag_sets(
    flags: Sequence[str], catalogue: Catalogue
) -> tuple[dict[str, str], tuple[Variant, ...]]:
    """Flags that XLA takes only for a whole process, and sets that one compile can take."""
    from slipstream.compiler.options import split_flags

    for_job: dict[str, str] = {}
    variants = []
    for one in flags:
        options = split_flags(one, catalogue)
        for_job |= options.xla_flags
        if options.compiler_options:
            name = " ".join(f"{k}={v}" for k, v in options.compiler_options.items())
            variants.append(Variant(name, options.compiler_options))
    return for_job, tuple(variants)


def _environment(
    flag_sets: Mapping[str, Mapping[str, str]],
    variables: Mapping[str, str],
    base: Mapping[str, str],
) -> dict[str, str]:
    environment = {name: value for name, value in variables.items() if name not in base}
    for variable, flags in flag_sets.items():
        # What the user set comes last, and so wins.
        words = [*(f"--{name}={value}" for name, value in flags.items()), base.get(variable, "")]
        if flags:
            environment[variable] = " ".join(words).strip()
    return environment


def _sets_flags_itself(settings: Settings) -> str | None:
    """A warning if the job's script replaces XLA_FLAGS, and with it the flags that we set."""
    call = python_call(settings.command, os.environ)
    if call is None or call.script is None:
        return None
    try:
        text = call.script.read_text(encoding="utf-8", errors="replace")
        found = [one for one in read_python(text) if one.name == "XLA_FLAGS" and not one.appends]
    except (OSError, BadInput, ValueError, RecursionError):
        return None  # the job itself will show what is wrong with it
    lost = [one for one in found if not text[: one.start].rstrip().endswith("setdefault(")]
    if not lost:
        return None
    line = text.count("\n", 0, lost[0].start) + 1
    given = "--preset" if settings.presets else "--flags"
    return (
        f"{call.script} sets XLA_FLAGS itself in line {line}, so the flags of {given} may be lost; "
        "write there: os.environ['XLA_FLAGS'] = os.environ.get('XLA_FLAGS', '') + ' --xla_…'"
    )


def _refuse_fatal(environment: Mapping[str, str], catalogue: Catalogue, gpu: str | None) -> None:
    # libtpu alone reads LIBTPU_INIT_ARGS, and nobody knows yet whether the job loads it.
    settings = [one for one in read_environment(environment) if one.kind != "libtpu"]
    found = lint(settings, catalogue, gpu)
    fatal = [finding for finding in found if finding.severity in FAILING]
    if not fatal:
        return
    texts = "; ".join(dict.fromkeys(_with_fix(f.message, f.fix) for f in fatal))
    raise BadInput(
        f"the job was not started, because its settings would end it: {texts}; to see all: "
        "slipstream flags lint"
    )


def _with_fix(message: str, fix: str | None) -> str:
    if fix is None or fix in message:
        return message
    return f"{message} (write {fix})" if fix else f"{message} (remove it)"


def _warnings(facts: MachineFacts) -> tuple[str, ...]:
    from slipstream.doctor.doctor import examine
    from slipstream.doctor.problems import ERROR, WARNING

    return tuple(
        f"{finding.what}: {finding.why}; {finding.fix}"
        for finding in examine(facts)
        if finding.level in (ERROR, WARNING) and finding.code not in _NOT_FOR_US
    )
