"""`slipstream flags lint [PATH...]`: settings that would end the process, or do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import JsonOption, echo, show, show_json
from slipstream.errors import BadInput, CheckFailed

if TYPE_CHECKING:
    from slipstream.flags.catalogue.catalogue import Catalogue
    from slipstream.flags.lint.findings import LintFinding

JaxlibOption = Annotated[
    str | None,
    typer.Option("--jaxlib", metavar="VERSION", help="For this release.  [default: the installed]"),
]
GpuOption = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME", help="For this GPU, e.g. H100.")
]


def lint(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Shell or Slurm scripts, env files, YAML, JSON or Python.  "
            "[default: this environment]",
        ),
    ] = None,
    jaxlib: JaxlibOption = None,
    gpu: GpuOption = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Rewrite the files, where it is clear how.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Settings that would end the process, do nothing, or fight each other.

    Exits with 1 if a job with these settings would not survive.
    """
    if fix and not paths:
        raise BadInput("--fix rewrites files, and none was given: slipstream flags lint PATH --fix")
    catalogue = catalogue_for(jaxlib)
    if fix:
        _fix(paths or [], catalogue, gpu, quiet=json)
    findings = _findings(paths or [], catalogue, gpu)
    from slipstream.outputs.terminal.flags.lint import findings_json, render_findings

    version = catalogue.jaxlib_version
    if json:
        show_json(findings_json(findings, version, gpu))
    else:
        show(lambda width: render_findings(findings, version, gpu, width))
    _fail_if_fatal(findings, paths or [])


def catalogue_for(jaxlib: str | None) -> Catalogue:
    """The flags of a release, or of the jaxlib that is installed."""
    if jaxlib is None:
        from slipstream.flags.catalogue.catalogue import installed_catalogue

        return installed_catalogue()
    from slipstream.flags.catalogue.history import catalogue_of

    return catalogue_of(jaxlib)


def _findings(paths: list[str], catalogue: Catalogue, gpu: str | None) -> list[LintFinding]:
    from slipstream.flags.lint.lint import lint as find
    from slipstream.flags.settings import read_settings

    settings = [read_settings(path) for path in paths] or [read_settings()]
    return [finding for found in settings for finding in find(found, catalogue, gpu)]


def _fix(paths: list[str], catalogue: Catalogue, gpu: str | None, quiet: bool) -> None:
    from slipstream.flags.lint.rewrite import fix_file

    for path in paths:
        count = fix_file(path, _findings([path], catalogue, gpu))
        if not quiet:
            echo(f"{path}: {count} fixed")


def _fail_if_fatal(findings: list[LintFinding], paths: list[str]) -> None:
    from slipstream.flags.lint.findings import FAILING

    fatal = [finding for finding in findings if finding.severity in FAILING]
    if fatal:
        can_fix = any(finding.fix is not None for finding in fatal) and paths
        advice = f"; rewrite: slipstream flags lint {' '.join(paths)} --fix" if can_fix else ""
        raise CheckFailed(f"{len(fatal)} of these settings would end the job{advice}")
