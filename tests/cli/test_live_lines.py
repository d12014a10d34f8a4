"""Lines as they arrive, on a terminal and elsewhere."""

import io
import sys

from slipstream.cli.live_lines import MAX_ROWS, LiveLines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_progress_gives_way_to_the_last_few_lines(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with LiveLines() as live:
        for number in range(MAX_ROWS + 2):
            live.progress(f"at {number}")
            live.show(f"row {number}")
        assert live._lines == [f"row {number}" for number in range(2, MAX_ROWS + 2)]
        live.progress("at the end")
        assert live._lines[-1] == "… at the end"


def test_elsewhere_each_is_a_line(capsys):
    with LiveLines() as live:
        live.progress("reading")
        live.show("row")
    assert capsys.readouterr().err.splitlines() == ["… reading", "row"]
