"""Stores that take each key once: a shared folder, and JAX's coordination service."""

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from slipstream.consensus.consensus import Consensus, stop
from slipstream.consensus.kvstore import FolderStore, JaxStore, StoreUnavailable, poll


@pytest.fixture(params=["links", "no links"])
def file_system(request, monkeypatch):
    """With hard links, and without, as where a bucket is mounted as a folder."""

    def link(source, target):
        raise OSError(errno.EOPNOTSUPP, "no links here")

    if request.param == "no links":
        monkeypatch.setattr(os, "link", link)


def test_a_folder_takes_each_key_once(tmp_path, file_system):
    one, other = FolderStore(tmp_path / "store"), FolderStore(tmp_path / "store")
    assert other.with_prefix("a") == {} and other.get("a/b", 0.01) is None
    assert one.put("a/b", b"first") and not other.put("a/b", b"second")
    assert other.get("a/b") == b"first"
    assert one.with_prefix("a") == {"b": b"first"} and one.with_prefix("") == {}
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable):
        FolderStore(tmp_path / "file").put("a", b"")


def test_a_folder_keeps_no_temporary_files(tmp_path):
    store = FolderStore(tmp_path / "store")
    assert store.put("a/b", b"first") and not store.put("a/b", b"second")
    assert [name for name in os.listdir(tmp_path / "store") if name.startswith(".")] == []


def test_a_folder_lets_one_of_many_decide(tmp_path, file_system):
    ranks = tuple(range(8))
    members = [Consensus(ranks, rank, FolderStore(tmp_path), "job") for rank in ranks]
    with ThreadPoolExecutor(8) as pool:
        decided = list(pool.map(lambda c: c.decide("1", stop(f"rank {c.rank}")), members))
    assert len({json.dumps(decision) for decision in decided}) == 1


class Failed(RuntimeError):
    """As JaxRuntimeError has it: a code, and a text that may mention others."""

    def __init__(self, status):
        super().__init__(f"{status}: key NOT_FOUND/ALREADY_EXISTS/DEADLINE_EXCEEDED")
        self.error_code_string = status


class Client:
    """JAX's client, whose every call ends with an error."""

    def __init__(self, error):
        self.error = error

    def __getattr__(self, name):
        def call(*arguments):
            raise self.error

        return call


def test_errors_of_jax_are_told_apart_by_their_status():
    taken, late = JaxStore(Client(Failed("ALREADY_EXISTS"))), Failed("DEADLINE_EXCEEDED")
    absent = JaxStore(Client(Failed("NOT_FOUND")))
    assert taken.put("a", b"") is False
    assert JaxStore(Client(late)).get("a") is None and absent.get("a") is None
    assert absent.with_prefix("a") == {}
    for error in (Failed("UNAVAILABLE"), Failed("CANCELLED"), TypeError("changed")):
        for use in (lambda s: s.put("a", b""), lambda s: s.get("a"), lambda s: s.with_prefix("a")):
            with pytest.raises(StoreUnavailable):
                use(JaxStore(Client(error)))


class BusyClient:
    """JAX's client of a service that answers after more than a millisecond."""

    def blocking_key_value_get_bytes(self, key, timeout_ms):
        raise Failed("DEADLINE_EXCEEDED")

    def key_value_try_get_bytes(self, key):
        return b"there"


@pytest.mark.parametrize("wait_s", [0.0, 0.01])
def test_a_key_that_is_there_is_found_however_busy_the_service_is(wait_s):
    assert JaxStore(BusyClient()).get("a", wait_s) == b"there"


def test_an_error_without_a_code_is_known_by_its_text():
    assert JaxStore(Client(RuntimeError("ALREADY_EXISTS: key a"))).put("a", b"") is False


def test_polling_looks_at_least_once():
    answers = iter([None, None, 7])
    assert poll(lambda: 3, 0.0) == 3
    assert poll(lambda: None, 0.0) is None
    assert poll(lambda: next(answers), 5.0, every_s=0.0) == 7
