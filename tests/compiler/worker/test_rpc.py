"""Errors of a worker, as lines of JSON."""

import io
import json

from slipstream.compiler.worker.rpc import serve


class Worker:
    def slots(self) -> dict[str, object]:
        return (3).core_count  # an object without __dict__, as those of C++

    def module(self) -> dict[str, object]:
        return json.lods


def answers(*names: str) -> list[dict[str, object]]:
    requests = "".join(json.dumps({"do": name}) + "\n" for name in names)
    out = io.StringIO()
    serve(Worker(), io.StringIO(requests), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_an_attribute_that_is_missing():
    of_c, of_python = answers("slots", "module")
    assert (of_c["error"], of_c["names"]) == ("AttributeError", [])
    assert "loads" in of_python["names"]
    assert "JSONDecoder" not in of_python["names"]  # json imports it
