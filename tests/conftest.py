"""Shared fixtures, and the rule that in continuous integration no test is skipped."""

import gzip
import os
import signal
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

pytest_plugins = ("on_ray", "s3_server")
REPOSITORY = Path(__file__).resolve().parent.parent
IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
# Set where the environment is made of the libraries that the tests need: `make test-integrations`.
ALL_INSTALLED = os.environ.get("ALL_INSTALLED", "") not in ("", "0")
# How the reasons of skips begin that continuous integration accepts.
ACCEPTED_SKIPS: tuple[str, ...] = ("no Slurm: ", "no mpirun: ")
if not ALL_INSTALLED:
    ACCEPTED_SKIPS += ("not installed: ",)

# A machine with a GPU plugin but no GPU would otherwise fail on the first use of jax.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# What is expected of the terminal's output is what a pipe gets, 80 columns wide.
for name in (
    *("COLUMNS", "LINES", "TERMINAL_WIDTH", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    *("FORCE_COLOR", "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS"),
):
    os.environ.pop(name, None)

# In a shell's background Ctrl-C is ignored, and whoever is started there inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Shared cores make single examples slow now and then; in CI a red run must repeat.
settings.register_profile("slipstream", deadline=None, derandomize=IN_CI)
settings.load_profile("slipstream")


# Files that take longest, in seconds of processor time: started last, they would leave cores idle.
LONGEST = (
    "run/test_ranks.py",  # 75
    "run/test_failures.py",  # 65
    "stacks/test_stacks.py",  # 60
    "faults/test_faults.py",  # 40
    "consensus/test_consensus.py",  # 50
    "compiler/test_gpt.py",  # 40
    "compiler/test_llama.py",  # 30
    "run/test_run.py",  # 35
    "run/test_jobs.py",  # 33
    "cli/test_ci.py",  # 30
    "run/trackers/test_tracking.py",  # 16
    "test_clusters.py",  # 15
    "flags/presets/test_preset_effects.py",  # 31
    "run/test_job_python.py",  # 25
    "tune/search/test_screen.py",  # 25
    "plan/search/test_bounds.py",  # 25
    "compiler/test_combinations.py",  # 20
    "diagnosis/rules/test_compiled_slices.py",  # 20
    "compiler/test_compile.py",  # 24
    "browser/test_report.py",  # 22
    "browser/test_plan.py",  # 25
    "tune/search/test_study.py",  # 22
    "flags/catalogue/test_values.py",  # 20
    "sources/xplane/test_reader.py",  # 18
    "browser/test_viewer.py",  # 16
    "api/test_optimize.py",  # 16
    "costs/test_compiled.py",  # 15
    "compiler/test_model_kernels.py",  # 15
    "tune/measure/test_in_process.py",  # 14
    "tune/test_command.py",  # 13
    "run/test_bucket.py",  # 14
    "run/test_layouts.py",  # 11
    "browser/test_notebook.py",  # 11
    "fleet/test_ray.py",  # 12
)


@pytest.fixture(autouse=True, scope="session")
def no_simulated_link_carries_too_much() -> Generator[None]:
    """Every timeline that a test simulates keeps within its links."""
    from link_invariant import check_links
    from slipstream.simulate import engine

    plain = engine.run

    def checked(graph: Any, *rest: Any) -> Any:
        times = plain(graph, *rest)
        check_links(graph, times)
        return times

    engine.run = checked
    yield
    engine.run = plain


@pytest.fixture(autouse=True, scope="session")
def all_json_is_as_documented() -> Generator[None]:
    """Everything that a command prints with `--json` in a test is what its schema says."""
    if find_spec("jsonschema") is None:  # `make test-lowest` and `make test-stacks` have less
        yield
        return
    from json_contract import checked
    from slipstream.outputs import json

    plain = json.dumps
    json.dumps = checked(plain)
    yield
    json.dumps = plain


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "retry(reason): run the test once more if it raises RaceLost (tests/race_lost.py); "
        "the reason names the race it can lose",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (mark := item.get_closest_marker("retry")) is not None:
            _require_reason(item, mark)
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=["RaceLost"]))
    items.sort(key=lambda item: _turn(item.path))


def _require_reason(item: pytest.Item, mark: pytest.Mark) -> None:
    if len(mark.args) != 1 or not isinstance(mark.args[0], str) or not mark.args[0].strip():
        raise pytest.UsageError(
            f"{item.nodeid}: write why it needs another try: @pytest.mark.retry('what it can lose')"
        )


def _turn(file: Path) -> int:
    name = file.relative_to(REPOSITORY / "tests").as_posix()
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Function) -> None:
    """A second try starts from scratch: fixtures that a file's tests share are made again."""
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


@pytest.fixture
def refused_compiles(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The options of every compile from now on; none of them takes place."""
    from slipstream.compiler.failures import CompileFailed
    from slipstream.compiler.workers import Workers

    asked: list[dict[str, str]] = []

    def refuse(self: Workers, job: Any, do: str, **request: Any) -> Any:
        asked.append(request["options"])
        raise CompileFailed("refused", "refused")

    monkeypatch.setattr(Workers, "ask", refuse)
    return asked


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs that once crashed, hung or misled Slipstream; their README says how."""
    folder = tmp_path_factory.mktemp("hostile")
    for file in (REPOSITORY / "tests" / "data" / "hostile").iterdir():
        content = file.read_bytes()
        if file.suffix == ".gz":
            content = gzip.decompress(content)
        (folder / file.name.removesuffix(".gz")).write_bytes(content)
    return folder


def fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    if not (IN_CI or ALL_INSTALLED):
        return
    # A skip is reported as (file, line, "Skipped: reason").
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not reason.removeprefix("Skipped: ").startswith(ACCEPTED_SKIPS):
        report.outcome = "failed"
        variable = "ALL_INSTALLED" if ALL_INSTALLED else "CI"
        report.longrepr = f"no test may be skipped when {variable} is set: {reason}"


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
