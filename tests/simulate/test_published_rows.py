"""Which published steps `benchmarks/published.py` predicts."""

import json
from pathlib import Path

import pytest

from slipstream.errors import BadInput

ROOT = Path(__file__).parents[2]
USUAL = ROOT / "tests/data/published"
TABLE = """
| file `hlo_….hlo.xz` | machine | measured | layout |
| --- | --- | --- | --- |
| llama_8b_2x8 | 2x8xH100 | **1.3706 s** | FSDP |
| mixtral | 8xH100 | 0.7445 | experts |

| collective | GB/s |
| --- | --- |
| all-gather | 344 |
"""


@pytest.fixture
def rows(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from published_parts import rows

    return rows


def test_rows_of_a_readme(rows, tmp_path: Path) -> None:
    for name in ("hlo_llama_8b_2x8.hlo.xz", "hlo_mixtral.hlo"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "README.md").write_text(TABLE)
    found = rows.stated(tmp_path, USUAL)
    assert found["then"] == json.loads((USUAL / "rows.json").read_text())["then"]
    assert found["steps"] == [
        {
            "name": "llama_8b_2x8",
            "file": str(tmp_path / "hlo_llama_8b_2x8.hlo.xz"),
            "machine": "2x8xH100",
            "seconds": 1.3706,
            "values": "made up",
        },
        {
            "name": "mixtral",
            "file": str(tmp_path / "hlo_mixtral.hlo"),
            "machine": "8xH100",
            "seconds": 0.7445,
            "values": "made up",
        },
    ]


def test_rows_of_a_command(rows, tmp_path: Path) -> None:
    file = tmp_path / "hlo_step.hlo.xz"
    file.write_bytes(b"")
    (step,) = rows.given([(str(file), "8xH100", "1.5s")], "random", USUAL)["steps"]
    assert (step["name"], step["seconds"], step["values"]) == ("step", 1.5, "random")
    with pytest.raises(BadInput, match=r"none\.hlo is not a file"):
        rows.given([("none.hlo", "8xH100", "1")], "random", USUAL)
    with pytest.raises(BadInput, match="expected seconds, such as 1.37"):
        rows.given([(str(file), "8xH100", "soon")], "random", USUAL)


def test_folders_that_state_no_steps(rows, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected a rows.json"):
        rows.stated(tmp_path, USUAL)
    (tmp_path / "README.md").write_text(TABLE)
    with pytest.raises(BadInput, match="llama_8b_2x8 of .* is to be one file there, and is none"):
        rows.stated(tmp_path, USUAL)
    assert len(rows.stated(USUAL, USUAL)["steps"]) == 5
