"""Forms of YAML and JSON that job files use; each flag is where its span says."""

from __future__ import annotations

import json

import pytest

from slipstream.flags.lint.findings import LintFinding
from slipstream.flags.lint.rewrite import apply_fixes
from slipstream.flags.settings import Setting, read_text

FLOW_OVER_LINES = """containers: [
  {name: train,
   env: [
     {name: XLA_FLAGS,
      value: "--xla_a=1
              --xla_b=2"},
     {name: NCCL_PROTO, value: LL},   # a comment
   ]},
]
"""

FOLDED = """env:
  XLA_FLAGS: >
    --xla_a=1
    --xla_b=2

      --xla_c=3
    --xla_d=4
  NCCL_DEBUG: INFO
"""

ANCHORS = """.common: &common
  XLA_FLAGS: &flags --xla_a=1   # a comment
  NCCL_DEBUG: !!str INFO
first:
  <<: *common
second:
  env:
  - {name: XLA_FLAGS, value: *flags}
  - &shared "NCCL_PROTO=LL"
third: [*shared]
"""

COMMENTS = """XLA_FLAGS: "--xla_a=1"  # --xla_commented=1
NCCL_DEBUG: INFO  # or WARN
# NCCL_ALGO: Ring
NCCL_PROTO: LL
"""

INDICATORS = """args:
- |2-
    export XLA_FLAGS="--xla_a=1 \\
      --xla_b=2"
- >+
  XLA_FLAGS=--xla_c=3
  python train.py

- "XLA_FLAGS=\\"--xla_d=4\\" python \\
  train.py"
"""


def seen(found: list[Setting]) -> list[tuple[str, str | None]]:
    return [(one.name, one.value) for one in found]


def is_where_it_says(text: str, found: list[Setting]) -> bool:
    spans = [(one, one.place.span) for one in found]
    return all(span is not None and text[slice(*span)] == one.text for one, span in spans)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff", "%YAML 1.1\n---\n"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FLOW_OVER_LINES, "xla_a=1 xla_b=2 NCCL_PROTO=LL"),
        (FOLDED, "xla_a=1 xla_b=2 xla_c=3 xla_d=4 NCCL_DEBUG=INFO"),
        (ANCHORS, "xla_a=1 NCCL_DEBUG=INFO xla_a=1 NCCL_PROTO=LL"),
        (COMMENTS, "xla_a=1 NCCL_DEBUG=INFO NCCL_PROTO=LL"),
        (INDICATORS, "xla_a=1 xla_b=2 xla_c=3 xla_d=4"),
    ],
)
def test_forms_of_yaml(text: str, expected: str, start: str, newline: str) -> None:
    text = (start + text).replace("\n", newline)
    found = read_text(text, "yaml")
    assert " ".join(f"{name}={value}" for name, value in seen(found)) == expected
    assert is_where_it_says(text, found)
    for one in found:
        if one.name.startswith("xla_"):
            assert one.text == f"--{one.name}={one.value}"


@pytest.mark.parametrize("indent", [None, 2, "\t"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_json(indent: int | str | None, newline: str) -> None:
    job = {
        "env": {"XLA_FLAGS": "--xla_a=1\n--xla_b=é --xla_c=2", "NCCL_DEBUG": "INFO"},
        "command": ["bash", "-c", 'XLA_FLAGS="--xla_d=4 --xla_e" python train.py'],
    }
    text = json.dumps(job, indent=indent).replace("\n", newline)
    found = read_text(text, "yaml")
    assert seen(found) == [
        *(("xla_a", "1"), ("xla_b", "é"), ("xla_c", "2"), ("NCCL_DEBUG", "INFO")),
        *(("xla_d", "4"), ("xla_e", None)),
    ]
    assert is_where_it_says(text, found)


@pytest.mark.parametrize("text", [FLOW_OVER_LINES, FOLDED, ANCHORS, INDICATORS])
def test_a_fix_changes_one_flag_and_nothing_else(text: str) -> None:
    found = read_text(text, "yaml")
    for one in found:
        if one.name.startswith("xla_"):
            finding = LintFinding("malformed", "abort", one.name, "", one.place, "--xla_new=9")
            fixed = apply_fixes(text, [finding], "yaml")
            assert fixed == text.replace(one.text, "--xla_new=9")
            assert ("xla_new", "9") in seen(read_text(fixed, "yaml"))


def test_nested_aliases_are_visited_once() -> None:
    lines = ['a0: &a0 ["XLA_FLAGS=--xla_a=1"]']
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    # Each visit of each would take longer than anybody can wait.
    assert seen(read_text("\n".join(lines), "yaml")) == [("xla_a", "1")]


def test_deep_nesting_is_no_crash() -> None:
    text = "[" * 5000 + '"XLA_FLAGS=--xla_a=1"' + "]" * 5000
    assert any("--xla_a=1" in one.text for one in read_text(text, "yaml"))
