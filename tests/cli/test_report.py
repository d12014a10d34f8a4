"""`slipstream report`, and pages of predictions."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.errors import BadInput

DATA = Path(__file__).parents[1] / "data"
PROFILE = str(DATA / "attention_graphs.xplane.pb.gz")


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def data_of(page: Path) -> dict:
    """What the page's scripts find in it."""
    text = page.read_text(encoding="utf-8")
    return json.loads(text.partition('id="data">')[2].partition("</script>")[0])


def test_a_page_is_written(tmp_path):
    page = tmp_path / "report.html"
    done = run("report", PROFILE, "-o", str(page))
    assert done.exit_code == 0
    assert done.output.startswith(f"wrote {page}: 1,023 events, ")
    ops = json.loads(run("ops", PROFILE, "--json").output)["ops"]
    shown = data_of(page)["ops"]
    assert [op["us"] for op in shown] == [op["per_step_us"] for op in ops]
    assert [op["instruction"] for op in shown] == [op["instruction"] for op in ops]
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_what_changed_since_another(tmp_path):
    page = tmp_path / "r.html"
    other = str(DATA / "attention_plain.xplane.pb.gz")
    done = run("report", PROFILE, "--against", other, "-o", str(page), "--json")
    found = json.loads(done.output)
    verdict = json.loads(run("diff", other, PROFILE, "--json").output)["verdict"]["verdict"]
    assert found["verdict"] == verdict
    assert found["output"] == str(page) and found["bytes"] == page.stat().st_size
    assert found["events"] == 1023 and found["findings"] >= 0
    assert 'id="diff"' in page.read_text(encoding="utf-8")


def test_nowhere_to_write(tmp_path):
    with pytest.raises(BadInput, match="can't write .*nowhere"):
        run("report", PROFILE, "-o", str(tmp_path / "nowhere" / "r.html"))


def test_a_prediction_has_a_page(tmp_path):
    page = tmp_path / "predicted.html"
    program = str(DATA / "nccl2_lhs_r0.hlo.gz")
    done = run("simulate", program, "--on", "2xH200,2xH100", "--html", str(page), "--json")
    assert done.exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert text.index('id="prediction"') < text.index('id="overview"')
    assert "2xH100" in text and "Basis of the times" in text
    assert data_of(page)["step"]["lanes"]
