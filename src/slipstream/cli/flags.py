"""`slipstream flags`: XLA's flags and JAX's environment variables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import PLAIN_WIDTH, JsonOption, echo, show, show_json
from slipstream.cli.group import CommandGroup
from slipstream.errors import BadInput, CheckFailed

if TYPE_CHECKING:
    from slipstream.flags.catalogue.catalogue import Catalogue
    from slipstream.flags.catalogue.libtpu import LibtpuCatalogue
    from slipstream.flags.lint.findings import LintFinding

JaxlibOption = Annotated[
    str | None,
    typer.Option(
        "--jaxlib", metavar="VERSION", help="jaxlib release.  [default: the installed one]"
    ),
]
TpuOption = Annotated[
    bool, typer.Option("--tpu", help="The flags of libtpu, which LIBTPU_INIT_ARGS sets.")
]
GpuOption = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME", help="GPU the job runs on, e.g. H100.")
]


_SEVERAL = ("flags for TPUs match", "them")

flags = typer.Typer(
    cls=CommandGroup,
    help="List, explain, check and choose XLA flags and JAX variables.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@flags.command("list")
def list_flags(
    grep: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only names that match this regular expression.")
    ] = "",
    jaxlib: JaxlibOption = None,
    tpu: TpuOption = False,
    json: JsonOption = False,
) -> None:
    """List flags: type, default, and where each may be set.

    `both` means XLA_FLAGS and compiler_options; with --tpu, LIBTPU_INIT_ARGS (`args`) and
    compiler_options. If no jaxlib is installed, the list is that of the newest known release.
    """
    from slipstream.flags.catalogue.catalogue import default_catalogue
    from slipstream.flags.catalogue.libtpu import libtpu_catalogue
    from slipstream.outputs.terminal.flags.catalogue import (
        libtpu_list_json,
        list_json,
        render_libtpu_list,
        render_list,
    )

    try:
        pattern = re.compile(grep, re.IGNORECASE)
    except re.error as error:
        raise BadInput(
            f"--grep {grep!r} is not a regular expression ({error}); expected one like all_gather"
        ) from None
    libtpu = libtpu_catalogue(jaxlib)
    for_tpus = [flag for name, flag in libtpu.flags.items() if pattern.search(name)]
    if tpu:
        if json:
            return show_json(libtpu_list_json(libtpu, for_tpus))
        return show(lambda width: render_libtpu_list(libtpu, for_tpus))
    catalogue = default_catalogue(jaxlib)
    version = catalogue.jaxlib_version
    flags = [flag for name, flag in catalogue.flags.items() if pattern.search(name)]
    if json:
        return show_json(list_json(version, flags))
    show(lambda width: render_list(version, flags, len(catalogue.flags), width))
    if not flags and for_tpus:
        match, them = ("flag for TPUs matches", "it") if len(for_tpus) == 1 else _SEVERAL
        echo(f"{libtpu.label}: {len(for_tpus)} {match}; list {them} with --tpu")


@flags.command(context_settings={"ignore_unknown_options": True})
def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Flag of XLA or libtpu, or a variable; as pasted, too: --xla_…=true.",
        ),
    ],
    jaxlib: JaxlibOption = None,
    json: JsonOption = False,
) -> None:
    """Explain a flag: effect, benefits, risks, default, history."""
    from slipstream.flags.catalogue.catalogue import default_catalogue
    from slipstream.flags.catalogue.libtpu import libtpu_catalogue
    from slipstream.flags.explain import explain as explain_name
    from slipstream.outputs.terminal.flags.catalogue import explanation_json, render_explanation

    found = explain_name(name, default_catalogue(jaxlib), libtpu_catalogue(jaxlib))
    if json:
        return show_json(explanation_json(found))
    show(lambda width: render_explanation(found, width))


@flags.command()
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="jaxlib release, such as 0.6.0.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Newer jaxlib release.")],
    tpu: TpuOption = False,
    json: JsonOption = False,
) -> None:
    """Compare two releases: flags removed, added, new defaults."""
    from slipstream.flags.explain import flag_diff, libtpu_diff
    from slipstream.outputs.terminal.flags.catalogue import diff_json, render_diff

    found = libtpu_diff(old, new) if tpu else flag_diff(old, new)
    if json:
        return show_json(diff_json(found))
    show(lambda width: render_diff(found, width))


@flags.command()
def lint(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Shell or Slurm script, env file, YAML, JSON or Python.  "
            "[default: the current environment]",
        ),
    ] = None,
    jaxlib: JaxlibOption = None,
    gpu: GpuOption = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Rewrite the files where the fix is unambiguous.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Find settings that abort the job, conflict or do nothing.

    Exits with 1 if these settings would abort a job.
    """
    if fix and not paths:
        raise BadInput("--fix needs a file to rewrite: slipstream flags lint PATH --fix")
    from slipstream.flags.catalogue.libtpu import libtpu_catalogue

    catalogue, libtpu = catalogue_for(jaxlib), libtpu_catalogue(jaxlib)
    if fix:
        _fix(paths or [], catalogue, gpu, libtpu, quiet=json)
    findings = _findings(paths or [], catalogue, gpu, libtpu)
    from slipstream.outputs.terminal.flags.lint import findings_json, render_findings

    version = catalogue.jaxlib_version
    if json:
        show_json(findings_json(findings, version, gpu))
    else:
        show(lambda width: render_findings(findings, version, gpu, width))
    _fail_if_fatal(findings, paths or [])


def _findings(
    paths: list[str], catalogue: Catalogue, gpu: str | None, libtpu: LibtpuCatalogue
) -> list[LintFinding]:
    from slipstream.flags.lint.lint import lint as find
    from slipstream.flags.settings import read_settings

    settings = [read_settings(path) for path in paths] or [read_settings()]
    return [finding for found in settings for finding in find(found, catalogue, gpu, libtpu)]


def _fix(
    paths: list[str], catalogue: Catalogue, gpu: str | None, libtpu: LibtpuCatalogue, quiet: bool
) -> None:
    from slipstream.flags.lint.rewrite import fix_file

    for path in paths:
        fixed = fix_file(path, _findings([path], catalogue, gpu, libtpu))
        left = f", {fixed.left} left: more than the setting would change" if fixed.left else ""
        if not quiet:
            echo(f"{path}: {fixed.made} fixed{left}")


def _fail_if_fatal(findings: list[LintFinding], paths: list[str]) -> None:
    from slipstream.flags.lint.findings import FAILING

    fatal = [finding for finding in findings if finding.severity in FAILING]
    if fatal:
        can_fix = any(finding.fix is not None for finding in fatal) and paths
        advice = f"; fix them: slipstream flags lint {' '.join(paths)} --fix" if can_fix else ""
        raise CheckFailed(f"{len(fatal)} of these settings would abort the job{advice}")


@flags.command()
def preset(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Presets to combine.")
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--for", metavar="FORM", help="Output: sh, dotenv, json, python, slurm or k8s."
        ),
    ] = "sh",
    jaxlib: JaxlibOption = None,
    gpu: GpuOption = None,
    list_all: Annotated[bool, typer.Option("--list", help="List all presets.")] = False,
    json: JsonOption = False,
) -> None:
    """Print recommended settings for a kind of job.

    Settings come from published guides, updated for this jaxlib. Presets that set one flag to
    different values can't be combined.
    """
    from slipstream.outputs.preset_files import list_lines, preset_json, render

    if list_all:
        return echo("\n".join(list_lines(PLAIN_WIDTH)))
    from slipstream.flags.catalogue.libtpu import libtpu_catalogue
    from slipstream.flags.presets.presets import compose

    composed = compose(names or [], catalogue_for(jaxlib), gpu, libtpu_catalogue(jaxlib))
    if json:
        return show_json(preset_json(composed))
    echo(render(composed, form).rstrip("\n"))


@flags.command()
def thresholds(
    program: Annotated[
        str,
        typer.Argument(metavar="PROGRAM", help="Compiled training step: HLO text or proto."),
    ],
    json: JsonOption = False,
) -> None:
    """Derive combine thresholds from the size of a layer.

    All-gather and reduce-scatter get one value each, large enough for a layer; for all-reduce it
    lists values worth trying. In Python, thresholds_of_params takes a parameter tree.
    """
    from slipstream.flags.thresholds.thresholds import thresholds as find
    from slipstream.outputs.terminal.flags.thresholds import render_thresholds, thresholds_json
    from slipstream.sources.hlo.reader import read_program

    found = find(read_program(program))
    if json:
        return show_json(thresholds_json(found))
    show(lambda width: render_thresholds(found, width))


def catalogue_for(jaxlib: str | None) -> Catalogue:
    """The flags of a release; by default, of the installed jaxlib."""
    if jaxlib is None:
        from slipstream.flags.catalogue.catalogue import installed_catalogue

        return installed_catalogue()
    from slipstream.flags.catalogue.history import catalogue_of

    return catalogue_of(jaxlib)
