"""The table of overlap in a report."""

from slipstream.analyses.overlap import overlap
from slipstream.outputs.html.sections.overlap import overlap_tables
from slipstream.sources.load import load


def test_equal_collectives_are_one_row(data):
    found = overlap(load(data / "nccl2_lhs_r0.xplane.pb.gz"))
    text = str(overlap_tables(found).body)
    several = next(one for one in found.groups if len(one.instructions) > 1)
    assert text.count(f"{several.instruction} and {len(several.instructions) - 1} like it") == 1
    assert text.count('class="c at"') == len(found.groups) < len(found.ops)
