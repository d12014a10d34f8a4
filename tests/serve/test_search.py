"""Search."""

from builders import profile
from serve.test_scene import scene_of, two_steps
from slipstream.serve.search import MAX_HITS, search


def starts(found: dict) -> list[float]:
    return [hit["start_us"] for hit in found["hits"]]


def test_hits_are_in_time_and_know_their_place() -> None:
    found = search(scene_of(two_steps()), "ALL-reduce", 0, 100)
    assert found["total"] == 2
    assert found["hits"] == [
        {"lane": 1, "depth": 0, "start_us": 8.0, "duration_us": 6.0, "name": "all-reduce.1",
         "readable": "all-reduce 32 B"},
        {"lane": 1, "depth": 0, "start_us": 22.0, "duration_us": 6.0, "name": "all-reduce.1",
         "readable": "all-reduce 32 B"},
    ]  # fmt: skip


def test_kernels_are_found_by_their_names_and_by_all_words() -> None:
    scene = scene_of(two_steps())
    assert starts(search(scene, "nccl ring", 0, 100)) == [8.0, 22.0]
    assert search(scene, "nccl tree", 0, 100) == {"total": 0, "best": 0, "hits": []}
    assert search(scene, "  ", 0, 100)["hits"] == []


def test_host_events_are_found_at_their_depth() -> None:
    (hit,) = search(scene_of(two_steps()), "inner", 0, 100)["hits"]
    assert (hit["lane"], hit["depth"], hit["start_us"]) == (2, 1, 1.0)


def test_of_too_many_those_in_sight_come_first_then_the_longest() -> None:
    built = profile()
    for i in range(MAX_HITS + 50):
        built.kernel("dot.1", 2 if i % 3 else 3)
    whole = search(scene_of(built.build()), "dot", 0, 4)
    assert whole["total"] == MAX_HITS + 50 and len(whole["hits"]) == MAX_HITS
    assert starts(whole)[:2] == [0.0, 3.0]
    # In sight: the first of 3 µs and the second of 2 µs; all others of 3 µs come before those of 2.
    long = sum(hit["duration_us"] == 3 for hit in whole["hits"])
    assert long == (MAX_HITS + 50 + 2) // 3
    assert whole["best"] == 0


def test_devices_come_before_hosts() -> None:
    built = profile().kernel("dot.1", 2).host_event("dot", 0, 90).build()
    found = search(scene_of(built), "dot", 0, 100)
    assert found["hits"][found["best"]]["name"] == "dot.1"
