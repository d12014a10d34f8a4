"""Lanes of one or more profiles on one axis, and the message that carries them."""

import json
from typing import Any

import numpy as np
import pytest

from builders import profile
from slipstream.profile.profile import Profile
from slipstream.serve.encoding import COLUMNS, slices
from slipstream.serve.scene import KINDS, STRUCTURE_KINDS, Scene, members_of


def two_steps(first_us: float = 0, us: float = 10) -> Profile:
    built = profile().at(first_us)
    for step in range(2):
        if step:
            built.execution_of()
        built.kernel("dot.1", us).all_reduce(6, hidden=2)
    return built.host_event("train", first_us, 5).host_event("inner", first_us + 1, 2).build()


def scene_of(*profiles: Profile, aligned: bool = True) -> Scene:
    names = [f"runs/{letter}.xplane.pb" for letter in "abc"[: len(profiles)]]
    return Scene(members_of(names, profiles, aligned))


def unpacked(message: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and columns, as the page reads them."""
    length = int.from_bytes(message[:8], "little")
    header = json.loads(message[8 : 8 + length])
    rows, at, columns = sum(count for _, count in header["lanes"]), 8 + length, {}
    for name, kind in COLUMNS:
        size = rows * np.dtype(kind).itemsize
        columns[name] = np.frombuffer(message[at : at + size], kind)
        at += size
    assert at == len(message)
    return header, columns


def test_lanes_are_grouped_by_device_and_host() -> None:
    found = [
        (lane.group, lane.name, len(lane.tracks), lane.collapsed)
        for lane in scene_of(two_steps()).lanes
    ]
    assert found == [
        ("GPU:0 · NVIDIA H200", "Stream #14", 1, False),
        ("GPU:0 · NVIDIA H200", "Stream #20", 1, False),
        ("host · threads", "python", 2, True),
    ]


def test_the_message_has_every_slice() -> None:
    scene = scene_of(two_steps())
    header, columns = unpacked(slices(scene, 0, scene.span_us, 1000, range(3)))
    assert header == {
        "names": ["dot.1", "all-reduce.1", "train", "inner"],
        "readable": ["", "", "", ""],
        "descriptions": ["", "", "", ""],
        "kinds": [*KINDS, *STRUCTURE_KINDS],
        "lanes": [[0, 2], [1, 2], [2, 2]],
        "steps": [[0, 0, 0.0, 14.0], [0, 1, 14.0, 28.0]],
    }
    assert {name: column.tolist() for name, column in columns.items()} == {
        "start": [0, 14, 8, 22, 0, 1],
        "duration": [10, 10, 6, 6, 5, 2],
        "name": [0, 0, 1, 1, 2, 3],
        "count": [1] * 6,
        "busy": [1] * 6,
        "kind": [0, 0, 1, 1, 3, 3],
        "depth": [0, 0, 0, 0, 0, 1],
    }


def test_names_are_explained_once_that_is_known() -> None:
    scene = scene_of(two_steps())
    assert scene.layers[0].names.searched
    header, _ = unpacked(slices(scene, 0, scene.span_us, 1000, [0, 1]))
    assert header["readable"] == ["x @ y", "all-reduce 32 B"]


def test_lanes_of_structure_come_after_all_others() -> None:
    scene = scene_of(two_steps())
    assert scene.all_lanes == scene.lanes
    assert [lane.name for lane in scene.structure_lanes] == ["module", "path"]
    header, columns = unpacked(slices(scene, 0, scene.span_us, 1000, [3]))
    assert (header["names"], header["lanes"]) == (["jit_step"], [[3, 2]])
    assert columns["start"].tolist() == [0, 14]
    kinds = [header["kinds"][kind] for kind in columns["kind"]]
    assert kinds == ["structure", "structure"]


def test_the_typical_step_is_the_one_of_median_length() -> None:
    assert scene_of(two_steps()).typical_step() == (0.0, 14.0)


def test_every_profile_has_its_steps() -> None:
    scene = scene_of(two_steps(100), two_steps(5, us=8))
    assert [row[:2] for row in scene.steps(0, scene.span_us, 9)] == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_only_lanes_asked_for_and_only_the_top_of_tops() -> None:
    scene = scene_of(two_steps())
    header, columns = unpacked(slices(scene, 0, scene.span_us, 1000, [1, 99], [2]))
    assert header["lanes"] == [[1, 2], [2, 1]]
    assert columns["depth"].tolist() == [0, 0, 0]


def test_blocks_are_called_after_their_longest() -> None:
    scene = scene_of(two_steps())
    header, columns = unpacked(slices(scene, 0, scene.span_us, 1, [0]))
    assert (columns["count"].tolist(), columns["busy"].tolist()) == ([2], [pytest.approx(20 / 24)])
    assert header["names"] == ["dot.1"]


def test_several_profiles_begin_their_first_steps_together() -> None:
    scene = scene_of(two_steps(100), two_steps(5, us=8))
    groups = [lane.group for lane in scene.lanes]
    assert groups[0] == "a · GPU:0 · NVIDIA H200" and groups[3] == "b · GPU:0 · NVIDIA H200"
    _, columns = unpacked(slices(scene, 0, scene.span_us, 1000, [0, 3]))
    assert columns["start"].tolist() == [0, 14, 0, 12]


def test_or_stand_where_their_clocks_put_them() -> None:
    scene = scene_of(two_steps(100), two_steps(5, us=8), aligned=False)
    _, columns = unpacked(slices(scene, 0, scene.span_us, 1000, [0, 3]))
    assert columns["start"].tolist() == [95, 109, 0, 12]


def test_names_of_paths_stay_apart() -> None:
    paths = ["x/run1/host.xplane.pb.gz", "x/run2/host.xplane.pb.gz"]
    names = [member.name for member in members_of(paths, [two_steps(), two_steps()], True)]
    assert names == ["run1/host", "run2/host"]
    twice = [m.name for m in members_of(["a.zip", "a.zip"], [two_steps(), two_steps()], True)]
    assert len(set(twice)) == 2


def test_steps_too_many_to_see_are_left_out() -> None:
    scene = scene_of(two_steps())
    assert scene.steps(0, 28, most=1) == []
    assert scene.steps(15, 28, most=1) == [[0, 1, 14.0, 28.0]]


def test_nothing_recorded_is_nothing_shown() -> None:
    scene = scene_of(Profile((), (), ()))
    assert scene.lanes == () and scene.span_us > 0
    assert unpacked(slices(scene, 0, 1, 10, [0]))[0]["lanes"] == []
