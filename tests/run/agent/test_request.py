"""The agent's request, as a file."""

import pytest

from slipstream.errors import BadInput
from slipstream.experiment.variants import Variant
from slipstream.run.agent.request import Request, read_request


def test_a_request_reads_back_as_written(tmp_path):
    variants = (Variant("costs", {}, True), Variant("fast", {"xla_a": "1"}))
    request = Request("compare", str(tmp_path), 2, 3, 8, variants=variants, devices=("H200",) * 2)
    assert read_request(request.write(tmp_path / "request.json")) == request
    (tmp_path / "request.json").write_text("{}")
    with pytest.raises(BadInput, match="no request"):
        read_request(tmp_path / "request.json")


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"a":' * 100_000,
        '{"mode": "compare"}',
        '{"mode": "compare", "variants": [3]}',
        '{"mode": "compare", "variants": [], "devices": 3}',
        '{"mode": ["compare"]}',
    ],
    ids=range(6),
)
def test_a_damaged_request_is_our_error(tmp_path, content):
    (tmp_path / "request.json").write_text(content)
    with pytest.raises(BadInput, match=r"request\.json"):
        read_request(tmp_path / "request.json")
