"""Costs from Nsight Systems, against the recording that the exports are made of."""

import io
import re
import statistics
import zipfile

import pyarrow.parquet as parquet
import pytest

from nsys_builder import FORMS, Process, export_of, write_dumps
from recorded import DATA, protos
from slipstream.costs.extract import extract_costs
from slipstream.costs.scheduler_names import lookup_name
from slipstream.sources.load import load


def costs_of(profile):
    return {name: cost.us for name, cost in extract_costs(profile).programs[0].costs.items()}


@pytest.mark.parametrize("name", ["off_lhs_nocb", "off_default"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_an_export_gives_the_costs_of_its_recording(form, name, tmp_path):
    recorded = load(DATA / f"{name}.xplane.pb.gz")
    path = export_of(recorded, form, (Process(threads=2),)).write(tmp_path / "run.sqlite")
    dumps = write_dumps(tmp_path / "dumps", protos(name))

    found = load(path, dumps=dumps)

    assert costs_of(found) == pytest.approx(costs_of(recorded), rel=1e-6)


def projected(path):
    """Microseconds of every range of the step's program, in order, by instruction."""
    with zipfile.ZipFile(path) as archive:
        data = io.BytesIO(archive.read("nvtx_gpu_proj_trace/trace.parquet"))
    rows = [row for row in parquet.read_table(data).to_pylist() if row["Name"]]
    steps = {r["RangeId"] for r in rows if "pjit__wrapped_step_fn,program_id=40#" in r["Name"]}
    found = {}
    for row in sorted(rows, key=lambda row: row["Projected Start"]):
        op = re.search(r"Thunk:#.*hlo_op=([^#]+)#", row["Name"])
        if op and row["ParentId"] in steps:
            found.setdefault(op.group(1), []).append(row["Projected Duration"] / 1000)
    return found


def test_the_costs_of_an_archive_are_medians_of_its_projection(external):
    """One range an execution, once a step: a plain median over the Parquet must agree."""
    path = external / "nsysjax_pax_fsdp4_a100_proc0.zip"
    profile = load(path)
    program = profile.programs["pjit__wrapped_step_fn(40)"]
    (costs,) = (p.costs for p in extract_costs(profile).programs if p.program.endswith("fn(40)"))

    compared = 0
    for op, times in projected(path).items():
        name = lookup_name(program, op)
        if program.executions(op) == 1 and len(times) == 5:
            # The first step of the recording is warm-up where it is much slower than the others.
            wanted = {statistics.median(times), statistics.median(times[1:])}
            assert any(costs[name].us == pytest.approx(us, rel=1e-6) for us in wanted), name
            compared += 1
    assert compared > 500
