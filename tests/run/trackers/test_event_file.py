"""Event files are what TensorBoard reads: by its own reader."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from slipstream.run.trackers.event_file import write_events


def test_scalars_and_texts_as_tensorboard_reads_them(tmp_path: Path) -> None:
    texts = {"slipstream/verdict": "can't tell", "slipstream/why": "it's 3 µs … " * 30}
    file = write_events(tmp_path / "run", {"step": 235.5, "memory": 6.5e10, "none": 0.0}, texts)
    assert file.name.startswith("events.out.tfevents.")
    found = EventAccumulator(str(tmp_path / "run")).Reload()
    scalars = {tag: found.Scalars(tag)[0].value for tag in found.Tags()["scalars"]}
    assert scalars == {"step": 235.5, "memory": pytest.approx(6.5e10), "none": 0.0}
    shown = {tag: found.Tensors(tag)[0].tensor_proto for tag in found.Tags()["tensors"]}
    assert {tag: one.string_val[0].decode() for tag, one in shown.items()} == texts
    assert found.SummaryMetadata("slipstream/why").plugin_data.plugin_name == "text"
