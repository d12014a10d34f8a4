"""`lint` finds what is retired in the flags that well-known projects publish."""

from __future__ import annotations

import pytest

from flags.lint.published import PUBLISHED, Published
from slipstream.flags.catalogue.history import catalogue_of
from slipstream.flags.lint.findings import FAILING
from slipstream.flags.lint.lint import lint
from slipstream.flags.lint.rewrite import apply_fixes
from slipstream.flags.settings import read_text


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one.project)
def test_retired_flags_are_found(one: Published) -> None:
    findings = lint(read_text(one.settings), catalogue_of("0.10.2"))
    fatal = [finding for finding in findings if finding.severity in FAILING]
    assert {finding.name for finding in fatal} == one.retired
    assert {finding.code for finding in fatal} <= {"retired"}


@pytest.mark.parametrize("version", ["0.6.0", "0.10.2", "0.12.0.1"])
@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one.project)
def test_fixed_they_run(one: Published, version: str) -> None:
    catalogue = catalogue_of(version)
    fixed = apply_fixes(one.settings, lint(read_text(one.settings), catalogue))
    findings = lint(read_text(fixed), catalogue)
    assert [finding for finding in findings if finding.severity in FAILING] == []
