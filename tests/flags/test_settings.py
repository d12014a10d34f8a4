"""Settings are found wherever people write them, each at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.errors import BadInput
from slipstream.flags.settings import Setting, read_environment, read_settings, read_text


def said(found: list[Setting]) -> list[tuple[str, str, str | None]]:
    return [(one.kind, one.name, one.value) for one in found]


def is_where_it_says(text: str, found: list[Setting]) -> bool:
    spans = [one.place.span for one in found]
    return all(
        s is not None and text[slice(*s)] == f.text for s, f in zip(spans, found, strict=True)
    )


SHELL = r"""#!/bin/bash
#SBATCH --export=ALL,NCCL_DEBUG=INFO
# export XLA_FLAGS=--xla_commented=1
export XLA_FLAGS="--xla_a=1 \
   --xla_b=true --xla_c='' $EXTRA"
XLA_FLAGS="${XLA_FLAGS} --xla_b=false"
docker run -e "XLA_FLAGS=--xla_q=1 --xla_r=$((1/2))" -e NCCL_PROTO=SIMPLE,LL image
CUDA_DEVICE_MAX_CONNECTIONS=1 srun python train.py --steps=3
"""


def test_shell() -> None:
    found = read_text(SHELL)
    assert said(found) == [
        ("env", "NCCL_DEBUG", "INFO"),
        ("xla_flags", "xla_a", "1"),
        ("xla_flags", "xla_b", "true"),
        ("xla_flags", "xla_c", ""),
        ("xla_flags", "xla_b", "false"),
        ("xla_flags", "xla_q", "1"),
        ("xla_flags", "xla_r", "$((1/2))"),
        ("env", "NCCL_PROTO", "SIMPLE,LL"),
        ("env", "CUDA_DEVICE_MAX_CONNECTIONS", "1"),
    ]
    assert is_where_it_says(SHELL, found)
    assert [one.is_known for one in found].count(False) == 1
    # An appended string is one with what it appends to; the container's is another.
    groups = [one.group for one in found if one.kind == "xla_flags"]
    assert groups == [1, 1, 1, 1, 2, 2]


def test_flags_kept_in_another_variable() -> None:
    text = 'BASE_XLA_FLAGS=${BASE_XLA_FLAGS:-"--xla_d=1\n  --xla_e"}\n'
    text += 'export XLA_FLAGS="$BASE_XLA_FLAGS --xla_d=2"\n'
    found = read_text(text)
    assert said(found) == [
        ("xla_flags", "xla_d", "1"),
        ("xla_flags", "xla_e", None),
        ("xla_flags", "xla_d", "2"),
    ]
    assert len({one.group for one in found}) == 1


def test_single_quotes_keep_the_backslash() -> None:
    found = read_text("export XLA_FLAGS='--xla_s=1 \\\n --xla_t=2'\n")
    assert [one.text for one in found] == ["--xla_s=1", "\\", "--xla_t=2"]


ENV = """# a comment
XLA_FLAGS=--xla_a=1 --xla_b=2 # why
NCCL_DEBUG = INFO
JAX_ENABLE_PGLE="true"
PATH=/usr/bin
"""


def test_env_file(tmp_path: Path) -> None:
    file = tmp_path / "job.env"
    file.write_text(ENV)
    found = read_settings(file)
    assert said(found) == [
        ("xla_flags", "xla_a", "1"),
        ("xla_flags", "xla_b", "2"),
        ("env", "NCCL_DEBUG", "INFO"),
        ("env", "JAX_ENABLE_PGLE", "true"),
    ]
    assert str(found[1].place) == f"{file}:2:21"


def test_env_file_that_a_shell_sources(tmp_path: Path) -> None:
    file = tmp_path / "common.env"
    file.write_text('set -x\nexport XLA_FLAGS="\\\n  --xla_a=1 \\\n  --xla_b= \\\n  "\n')
    assert said(read_settings(file)) == [("xla_flags", "xla_a", "1"), ("xla_flags", "xla_b", "")]


YAML = """env:
- name: XLA_FLAGS
  value: "--xla_a=1 --xla_b"
- name: NCCL_DEBUG
  value: INFO
env_vars:
  XLA_FLAGS: >-
    --xla_c=1
    --xla_d=2
  JAX_ENABLE_PGLE: true
command: |
  set -e
  export XLA_FLAGS="--xla_e=1"
  python train.py
environment:
  - XLA_FLAGS=--xla_f=1 --xla_g=2
steps: 30
"""


def test_yaml() -> None:
    found = read_text(YAML, "yaml")
    assert said(found) == [
        ("xla_flags", "xla_a", "1"),
        ("xla_flags", "xla_b", None),
        ("env", "NCCL_DEBUG", "INFO"),
        ("xla_flags", "xla_c", "1"),
        ("xla_flags", "xla_d", "2"),
        ("env", "JAX_ENABLE_PGLE", "true"),
        ("xla_flags", "xla_e", "1"),
        ("xla_flags", "xla_f", "1"),
        ("xla_flags", "xla_g", "2"),
    ]
    assert is_where_it_says(YAML, found)


def test_json() -> None:
    text = '{\n  "XLA_FLAGS": "--xla_a=1 --xla_b=2",\n  "NCCL_DEBUG": "INFO"\n}\n'
    assert said(read_text(text, "yaml")) == [
        ("xla_flags", "xla_a", "1"),
        ("xla_flags", "xla_b", "2"),
        ("env", "NCCL_DEBUG", "INFO"),
    ]


PYTHON = """
import os
os.environ["XLA_FLAGS"] = (
    '--xla_a=True '  # why 'this'
    "--xla_b=true"
    "--xla_c=1")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + f" --xla_d={x} --xla_é=1"
os.environ.setdefault("NCCL_DEBUG", "INFO")
os.environ.update({"NCCL_LL_BUFFSIZE": "-2", "XLA_FLAGS": " ".join(["--xla_e=1", "--xla_f=2"])})
jax.jit(f, compiler_options={"xla_gpu_a": True, 'xla_gpu_b': "true", "xla_gpu_c": n})
"""


def test_python() -> None:
    found = read_text(PYTHON, "python")
    assert said(found) == [
        ("xla_flags", "xla_a", "True"),
        ("xla_flags", "xla_b", "true--xla_c=1"),  # the blank between them is missing
        ("xla_flags", "xla_d", "{x}"),
        ("xla_flags", "xla_é", "1"),
        ("env", "NCCL_DEBUG", "INFO"),
        ("env", "NCCL_LL_BUFFSIZE", "-2"),
        ("xla_flags", "xla_e", "1"),
        ("xla_flags", "xla_f", "2"),
        ("compiler_options", "xla_gpu_a", "True"),
        ("compiler_options", "xla_gpu_b", "true"),
        ("compiler_options", "xla_gpu_c", "{n}"),
    ]
    assert is_where_it_says(PYTHON, found)
    assert [one.name for one in found if not one.is_known] == ["xla_d", "xla_gpu_c"]


def test_python_that_is_none() -> None:
    with pytest.raises(BadInput, match="line 1 is not Python"):
        read_text("export XLA_FLAGS=--a\n", "python")


def test_environment() -> None:
    environ = {
        "XLA_FLAGS": "--xla_a=1 --xla_b",
        "LIBTPU_INIT_ARGS": "--xla_tpu_x=true",
        "NCCL_PROTO": "LL",
        "HOME": "somewhere",
    }
    found = read_environment(environ)
    assert said(found) == [
        ("libtpu", "xla_tpu_x", "true"),
        ("env", "NCCL_PROTO", "LL"),
        ("xla_flags", "xla_a", "1"),
        ("xla_flags", "xla_b", None),
    ]
    assert all(one.place.span is None for one in found)


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="can't read .*none.sh: no such file"):
        read_settings(tmp_path / "none.sh")


FLOW = """x-common: &flags "--xla_a=1 --xla_b=2"
defaults: &env
  NCCL_DEBUG: INFO
containers:
- env: [{name: XLA_FLAGS, value: "--xla_c=1 --xla_d"}, {"name": "NCCL_PROTO", "value": "LL"}]
  args: ["-c", "export XLA_FLAGS='--xla_e=1 --xla_f' && python train.py"]
- env:
  - {name: XLA_FLAGS, value: *flags}
  - name: JAX_ENABLE_PGLE
    valueFrom: {configMapKeyRef: {name: job, key: pgle}}
  <<: *env
services:
  train: {environment: {XLA_FLAGS: --xla_g=1 --xla_h=2, NCCL_ALGO: Ring}}
"""


def test_yaml_in_one_line_with_anchors_and_merges() -> None:
    found = read_text(FLOW, "yaml")
    assert said(found) == [
        ("xla_flags", "xla_a", "1"),
        ("xla_flags", "xla_b", "2"),
        ("env", "NCCL_DEBUG", "INFO"),
        ("xla_flags", "xla_c", "1"),
        ("xla_flags", "xla_d", None),
        ("env", "NCCL_PROTO", "LL"),
        ("xla_flags", "xla_e", "1"),
        ("xla_flags", "xla_f", None),
        ("xla_flags", "xla_a", "1"),
        ("xla_flags", "xla_b", "2"),
        ("xla_flags", "xla_g", "1"),
        ("xla_flags", "xla_h", "2"),
        ("env", "NCCL_ALGO", "Ring"),
    ]
    assert is_where_it_says(FLOW, found)


TEXTS = r"""# XLA_FLAGS=--xla_commented=1
literal:
  XLA_FLAGS: |
    --xla_a=1
    --xla_b=2
folded:
  XLA_FLAGS: >-
    --xla_c=1

    --xla_d=2
quoted:
  XLA_FLAGS: "--xla_e=1
    --xla_f=2 \
    --xla_g=3"
single:
  XLA_FLAGS: '--xla_h=''x y''
    --xla_i=1'
plain:
  XLA_FLAGS: --xla_j=1
    --xla_k=2   # why
args:
- --xla_of_the_program=1
- -c
- |
  export XLA_FLAGS="--xla_m=1 \
    --xla_n=2"   # --xla_commented=1
  exec python train.py
---
command: ["bash", "-c", "XLA_FLAGS=--xla_o=1 python train.py"]
"""


def test_texts_of_every_style_and_a_second_document() -> None:
    found = read_text(TEXTS, "yaml")
    names = [(one.name, one.value) for one in found]
    assert names == [
        *(("xla_a", "1"), ("xla_b", "2"), ("xla_c", "1"), ("xla_d", "2"), ("xla_e", "1")),
        *(("xla_f", "2"), ("xla_g", "3"), ("xla_h", "x y"), ("xla_i", "1"), ("xla_j", "1")),
        *(("xla_k", "2"), ("xla_m", "1"), ("xla_n", "2"), ("xla_o", "1")),
    ]
    assert {one.kind for one in found} == {"xla_flags"}


TEMPLATE = """env:
{{- if .Values.fast }}
- name: XLA_FLAGS
  value: "--xla_a=1"
{{- end }}
- {name: XLA_FLAGS, value: "--xla_b=2"}
"""


def test_what_is_not_read_is_handed_back() -> None:
    """A template is no YAML; it is read line by line, and what that misses is named."""
    found = read_text(TEMPLATE, "yaml")
    assert said(found)[0] == ("xla_flags", "xla_a", "1")
    unread = [one for one in found if one.kind == "unread"]
    assert [one.place.line for one in unread] == [6, 6]
    assert unread[1].text == '--xla_b=2"}'


@pytest.mark.parametrize("ending", ["}", "]", ", more", '"'])
def test_no_document_with_flags_is_skipped_in_silence(ending: str) -> None:
    text = f"a: {{XLA_FLAGS: '--xla_a=1'{ending}\n"
    assert any("--xla_a=1" in one.text for one in read_text(text, "yaml"))
