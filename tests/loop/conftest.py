"""Tests that start jobs depend on how busy the machine is: `make test-loop` runs those."""

import os

_JOBS = ("auto", "failures", "jobs", "layouts", "nsys", "ranks", "simulated")
collect_ignore = ["test_run.py", "test_council.py", "test_capture.py", "test_launch.py"]
collect_ignore += ["test_optimize.py", "test_runtime.py", "test_agent.py"]
collect_ignore += [f"test_run_{name}.py" for name in _JOBS]
if os.environ.get("SLIPSTREAM_TEST_JOBS"):
    collect_ignore = []
