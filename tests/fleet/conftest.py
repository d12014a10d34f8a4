"""A run of four hosts, one of which comes late."""

from pathlib import Path

import pytest

from host_recordings import write_host
from slipstream.profile.profile import Profile
from slipstream.sources.load import load

HOSTS = {
    "a": {"compute": 0.8},
    "b": {"ahead_ns": 3_000, "compute": 0.82},
    "c": {"ahead_ns": -7_000, "late_us": 40.0},
    "d": {"ahead_ns": 900, "late_us": 1.0, "compute": 0.85},
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hosts")
    for name, changes in HOSTS.items():
        write_host(made, name, **changes)
    return made


@pytest.fixture(scope="session")
def whole(folder: Path) -> Profile:
    """All of them in one profile."""
    return load(folder)
