from __future__ import annotations

import math

from slipstream.outputs.formatting import amount_text, band_text, share_text


def test_shares_never_pretend():
    shown = [share_text(s) for s in (0, 1e-6, 0.5, 0.9999, 1, 1 - 1e-12, math.nan)]
    assert shown == ["0.0%", "<0.1%", "50.0%", "99.9%", "100%", "100%", "–"]
    assert [share_text(s, 0) for s in (0.001, 0.94, 0.999)] == ["<1%", "94%", "99%"]


def test_a_band_has_one_unit():
    shown = [band_text(*times) for times in ((12.1e6, 11.5e6, 13.4e6), (1040, 970, 1100))]
    assert shown == ["12.1 s (11.5 … 13.4)", "1.04 ms (0.97 … 1.1)"]


def test_amounts_of_work():
    texts = {
        69_076.3: "69,100",
        999.6: "1,000",
        999_700: "1M",
        1_234_567: "1.23M",
        2.5e9: "2.5B",
        4.0512: "4.05",
        0.0: "0",
        float("nan"): "–",
    }
    assert {value: amount_text(value) for value in texts} == texts
