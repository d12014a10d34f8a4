"""What the first rank announces, as the other ranks hear it."""

from types import SimpleNamespace

import pytest

from slipstream.consensus.kvstore import FolderStore, poll
from slipstream.run.agent import announcements
from slipstream.run.agent.announcements import Announcement, Announcements


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(announcements, "content_of", lambda program: f"content of {program.name}")
    return FolderStore(tmp_path)


def test_what_is_announced_is_heard_until_it_is_followed(store):
    leader, other = (Announcements(store, "loop", is_leader=first) for first in (True, False))
    leader.announce(SimpleNamespace(name="jit_step"))
    assert poll(other.heard, 300.0) == Announcement("jit_step", "content of jit_step")
    other.follow()
    assert other.heard() is None
    leader.announce(None)
    assert poll(other.heard, 300.0).is_over


@pytest.mark.parametrize(
    "damage", [b"", b"[1]", b"{}", b"\xff", b'{"program": "a"}', b"[" * 100_000], ids=range(6)
)
def test_what_can_not_be_read_does_not_end_the_listening(store, damage):
    store.put("slipstream/hot/loop/1", damage)
    other = Announcements(store, "loop", is_leader=False)
    store.put("slipstream/hot/loop/2", b'{"program": "over", "content": ""}')
    assert poll(other.heard, 300.0).is_over
