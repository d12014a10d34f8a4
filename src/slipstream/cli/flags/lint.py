"""`slipstream flags lint [PATH...]`: find settings that abort the job or have no effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import JsonOption, echo, show, show_json
from slipstream.cli.flags.common import GpuOption, JaxlibOption, catalogue_for
from slipstream.errors import BadInput, CheckFailed

if TYPE_CHECKING:
    from slipstream.flags.catalogue.catalogue import Catalogue
    from slipstream.flags.lint.findings import LintFinding


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
        advice = f"; fix them: slipstream flags lint {' '.join(paths)} --fix" if can_fix else ""
        raise CheckFailed(f"{len(fatal)} of these settings would abort the job{advice}")
