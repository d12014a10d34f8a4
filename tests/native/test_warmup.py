"""Every native function is compiled beforehand, and known to those who look for all of them."""

import re
from pathlib import Path

import slipstream
from slipstream.native.warmup import native_functions


def test_no_native_function_is_left_out() -> None:
    source = Path(slipstream.__file__).parent
    stated = {
        ".".join(("slipstream", *path.relative_to(source).with_suffix("").parts))
        for path in source.rglob("*.py")
        if re.search(r"^(@|\w+ = )native\(", path.read_text(), re.M)
    }
    assert {function.python.__module__ for function in native_functions()} == stated
