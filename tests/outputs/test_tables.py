from __future__ import annotations

import pyarrow.parquet
import pytest

from outputs.results import small_profile
from slipstream.errors import Missing
from slipstream.outputs import tables

FIRST = {
    "start_ps": 1_000_000,
    "duration_ps": 10_000_000,
    "lane": 0,
    "name": "gemm_kernel",
    "op": "dot.1",
    "program": "jit_step(1)",
    "details": "grid:4",
    "correlation": 0,
    "graph": 0,
    "graph_node": 0,
    "instruction": "dot.1",
    "execution": 0,
    "lane_name": "Stream #14(Compute)",
    "device": "/device:GPU:0",
    "host": "worker-0",
}


def test_parquet(tmp_path):
    tables.write_parquet(small_profile(), tmp_path / "a.parquet")
    rows = pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert rows[0] == FIRST
    assert [row["name"] for row in rows] == [
        "gemm_kernel",
        "gemm_kernel",
        "side_kernel",
        "MemcpyD2H",
    ]


def test_csv(tmp_path):
    tables.write_csv(small_profile(), tmp_path / "a.csv", "host_events")
    assert (tmp_path / "a.csv").read_text() == (
        "start_ps,duration_ps,lane,name,correlation,step,is_step,lane_name,device,host\n"
        "0,30000000,2,train,0,0,False,python,,worker-0\n"
        "0,8000000,2,PjitFunction(step),0,0,False,python,,worker-0\n"
        "8000000,0,2,marker,0,0,False,python,,worker-0\n"
        "8000000,22000000,2,wait,0,0,False,python,,worker-0\n"
        '9000000,1000000,2,"said ""so"", twice",0,0,False,python,,worker-0\n'
    )


def test_host_events_have_no_device(tmp_path):
    profile = small_profile()
    assert set(tables.arrow_table(profile, profile.host_events)["device"].to_pylist()) == {None}


def test_an_empty_table(tmp_path):
    tables.write_parquet(small_profile(), tmp_path / "a.parquet", "transfers")
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet").num_rows == 0


def test_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(Missing, match=r"pip install 'slipstream\[parquet\]'"):
        tables.write_parquet(small_profile(), tmp_path / "a.parquet")
