"""The job itself: what its launcher adds to the receipt."""

from dataclasses import replace

import pytest

from slipstream.experiment.receipt import bare_receipt
from slipstream.run.compare_phase import offering_profile_first

TAKEN = "a profiler session is already open in this process, so none was started"


@pytest.mark.parametrize(
    ("state", "files", "is_offered"),
    [
        ("settled", {}, True),
        ("settled", {"before": "profile/rank0/profiles/before"}, False),
        ("ended early", {}, False),  # a second start would end as early
    ],
)
def test_a_job_that_can_not_be_recorded_inside_is_told_of_another_way(state, files, is_offered):
    receipt = replace(bare_receipt(TAKEN), files=files)
    found = offering_profile_first(receipt, {"state": state}).why
    offer = "; to record it in a run of its own: slipstream run --profile-first -- …"
    assert found == TAKEN + (offer if is_offered else "")
