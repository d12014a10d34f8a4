"""The catalogue says what the library really does: asked of the compiler itself."""

import json
import os
import random
import subprocess
import sys

import pytest

from slipstream.did_you_mean import close_matches
from slipstream.errors import Missing
from slipstream.flags.catalogue import catalogue, history, installed, jaxlib_library
from slipstream.flags.catalogue.catalogue import (
    SIMILAR,
    Catalogue,
    Flag,
    default_catalogue,
    installed_catalogue,
)
from slipstream.flags.catalogue.history import catalogue_of, newest_version
from slipstream.flags.catalogue.probe import Probe

MUTATIONS = 100

COMPILE = """
import json, sys
import jax

def complaint(options):
    try:
        lowered.compile(compiler_options=options)
    except Exception as error:
        return str(error)
    return ""

lowered = jax.jit(lambda x: x + 1).lower(1.0)
asked = json.load(sys.stdin)
print(json.dumps([complaint(options) for options in asked]))
"""


def complaints(asked: list[dict[str, str]]) -> list[str]:
    """What a real compile says about each set of `compiler_options`; empty if it worked."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        input=json.dumps(asked),
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def option(flag: Flag) -> str:
    assert flag.default is not None, flag
    return flag.default.capitalize() if flag.kind == "bool" else flag.default


def mutated(names: list[str], count: int) -> list[str]:
    """Names that differ by one letter from a flag, and are none."""
    chance = random.Random(4)
    found: set[str] = set()
    while len(found) < count:
        name = chance.choice(names)
        at = chance.randrange(4, len(name))
        letter = chance.choice("abcdefghijklmnopqrstuvwxyz")
        changed = chance.choice(
            [name[:at] + name[at + 1 :], name[:at] + letter + name[at:], name + letter]
        )
        if changed not in names:
            found.add(changed)
    return sorted(found)


@pytest.fixture(scope="module")
def here() -> Catalogue:
    return installed_catalogue()


def test_every_compile_option_is_accepted_and_mutations_are_refused(here):
    options = {f.name: option(f) for f in here.flags.values() if f.in_compiler_options}
    wrong = mutated(sorted(here.flags), MUTATIONS)

    whole, *refused = complaints([options, *({name: "True"} for name in wrong)])

    assert len(options) > 250
    assert whole == ""
    taken = [n for n, text in zip(wrong, refused, strict=True) if "No such compile" not in text]
    assert taken == []


def test_what_is_no_compile_option_is_refused(here):
    others = [name for name, flag in here.flags.items() if not flag.in_compiler_options]

    said = complaints([{name: "1"} for name in others])

    assert others and all(said)


def test_xla_flags_accepts_what_is_listed_and_refuses_the_rest(here):
    refused = {name for name, flag in here.flags.items() if not flag.in_xla_flags}
    wrong = set(mutated(sorted(here.flags), MUTATIONS))
    plain = {n for n, f in here.flags.items() if f.in_xla_flags and f.kind in ("bool", "int64")}
    values = {name: installed._value(here.flags[name].default) for name in refused | plain}

    accepted = Probe().accepted({**values, **dict.fromkeys(wrong, "1")})

    assert len(plain) > 100
    assert accepted == plain


def test_types_defaults_and_values(here):
    threshold = here.flags["xla_gpu_all_gather_combine_threshold_bytes"]
    graphs = here.flags["xla_gpu_enable_command_buffer"]
    checker = here.flags["xla_gpu_pgle_accuracy_checker"]

    assert threshold == Flag(threshold.name, "int64", "31457287", (), False, True, True)
    assert (graphs.kind, "FUSION" in graphs.default.split(",")) == ("repeated enum", True)
    assert checker.default == "PGLE_STRICTNESS_LEVEL_WARN"
    assert checker.enum_values[0] == "PGLE_STRICTNESS_LEVEL_OFF"
    assert here.flags["xla_gpu_analytical_latency_estimator_options"].in_compiler_options is False
    assert "xla_gpu_graph_level" in here.removed
    assert close_matches("xla_gpu_enable_triton_gem", here.flags, cutoff=SIMILAR) == (
        "xla_gpu_enable_triton_gemm",
    )


def test_a_field_is_not_yet_a_flag_nor_a_flag_a_field(here):
    field = here.flags["xla_gpu_executable_warn_stuck_timeout_seconds"]
    flag = here.flags["xla_gpu_enable_cudnn_fmha"]

    assert (field.in_xla_flags, field.in_compiler_options) == (False, True)
    assert (flag.kind, flag.in_xla_flags, flag.in_compiler_options) == ("unknown", True, False)


def test_history_agrees_with_the_library(here):
    """Harvested from the wheel, on another day: the library, started here, says the same."""
    known = catalogue_of(here.jaxlib_version)

    asked = installed.read_catalogue(jaxlib_library.installed_library(), Probe(), known.flags)

    assert dict(asked.flags) == dict(known.flags)


def test_a_library_that_differs_from_its_release_is_asked(monkeypatch):
    found = jaxlib_library.installed_library()
    other = {**catalogue_of(found.version).flags}
    del other["xla_dump_to"]

    assert installed.harvested(found) == catalogue_of(found.version)
    assert installed.harvested(jaxlib_library.JaxlibLibrary("0.4.18", found.path)) is None
    monkeypatch.setattr(history, "catalogue_of", lambda version: Catalogue(version, other))
    assert installed.harvested(found) is None


def test_the_answer_is_kept_and_kept_apart_for_each_library(here, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(installed, "harvested", lambda _: asked.append(1) or here)

    assert installed.read_installed() == here
    assert installed.read_installed() == here
    assert len(asked) == 1
    (kept,) = (tmp_path / "slipstream").iterdir()
    kept.write_text("{")
    assert installed.read_installed() == here
    assert len(asked) == 2


def test_without_jaxlib_the_newest_release_is_shown(monkeypatch):
    def absent():
        raise Missing("no jaxlib")

    monkeypatch.setattr(catalogue, "installed_catalogue", absent)

    assert default_catalogue().jaxlib_version == newest_version()


def test_no_jaxlib_names_the_line_that_installs_it(monkeypatch):
    from importlib import metadata

    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)

    with pytest.raises(Missing, match="pip install jax"):
        jaxlib_library.installed_library()
