"""What trackers get of a receipt."""

import json
from pathlib import Path

from slipstream.run.trackers.tracked import metrics_of, tracked_of

RECEIPTS = Path(__file__).resolve().parents[3] / "docs" / "receipts"


def test_numbers_of_a_receipt_from_a_gpu() -> None:
    receipt = json.loads((RECEIPTS / "gpt_offload.json").read_text(encoding="utf-8"))
    found = metrics_of(receipt)
    assert found["slipstream/step_us/before"] == receipt["step_us"]["before"]
    assert found["slipstream/change/estimate"] == receipt["change"]["estimate"]
    before = receipt["overlap"]["before"]
    assert found["slipstream/exposed_copy_us/before"] == before["exposed_copy"]
    assert found["slipstream/memory_bytes/after"] == receipt["memory_bytes"]["after"]


def test_a_receipt_without_a_comparison_has_texts_only(tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    file.write_text(json.dumps({"verdict": "can't tell", "why": "it ended", "change": None}))
    found = tracked_of(file)
    assert (found.metrics, found.profiles, found.files) == ({}, {}, (file,))
    assert found.texts == {"verdict": "can't tell", "chosen": "", "why": "it ended"}
