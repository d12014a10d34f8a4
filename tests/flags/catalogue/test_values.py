"""What lint says of a value is what the installed jaxlib does with it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import pytest

from slipstream.flags.catalogue.catalogue import Flag, installed_catalogue
from slipstream.flags.catalogue.history import catalogue_of
from slipstream.flags.catalogue.probe import Probe
from slipstream.flags.catalogue.release_grammars import (
    DATA,
    flag_grammar,
    harvested_releases,
    option_grammar,
)
from slipstream.flags.catalogue.values import flag_value_error, option_value_error, repaired_value
from slipstream.flags.lint.findings import FAILING
from slipstream.flags.lint.lint import lint
from slipstream.flags.settings import read_environment, read_text

START = "from jaxlib import xla_client; xla_client.CompileOptions()"
HERE = version("jaxlib")
FRESH, FORKED, OPTIONS = 28, 1092, 400
STRINGS = (
    "--xla_gpu_enable_pipelined_p2p",
    "--xla_gpu_autotune_level",
    "--xla_dump_to",
    "--xla_dump_to=",
    "--xla_gpu_enable_triton_gemm=false--xla_gpu_autotune_level=3",
    "-xla_gpu_autotune_level=3",
    "--xla_gpu_autotune_level=3 stray --xla_gpu_triton_gemm_any=true",
    "stray --xla_gpu_autotune_level=3",
)
PLAIN = (
    *("", "true", "TRUE", "False", "yes", "on", "1", "0", "-1", "+3", "007", "0x1F", "1e9", "1.5"),
    *(".5", "3k", "1_000", "inf", "nan", "2147483648", "-2147483649", "9223372036854775808", "a"),
    *("a,b", ",", "a=1", "a=1,b=2", "10s", "1h30m", "1d", "4:7", "7:4", "1,4:7", "xyzzy", "-", "+"),
)


def values_of(flag: Flag, chance: random.Random) -> Iterator[str]:
    """Values that people might write; many, not all, were tried by the harvest too."""
    yield from chance.sample(PLAIN, 3)
    yield str(chance.randint(-(2**33), 2**33))
    if flag.enum_values:
        members = [chance.choice(flag.enum_values) for _ in range(3)]
        words = [member.split("_") for member in members]
        ends = ["_".join(word[chance.randrange(len(word)) :]) for word in words]
        for spelt in (members[0], ends[0]):
            yield chance.choice([spelt, spelt.lower(), spelt.upper(), spelt.title()])
        yield ",".join(chance.choice(["", "", "+", "-"]) + end for end in ends)
        yield chance.choice([",", ", ", ";", ",,"]).join([members[1], members[2]])
        yield ",".join(chance.choice("+-") + member for member in members)
        yield members[0] + chance.choice("_xS9")


def pairs(count: int, seed: int, is_option: bool = False) -> list[tuple[Flag, str]]:
    """Random flags with random values; half of the flags have words of their own."""
    chance = random.Random(seed)
    flags = [
        flag
        for flag in installed_catalogue().flags.values()
        if (flag.in_compiler_options if is_option else flag.in_xla_flags)
    ]
    special = [flag for flag in flags if flag.enum_values or flag.kind in ("unknown", "string")]
    found: dict[tuple[str, str], tuple[Flag, str]] = {}
    while len(found) < count:
        flag = chance.choice(chance.choice([flags, special]))
        value = chance.choice(list(values_of(flag, chance)))
        if "'" not in value:
            found[flag.name, value] = (flag, value)
    return list(found.values())


def written(flag: Flag, value: str) -> str:
    return f"--{flag.name}='{value}'" if " " in value else f"--{flag.name}={value}"


def verdicts(strings: list[str]) -> list[bool]:
    catalogue = installed_catalogue()
    return [
        any(f.severity in FAILING for f in lint(read_environment({"XLA_FLAGS": s}), catalogue))
        for s in strings
    ]


def test_lint_agrees_with_processes_started_for_it() -> None:
    """One process each, from nothing: what a job would see. So few suffice to trust forked ones."""
    strings = [*STRINGS, *(written(*pair) for pair in pairs(FRESH, 1))]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        ended = list(pool.map(_ends, strings))
    assert 5 < sum(ended) < len(ended) - 5
    assert Probe().aborts(strings) == ended
    assert dict(zip(strings, verdicts(strings), strict=True)) == dict(
        zip(strings, ended, strict=True)
    )


def test_lint_agrees_with_many_more_that_are_forked() -> None:
    """Once jaxlib is loaded, a process takes milliseconds."""
    strings = [written(*pair) for pair in pairs(FORKED, 2)]
    assert dict(zip(strings, verdicts(strings), strict=True)) == dict(
        zip(strings, Probe().aborts(strings), strict=True)
    )


def _ends(flags: str) -> bool:
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", START], env=environment, capture_output=True)
    return done.returncode != 0


COMPILE = """
import ast, json, sys
import jax

def refused(name, value):
    # The second option is refused as well, but only once the first was read.
    try:
        lowered.compile(compiler_options={name: ast.literal_eval(value), "xla_nope": "1"})
    except Exception as error:
        return "xla_nope" not in str(error)

lowered = jax.jit(lambda x: x + 1).lower(1.0)
print(json.dumps([refused(*pair) for pair in json.load(sys.stdin)]))
"""


def test_lint_agrees_with_compile_options() -> None:
    """Texts, and Python's own True, 3 and 0.5, which are not taken for texts."""
    typed = [(f, repr(v)) for f, v in pairs(OPTIONS, 3, is_option=True) if "\\" not in v]
    bare = ("True", "False", "3", "-1", "0.5")
    typed += [(flag, bare[at % len(bare)]) for at, (flag, _) in enumerate(typed[::3])]
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        input=json.dumps([(flag.name, value) for flag, value in typed]),
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    refused = json.loads(done.stdout.splitlines()[-1])
    said = [_option_fails(flag, value) for flag, value in typed]
    named = [f"{flag.name}: {value}" for flag, value in typed]
    assert 100 < sum(refused) < len(refused) - 100
    assert dict(zip(named, said, strict=True)) == dict(zip(named, refused, strict=True))


def _option_fails(flag: Flag, value: str) -> bool:
    text = f'jit(f, compiler_options={{"{flag.name}": {value}}})'
    found = lint(read_text(text, "python"), installed_catalogue())
    return any(finding.severity in FAILING for finding in found)


def test_every_flag_of_this_jaxlib_was_tried() -> None:
    flags = [flag for flag in installed_catalogue().flags.values() if flag.in_xla_flags]
    assert HERE in harvested_releases()
    assert [flag.name for flag in flags if not flag_grammar(flag, HERE).is_tested] == []
    options = [f for f in installed_catalogue().flags.values() if f.in_compiler_options]
    assert [f.name for f in options if not option_grammar(f, HERE)[0].is_tested] == []
    tested = json.loads(DATA.read_text())[HERE]
    assert min(tested["tried"], tested["options_tried"]) > 10_000


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("xla_gpu_detect_nan", "DETECTION_MODE_FAIL", "fail"),
        ("xla_gpu_pgle_accuracy_checker", "error", "PGLE_STRICTNESS_LEVEL_ERROR"),
        ("xla_gpu_disable_async_collectives", "ALLGATHER, ALLREDUCE,", "ALLGATHER,ALLREDUCE"),
        ("xla_gpu_all_reduce_combine_threshold_bytes", "1GiB", "1073741824"),
        ("xla_gpu_autotune_level", "1e99", None),
        ("xla_gpu_triton_gemm_any", "On", "true"),
    ],
)
def test_what_was_meant(name: str, value: str, meant: str | None) -> None:
    flag = catalogue_of("0.10.2").flags[name]
    found = repaired_value(flag, value, False, "0.10.2")
    assert (found or "").lower() == (meant or "").lower()


def test_another_release_goes_by_the_nearest_that_was_tried() -> None:
    flag = catalogue_of("0.10.1").flags["xla_gpu_detect_nan"]
    said = flag_value_error(flag, "DETECTION_MODE_FAIL", "0.10.1")
    assert said is not None
    assert said.endswith("(as in jaxlib 0.10.2; not tested with 0.10.1)")
    assert flag_value_error(flag, "fail", "0.10.1") is None


def test_members_that_the_tried_release_lacks_pass() -> None:
    flag = catalogue_of("0.10.1").flags["xla_gpu_detect_nan"]
    newer = Flag(flag.name, flag.kind, flag.default, (*flag.enum_values, "DETECTION_MODE_NEW"))
    assert flag_value_error(newer, "new", "0.10.1") is None
    assert flag_value_error(newer, "old", "0.10.1") is not None


def test_enums_have_no_names_in_old_compile_options() -> None:
    flag = catalogue_of("0.5.0").flags["xla_gpu_shape_checks"]
    assert option_value_error(flag, "RUNTIME", "0.5.0") is not None
    assert option_value_error(flag, "1", "0.5.0") is None
    assert option_value_error(flag, "RUNTIME", "0.6.0") is None
