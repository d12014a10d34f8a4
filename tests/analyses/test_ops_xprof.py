"""Per-instruction totals against XProf's own converter, on recordings without command buffers."""

import gzip
import json

import pytest

from slipstream.analyses.ops import ops
from slipstream.sources.load import load

RECORDINGS = [
    "off_lhs_nocb",
    "off_pgle_nocb",
    "nccl2_lhs_r0",
    "nccl2_nolhs_r0",
    "attention_plain",
    "convolution_plain",
]


@pytest.mark.parametrize("name", RECORDINGS)
def test_totals_equal_xprof(name, data, tmp_path):
    converter = pytest.importorskip("xprof.convert.raw_to_tool_data", reason="pip install xprof")
    plain = tmp_path / "host.xplane.pb"
    plain.write_bytes(gzip.decompress((data / f"{name}.xplane.pb.gz").read_bytes()))

    text, _ = converter.xspace_to_tool_data([str(plain)], "hlo_stats", {})
    table = json.loads(text)
    place = {column["id"]: i for i, column in enumerate(table["cols"])}
    theirs: dict[str, float] = {}
    for row in table["rows"]:
        cells = [cell and cell.get("v") for cell in row["c"]]
        op = cells[place["hlo_op_name"]]
        theirs[op] = theirs.get(op, 0.0) + cells[place["total_self_time"]]

    ours: dict[str, float] = {}
    for op in ops(load(plain), whole=True).ops:
        ours[op.instruction] = ours.get(op.instruction, 0.0) + op.total_us

    assert len(theirs) > 50
    assert ours == pytest.approx(theirs, rel=1e-3)
