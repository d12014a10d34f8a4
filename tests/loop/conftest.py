"""Jobs of several processes take their time from a busy machine: `make test-loop` runs those tests."""

import os

_JOBS = ("auto", "failures", "jobs", "layouts", "nsys", "ranks", "simulated")
collect_ignore = ["test_run.py", "test_council.py", "test_capture.py", "test_launch.py"]
collect_ignore += [f"test_run_{name}.py" for name in _JOBS]
if os.environ.get("SLIPSTREAM_TEST_JOBS"):
    collect_ignore = []
