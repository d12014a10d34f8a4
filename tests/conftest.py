"""Shared fixtures, and the rule that in continuous integration no test is skipped."""

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

REPOSITORY = Path(__file__).resolve().parent.parent
IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
# How the reasons of skips begin that continuous integration accepts.
ACCEPTED_SKIPS: tuple[str, ...] = ("no Slurm: ", "no mpirun: ")

# A machine with a GPU plugin but no GPU would otherwise fail on the first use of jax.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# In a shell's background Ctrl-C is ignored, and whoever is started there inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Shared cores make single examples slow now and then; in CI a red run must repeat.
settings.register_profile("slipstream", deadline=None, derandomize=IN_CI)
settings.load_profile("slipstream")


# What a signal meets in Python, and which of two processes is first, is chance on a busy machine.
STARTING_PROCESSES = {
    "api",
    "bench",
    "browser",
    "consensus",
    "experiment",
    "jaxhooks",
    "run",
    "serve",
    "tune",
}
# Files that take longest, seconds of processor on one machine: last, they would leave cores idle.
LONGEST = (
    "run/test_failures.py",  # 65
    "consensus/test_consensus.py",  # 50
    "compiler/test_gpt.py",  # 40
    "run/test_run.py",  # 35
    "run/test_jobs.py",  # 33
    "flags/presets/test_preset_effects.py",  # 31
    "run/test_ranks.py",  # 30
    "tune/search/test_screen.py",  # 25
    "compiler/test_compile.py",  # 24
    "browser/test_report.py",  # 22
    "tune/search/test_study.py",  # 22
    "flags/catalogue/test_values.py",  # 20
    "sources/xplane/test_reader.py",  # 18
    "browser/test_viewer.py",  # 16
    "api/test_optimize.py",  # 16
    "costs/test_compiled.py",  # 15
    "tune/measure/test_in_process.py",  # 14
    "tune/test_command.py",  # 13
    "run/test_layouts.py",  # 11
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start processes of their own have a second try; what is wrong fails it too."""
    for item in items:
        if _room(item.path) in STARTING_PROCESSES:
            item.add_marker(pytest.mark.flaky(reruns=1))
    items.sort(key=lambda item: _turn(item.path))


def _room(file: Path) -> str:
    """`run` of tests/run/agent/test_agent.py."""
    return file.relative_to(REPOSITORY / "tests").parts[0]


def _turn(file: Path) -> int:
    name = file.relative_to(REPOSITORY / "tests").as_posix()
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Function) -> None:
    """A second try begins anew: what the tests of a file share, a whole job say, is made again."""
    if getattr(item, "execution_count", 1) > 1:
        for fixtures in item._fixtureinfo.name2fixturedefs.values():
            for fixture in fixtures:
                if fixture.scope == "module":
                    fixture.finish(item._request)


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
