"""The repository keeps its own rules: names documented, imports cheap, pages up to date."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import slipstream

ROOT = Path(__file__).resolve().parent.parent
INNER_ANALYSES = {"exposures", "latency", "op_groups", "step_samples", "structure"}
"""what other analyses are made of"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def packages_imported_by(*arguments: str) -> set[str]:
    """The top-level packages that `python <arguments>` imports."""
    done = run(sys.executable, "-X", "importtime", *arguments)
    assert done.returncode == 0, done.stderr
    # import time:       412 |       1033 |   numpy.core
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


def test_all_is_sorted_and_every_name_is_there() -> None:
    assert list(slipstream.__all__) == sorted(set(slipstream.__all__))
    missing = [name for name in slipstream.__all__ if not hasattr(slipstream, name)]
    assert missing == []


def test_every_public_name_is_documented() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    undocumented = [
        name for name in slipstream.__all__ if not re.search(rf"`(slipstream\.)?{name}\b", text)
    ]
    assert undocumented == [], "not in docs/api.md"


def test_every_public_name_says_what_it_is() -> None:
    silent = [name for name in slipstream.__all__ if not getattr(slipstream, name).__doc__]
    assert silent == []


def test_every_analysis_is_public() -> None:
    """A module of `analyses` that has a function of its own name, and its result's class."""
    source = ROOT / "src"
    for path in sorted((source / "slipstream" / "analyses").rglob("*.py")):
        if path.parent.name not in ("analyses", path.stem):
            continue  # a part of the analysis that its folder is named after
        parts = path.relative_to(source).with_suffix("").parts
        module = importlib.import_module(".".join(parts))
        found = getattr(module, path.stem, None)
        if inspect.isfunction(found) and path.stem not in INNER_ANALYSES:
            assert path.stem in slipstream.__all__
            assert getattr(slipstream, path.stem) is found
            assert inspect.signature(found).return_annotation in slipstream.__all__


def test_importing_slipstream_is_cheap() -> None:
    imported = packages_imported_by("-c", "import slipstream")
    assert "slipstream" in imported
    assert imported & {"jax", "jaxlib", "numba", "llvmlite", "pandas", "duckdb"} == set()


def test_help_is_cheap() -> None:
    imported = packages_imported_by("-m", "slipstream", "--help")
    assert "typer" in imported
    assert imported & {"jax", "jaxlib", "numba", "llvmlite", "pandas", "polars", "duckdb"} == set()


PRIVATE_JAX = re.compile(
    r"jax\._src|jaxlib\._(?!_)|\bxla_client\b|from jaxlib import|"
    r"\._lowering\b|\._executable\b|\b_clear_cache\b|\b_cached_compilation\b|\bglobal_state\b"
)


def test_private_parts_of_jax_are_used_in_one_room() -> None:
    """Where each is in a table, and is checked before it is used."""
    source = ROOT / "src" / "slipstream"
    allowed = {
        # A program for another Python, which has no Slipstream.
        source / "flags" / "catalogue" / "probe.py",
    }
    found = [
        f"{path.relative_to(source)}: {match[0]}"
        for path in sorted(source.rglob("*.py"))
        if path.parent.name != "jaxhooks" and path not in allowed
        for match in PRIVATE_JAX.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == [], "move it to jaxhooks/private_api.py"


def test_every_command_and_column_has_a_page_that_is_up_to_date() -> None:
    done = run(sys.executable, "docs/generate.py", "--check")
    assert done.returncode == 0, done.stderr


def test_imports_keep_to_the_contracts() -> None:
    done = run(str(Path(sys.executable).with_name("lint-imports")), "--no-cache")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("start", ["work", "root"])
def test_no_file_names_a_path_of_the_machine_it_was_written_on(start: str) -> None:
    # -I leaves out binary files: a recorded profile holds the paths of whoever recorded it.
    done = run("git", "grep", "--untracked", "-nIF", f"/{start}/")
    assert (done.returncode, done.stdout) == (1, ""), done.stdout + done.stderr
