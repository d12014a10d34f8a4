"""Shared fixtures, and the rule that in continuous integration no test is skipped."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

REPOSITORY = Path(__file__).resolve().parent.parent
IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
# How the reasons of skips begin that continuous integration accepts.
ACCEPTED_SKIPS: tuple[str, ...] = ()

# A machine with a GPU plugin but no GPU would otherwise fail on the first use of jax.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Shared cores make single examples slow now and then; in CI a red run must repeat.
settings.register_profile("slipstream", deadline=None, derandomize=IN_CI)
settings.load_profile("slipstream")


# What a signal meets in Python, and which of two processes is first, is chance on a busy machine.
STARTING_PROCESSES = ("browser", "loop", "serve", "tune")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start processes of their own have a second try; what is wrong fails it too."""
    for item in items:
        if item.path.parent.name in STARTING_PROCESSES:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of small recorded inputs."""
    return REPOSITORY / "tests" / "data"


@pytest.fixture(scope="session")
def external() -> Path:
    """Profiles recorded by others, kept next to the repository and not in it."""
    folder = REPOSITORY.parent / "shared" / "traces" / "external"
    if not folder.is_dir():
        pytest.skip("no external traces: ../shared/traces/external is not there")
    return folder


def fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not IN_CI or report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    # A skip is reported as (file, line, "Skipped: reason").
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not reason.removeprefix("Skipped: ").startswith(ACCEPTED_SKIPS):
        report.outcome = "failed"
        report.longrepr = f"no test may be skipped when CI is set: {reason}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    fail_if_skipped(report)
    return report
