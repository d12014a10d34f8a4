from __future__ import annotations

from slipstream.did_you_mean import close_matches, did_you_mean, no_such


def test_an_unknown_name_suggests_the_most_similar_one():
    assert no_such("grouping", "instrction", ("instruction", "phase")) == (
        "there is no grouping 'instrction'; did you mean instruction? "
        "choose from: instruction, phase"
    )
    assert no_such("format", "zzz", ("csv", "parquet")) == (
        "there is no format 'zzz'; choose from: csv, parquet"
    )


def test_case_is_ignored_and_the_valid_spelling_suggested():
    assert close_matches("h20", ("A100", "H200")) == ("H200",)
    assert did_you_mean("NDRR", ("ndr", "hdr")) == "did you mean ndr? "
    assert did_you_mean("evnts", ("events", "event"), most=2) == "did you mean events or event? "
    assert did_you_mean("zzz", ("ndr",)) == ""
