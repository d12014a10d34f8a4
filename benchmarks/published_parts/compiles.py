"""One published step as several compiles have it, on the stated network and on half of its rate.

The compiles hardly differ, but the program is at XLA's memory limit, so they decide what XLA hides
and whether it recomputes.  `tests/data/published/README.md` says how they were made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slipstream.machines.power import activity
from slipstream.machines.topology import machine
from slipstream.results.prediction import Prediction
from slipstream.simulate.prediction import predict
from slipstream.sources.hlo.reader import read_program


def page(folder: Path, stated: Mapping[str, Any]) -> Iterator[str]:
    """The table, line by line."""
    where = replace(machine(stated["machine"]), activity=activity(stated["values"]))
    network = where.network
    halved = replace(where, network=replace(network, bandwidth=network.bandwidth / 2))
    measured = stated["seconds"]
    yield f"{stated['name']}, {stated['machine']}: {measured:.3f} s measured"
    rates = [f"8 × {network.bandwidth * 8 / 1e9 / part:.0f} Gb/s a host" for part in (1, 2)]
    against = f"{'predicted':>13}{'error':>8}"
    yield f"{'':54}{rates[0]:>21}{rates[1]:>21}"
    yield f"{'':36}{'compute':>9}{'exposed':>9}{against}{against}"
    for one in stated["files"]:
        program = read_program(folder / one["file"])
        whole, half = (predict(program, on) for on in (where, halved))
        yield (
            f"{one['name']:36}{whole.compute_us / 1e6:>7.1f} s"
            f"{whole.exposed_communication_us / 1e6:>7.1f} s{_against(whole, measured)}"
            f"{_against(half, measured)}"
        )


def _against(found: Prediction, measured: float) -> str:
    seconds = found.step_us / 1e6
    return f"{seconds:>11.1f} s{seconds / measured - 1:>+8.1%}"
