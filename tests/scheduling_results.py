"""A made-up result of `schedule`, with text that pages have to escape."""

from slipstream.results.scheduling import (
    PASS,
    LayerEvent,
    LayerTimelines,
    MovedOperation,
    ScheduledStep,
    Scheduling,
    TriedBase,
)

LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"


def made_up_scheduling() -> Scheduling:
    moved = MovedOperation(
        "all-gather-start.3", "gather <W>", "train.py:31", "body", 12, 4, (900.0, 100.0)
    )
    late = (
        LayerEvent("fusion.1", "mlp", "compute", 0.0, 60.0, False),
        LayerEvent("all-gather-start.3", "gather <W>", "collectives", 60.0, 100.0, True),
        LayerEvent("copy-start.1", "offload", "copies", 10.0, 30.0, False),
    )
    early = (late[0], LayerEvent("all-gather-start.3", "gather <W>", "collectives", 0, 40.0, True))
    return Scheduling(
        "8x8xH200",
        "jit_step",
        "f00d",
        ScheduledStep(2000.0, 800.0, 0.0, 2 << 30),
        ScheduledStep(1800.0, 600.0, 10.0, 2 << 30),
        ScheduledStep(1300.0, 100.0, 0.0, None),
        1200.0,
        PASS,
        True,
        "up to 2 collectives at once",
        {LIMIT: "2"},
        (moved,),
        LayerTimelines("body", "one turn of while.3", 12, late, early),
        (
            TriedBase("XLA's program", {}, 2000.0, 1500.0, 1400.0),
            TriedBase("up to 2 collectives at once", {LIMIT: "2"}, 1900.0, 1300.0, 1200.0),
            TriedBase("up to 4 collectives at once", {LIMIT: "4"}, note="XLA: out of memory"),
        ),
        3.5,
        versions={"jaxlib": "0.12.0"},
    )
