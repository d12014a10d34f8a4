"""Files that once ended in a traceback or never: refused with what was expected, or read."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.errors import BadInput, CheckFailed

REFUSED = {
    "damaged.zip": (("summary",), r"damaged\.zip.* is damaged: expected"),
    "damaged_export_typeerror.sqlite": (
        ("summary",),
        "table CUPTI_ACTIVITY_KIND_KERNEL has row 0 in its pages, but not in its index",
    ),
    "hang_view.sqlite": (("summary",), "StringIds has a query under the name of a table"),
    "esc_error.sqlite": (("summary",), "is not a complete SQLite file"),
    "deepshape.hlo": (("simulate",), r"deepshape\.hlo, line \d+, column \d+: expected a shape"),
    "part3e9.hlo": (("simulate",), r"part3e9\.hlo: .*a collective of 3000000000 devices"),
}
READ = {
    "view_strings.sqlite": ("summary",),
    "graph_number_overflow.xplane.pb": ("summary",),
    "network_valueerror.xplane.pb": ("network",),
    "toy.hlo": ("simulate", "--on", "2xH200"),
}
ELSEWHERE = {
    "README.md": "the table of these files",
    "neg_cost.pbtxt": "cli/test_hostile_numbers.py",
    "row_wraps.sqlite": "cli/test_hostile_numbers.py",
    "launch_b_large.sqlite": "cli/test_hostile_numbers.py",
    "launch_b_4G.sqlite": "cli/test_hostile_numbers.py",
    "launch_max.sqlite": "cli/test_hostile_numbers.py",
    "launch_neg_span.sqlite": "cli/test_hostile_numbers.py",
    "launch_two_procs.sqlite": "cli/test_hostile_numbers.py",
    "esc.hlo": "cli/test_hostile_text.py",
    "hostile.xplane.pb": "cli/test_hostile_text.py",
    "fingerprint_traversal.xplane.pb": "costs/test_files.py",
    "fix_breaks_command.sh": "flags/lint/test_rewrite.py",
    "fix_breaks_docker.sh": "flags/lint/test_rewrite.py",
    "lint_blind_formfeed.py": "flags/lint/test_rewrite.py",
    "hang_dollar.sh": "flags/lint/test_rewrite.py",
    "umask_race.py": "test_writing.py",
}
"""files that other tests read, or whose program they repeat"""


def run(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, hostile: Path) -> None:
    (command, *options), message = REFUSED[name]
    with pytest.raises(BadInput, match=message) as caught:
        run(command, hostile / name, *options)
    assert caught.value.exit_code == 2
    assert name in str(caught.value)


@pytest.mark.parametrize("name", READ)
def test_read(name: str, hostile: Path) -> None:
    command, *options = READ[name]
    assert run(command, hostile / name, *options)


def test_an_alias_bomb_is_read_once(hostile: Path) -> None:
    """Ten levels of ten aliases each stand for one setting."""
    with pytest.raises(CheckFailed, match="1 of these settings would abort the job"):
        run("flags", "lint", hostile / "hang_alias.yaml")


def test_every_file_is_a_test(hostile: Path) -> None:
    names = {file.name for file in hostile.iterdir()}
    assert names == {*REFUSED, *READ, *ELSEWHERE, "hang_alias.yaml"}
    tests = Path(__file__).resolve().parent.parent
    for name, test in ELSEWHERE.items():
        if test.endswith(".py"):
            text = (tests / test).read_text(encoding="utf-8")
            wanted = name.partition(".")[0].removeprefix("launch_")
            assert wanted in text or "umask" in text, f"{test} does not read {name}"
