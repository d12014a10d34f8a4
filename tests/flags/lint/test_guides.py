"""The page on the guides' flags says what lint says, and lint says what XLA does."""

from __future__ import annotations

import sys
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from flags.lint.guides import GUIDE_LINES, GUIDE_VARIABLES
from slipstream.flags.catalogue.catalogue import installed_catalogue
from slipstream.flags.catalogue.env_vars import ENV_VARS
from slipstream.flags.lint.findings import FAILING
from slipstream.flags.lint.lint import lint
from slipstream.flags.settings import read_text

SCRIPT = Path(__file__).parents[3] / "scripts" / "check_guides.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = spec_from_file_location("check_guides", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


def test_the_page_is_what_lint_says(script: ModuleType) -> None:
    rows = [line for line in script.PAGE.read_text().splitlines() if line.startswith("| `--")]
    said = {row.split("`")[1]: [cell.strip() for cell in row.split("|")[3:-1]] for row in rows}
    lines = dict.fromkeys(line for _, line in GUIDE_LINES)
    assert said == {line: [script.verdict(line, v) for v in script.VERSIONS] for line in lines}


@pytest.mark.parametrize(
    "line",
    [
        "--xla_gpu_enable_latency_hiding_scheduler=true",
        "--xla_gpu_enable_async_all_gather=true",
        "--xla_gpu_graph_level=0",
        "--xla_gpu_enable_command_buffer=''",
        "--xla_gpu_enable_command_buffer=1",
        "--xla_gpu_nccl_collective_max_nchannels",
    ],
)
def test_a_process_does_what_lint_says(script: ModuleType, line: str) -> None:
    findings = lint(read_text(f'XLA_FLAGS="{line}"'), installed_catalogue())
    fatal = any(finding.severity in FAILING for finding in findings)
    assert script.ends(sys.executable, line) == fatal, version("jaxlib")


def test_every_variable_of_the_guides_is_known() -> None:
    names = {variable.partition("=")[0] for _, variable in GUIDE_VARIABLES}
    assert names <= set(ENV_VARS)
    text = "".join(f"export {variable}\n" for _, variable in GUIDE_VARIABLES)
    assert [one for one in lint(read_text(text), installed_catalogue())] == []
