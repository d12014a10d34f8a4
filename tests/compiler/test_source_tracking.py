"""What a target reads, tracked by one hook for all requests of a process."""

import os
import sys

from slipstream.compiler import source_tracking
from slipstream.compiler.source_tracking import Seen, inputs_of, tracking


def test_one_hook_serves_all_requests(tmp_path, monkeypatch):
    hooks = []
    monkeypatch.setattr(sys, "addaudithook", hooks.append)
    monkeypatch.setattr(source_tracking, "_hook", source_tracking._Hook())
    monkeypatch.setenv("FIRST", "")
    files = [tmp_path / name for name in ("a", "b", "c")]
    first, second = Seen(), Seen()
    for file, seen in zip(files, (first, second, None), strict=True):
        file.write_text("")
        if seen is None:
            hooks[0]("open", (str(file), "r", 0))  # after the requests: nobody asks
            continue
        with tracking(seen):
            hooks[0]("open", (str(file), "r", 0))
            hooks[0]("open", (str(tmp_path / "written"), "w", 0))
            if seen is first:
                assert os.environ["FIRST"] == ""
    assert len(hooks) == 1
    assert [first.files, second.files] == [{str(files[0])}, {str(files[1])}]
    assert str(files[0]) in inputs_of(first).files and "FIRST" in first.variables
    assert "FIRST" not in second.variables
