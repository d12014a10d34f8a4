"""Options and variables of `slipstream run`, read."""

import pytest

from slipstream.errors import BadInput
from slipstream.run.settings import parse_capture, profiler_attributes


def test_captures_and_profiler_options_are_read():
    assert parse_capture("5:3") == (5, 3)
    for wrong in ("5", "0:3", "5:0", "a:b", "-1:2"):
        with pytest.raises(BadInput, match="START:COUNT"):
            parse_capture(wrong)
    name = "SLIPSTREAM_PROFILER_OPTIONS"
    assert profiler_attributes({name: '{"host_tracer_level": 1}'}) == {"host_tracer_level": 1}
    assert profiler_attributes({}) == {}
    with pytest.raises(BadInput, match="ProfileOptions"):
        profiler_attributes({name: "[1"})
    with pytest.raises(BadInput, match="expected JSON"):
        profiler_attributes({name: "[" * 100_000})
