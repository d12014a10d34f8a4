"""What nccl-tests prints and what profiles record, as curves."""

from pathlib import Path

import pytest

from slipstream import load
from slipstream.costs.extract import extract_costs
from slipstream.errors import BadInput
from slipstream.machines.calibrate import device_of, is_text, nccl_tests, program_curves
from slipstream.machines.collectives import CollectiveCurve
from slipstream.machines.nccl import Group
from slipstream.machines.topology import machine

HEADER = """\
# nccl-tests version 2.17.9 nccl-headers=22602 nccl-library=22602
# Collective test starting: {name}_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
"""
RANK = "#  Rank {rank:2d} Group  0 Pid {pid} on    {host} device  {rank} [0000:29:00] NVIDIA H200\n"
COLUMNS = """\
#
#                                   out-of-place                   in-place
#  size  count  type  redop  root   time  algbw  busbw #wrong   time  algbw  busbw #wrong
#   (B)  (elements)                 (us) (GB/s) (GB/s)          (us) (GB/s) (GB/s)
"""
FOOTER = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 110.727 \n#\n"
GATHER = """\
  0  0  float  none  -1  0.89  0.00  0.00  0  0.95  0.00  0.00  0
  1048576  65536  float  none  -1  40.10  26.15  22.88  0  40.35  25.99  22.74  0
  2097152  131072  float  none  -1  40.85  51.34  44.93  N/A  40.03  52.39  45.84  N/A
  1073741824  67108864  float  none  -1  2726.63  393.80  344.57  0  2707.37  396.60  347.02  0
"""


def printed(name: str, rows: str, hosts: tuple[str, ...], gpus: int, before: str = "") -> str:
    ranks = "".join(
        RANK.format(rank=rank, pid=100 + rank, host=hosts[rank // gpus])
        for rank in range(gpus * len(hosts))
    )
    text = HEADER.format(name=name) + ranks + COLUMNS + rows + FOOTER
    return "".join(before + line for line in text.splitlines(keepends=True))


@pytest.mark.parametrize("before", ["", "0: ", "[1,0]<stdout>:"])
def test_all_columns_with_and_without_a_launchers_words(before: str) -> None:
    text = printed("all_gather", GATHER, ("a",), 4, before)
    assert nccl_tests(text, "ag.txt") == [
        CollectiveCurve(
            "all-gather", Group(4), (2**20, 2**21, 2**30), (40.10, 40.85, 2726.63), "ag.txt"
        )
    ]


def test_several_tests_in_one_file_on_several_hosts() -> None:
    reduce = "  1048576  262144  float  sum  -1  93.41  11.23  21.05  0  93.02  11.27  21.14  0\n"
    text = printed("all_gather", GATHER, ("a", "b"), 8) + printed(
        "all_reduce", reduce, ("a", "b"), 8
    )
    text += printed("sendrecv", reduce, ("a", "b"), 8)
    found = [(curve.kind, curve.group, curve.us[0]) for curve in nccl_tests(text, "x")]
    assert found == [
        ("all-gather", Group(16, 2), 40.10),
        ("all-reduce", Group(16, 2), 93.41),
        ("collective-permute", Group(2, 2), 93.41),
    ]


def test_hosts_of_a_rack_are_one() -> None:
    text = printed("all_gather", GATHER, ("a", "b"), 4)
    assert nccl_tests(text, "x", link_domain=72)[0].group == Group(8, 1)


def test_old_versions_have_no_root_column_and_print_the_error() -> None:
    rows = "  1048576  262144  float  sum  309.4  3.39  6.35  2e-07  307.3  3.41  6.40  1e-07\n"
    text = printed("all_reduce", rows, ("a",), 8)
    assert nccl_tests(text, "x")[0].us == (309.4,)


def test_without_a_header_reductions_tell_by_their_columns() -> None:
    all_reduce = (
        "  8388608  2097152  float  sum  -1  81.28  103.2  180.6  0  79.5  105.4  184.5  0\n"
    )
    scatter = "  8388608  262144  float  sum  -1  50.44  166.3  145.5  0  50.1  167.2  146.3  0\n"
    assert nccl_tests("# nThread 1 nGpus 8\n" + all_reduce, "x")[0].kind == "all-reduce"
    found = nccl_tests(scatter, "x")[0]
    assert (found.kind, found.group) == ("reduce-scatter", Group(8))
    gather = scatter.replace("sum", "none")
    with pytest.raises(BadInput, match="name it with --kind, one of: all-gather"):
        nccl_tests(gather, "x")
    assert nccl_tests(gather, "x", kind="all-gather")[0].group == Group(8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no nccl-tests rows"),
        ("  8388608  2097152  float  sum  -1  81.28  103.2  180.6  0\n", "how many GPUs took part"),
        (
            printed("all_gather", GATHER.replace("22.88  0", "22.88  7"), ("a",), 4),
            "7 wrong values in a 1048576-byte collective; the fabric corrupts data",
        ),
    ],
)
def test_what_cannot_be_used(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        nccl_tests(text, "x", kind="all-reduce")


def test_the_gpu_is_in_the_text(tmp_path: Path, data: Path) -> None:
    text = tmp_path / "ag.txt"
    text.write_text(printed("all_gather", GATHER, ("a",), 4))
    assert device_of([str(text)]) == "NVIDIA H200"
    recording = str(data / "nccl2_lhs_r0.xplane.pb.gz")
    assert not is_text(recording)
    with pytest.raises(BadInput, match="name it with --gpu"):
        device_of([recording])
    with pytest.raises(BadInput, match="can't read nowhere: no such file"):
        is_text("nowhere")


def test_collectives_of_a_recording(data: Path) -> None:
    profile = load(data / "nccl2_lhs_r0.xplane.pb.gz")
    costs = max(extract_costs(profile).programs, key=lambda program: program.total_us)
    times = {name: cost.us for name, cost in costs.costs.items()}
    program = profile.programs[costs.program]
    curves = program_curves(program, times, machine("2x1xH200"), "recording")
    assert {curve.kind for curve in curves} >= {"all-gather", "reduce-scatter"}
    assert {curve.group for curve in curves} == {Group(2, 2)}
    for curve in curves:
        assert list(curve.bytes) == sorted(curve.bytes)
        assert min(times.values()) <= min(curve.us) <= max(curve.us) <= max(times.values())
