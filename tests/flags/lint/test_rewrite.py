"""`flags lint --fix` changes the settings that it understands, and nothing else."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import warnings
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.flags.catalogue.history import catalogue_of
from slipstream.flags.lint import rewrite
from slipstream.flags.lint.lint import lint
from slipstream.flags.lint.rewrite import Fixed, fix_file, fix_text
from slipstream.flags.settings import FileFormat, read_settings, read_text

EXAMPLES = int(os.environ.get("SLIPSTREAM_EXAMPLES", "30"))
"""random files of each format; docs/reliability.md has a run with more"""
CATALOGUE = catalogue_of("0.10.2")
GONE = "--xla_gpu_enable_triton_softmax_fusion=false"
OLD, NEW = "--xla_gpu_graph_level=0", "--xla_gpu_enable_command_buffer="
TYPO = "--xla_gpu_enable_latency_hiding_scheduler=ture"
FINE = "--xla_gpu_enable_latency_hiding_scheduler=true"
FLAGS = {GONE: "", OLD: NEW, TYPO: FINE, "--xla_gpu_autotune_level=3": "--xla_gpu_autotune_level=3"}


def fixed(text: str, form: FileFormat = "shell") -> Fixed:
    return fix_text(text, lint(read_text(text, form), CATALOGUE), form)


# Scripts that broke.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fix_breaks_command.sh", "XLA_FLAGS= python train.py --lr 3\n"),
        ("fix_breaks_docker.sh", "docker run -e XLA_FLAGS= myimage python x\n"),
    ],
)
def test_a_lone_flag_leaves_an_empty_value(hostile: Path, tmp_path, name: str, expected: str):
    script = tmp_path / name
    script.write_bytes((hostile / name).read_bytes())
    done = fix_file(script, lint(read_settings(script), CATALOGUE))
    assert (done.made, done.left) == (1, 0)
    assert script.read_text() == expected


def test_a_form_feed_hides_no_flag_and_moves_no_fix(hostile: Path):
    text = (hostile / "lint_blind_formfeed.py").read_text()
    done = fixed(text, "python")
    assert done.text == text.replace(f"{GONE} ", "")


@pytest.mark.parametrize("mark", ["\f", "\v", "\u2028", "\u2029", "\x85", "\ufeff", "\x1c"])
@pytest.mark.parametrize("form", ["python", "shell", "yaml", "env"])
def test_no_character_hides_a_flag(mark: str, form: FileFormat):
    lines = {
        "python": f'# a {mark} b\nimport os\nos.environ["XLA_FLAGS"] = "{GONE} {OLD}"\n',
        "shell": f"# a {mark} b\nexport{mark} XLA_FLAGS='{GONE} {OLD}'\n",
        "yaml": f'# a {mark} b\nenv:\n  XLA_FLAGS: "{GONE} {OLD}"\n',
        "env": f"# a {mark} b\nXLA_FLAGS={GONE} {OLD}\n",
    }
    for text in (lines[form], f"\ufeff{lines[form]}"):
        names = [one.name for one in read_text(text, form) if one.kind != "unread"]
        assert [f"--{n}" for n in names] == [flag.partition("=")[0] for flag in (GONE, OLD)]
        done = fixed(text, form)
        # An env value is not quoted, so its blank stays.
        assert done.text.replace(f" {NEW}", NEW) == text.replace(f"{GONE} {OLD}", NEW)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("shell", f"XLA_FLAGS=--xla_gpu_autotune_level=3\\ {GONE}\npython x\n"),
        ("shell", f'XLA_FLAGS="--xla_gpu_autotune_level=3 {GONE[:20]}"{GONE[20:]} python x\n'),
        ("shell", f"FLAGS=( {GONE} )\n"),
        ("shell", f"ENV XLA_FLAGS {GONE}\n"),
        ("yaml", f"xla_flags: [{GONE}]\n"),
        ("python", f'os.environ["XLA_FLAGS"] = "{GONE[:20]}" + "{GONE[20:]}"\n'),
    ],
)
def test_what_is_not_understood_is_only_reported(form: FileFormat, text: str):
    done = fixed(text, form)
    assert done == Fixed(text, 0, 1)


def test_the_other_fixes_are_made():
    text = f"XLA_FLAGS=--xla_gpu_autotune_level=3\\ {GONE}\nexport XLA_FLAGS='{OLD}'\n"
    assert fixed(text) == Fixed(text.replace(OLD, NEW), 1, 1)


def test_a_fix_that_cannot_be_proved_is_not_made(monkeypatch):
    """With the old rule, which took the blank after a flag: it took the command with it."""
    monkeypatch.setattr(rewrite, "_removed", lambda text, edit: (edit.span[0], edit.span[1] + 1))
    text = f"XLA_FLAGS={GONE} python train.py\n"
    assert fixed(text) == Fixed(text, 0, 1)


# What is a flag, and what it should have been.


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("shell", f"python train.py {GONE} --lr 3\n"),
        ("shell", f"srun -n 8 ./train \\\n  {GONE}\n"),
        ("shell", f"docker run image python train.py {OLD}\n"),
        ("yaml", f"command: [python, train.py, {GONE}]\n"),
        ("yaml", f"containers:\n- args:\n  - {GONE}\n"),
        ("yaml", f"run: [./train.sh, {GONE}]\n"),
    ],
)
def test_arguments_of_the_users_program_are_not_flags_of_xla(form: FileFormat, text: str):
    assert read_text(text, form) == []


@pytest.mark.parametrize(
    "text", [f"FLAGS=(\n  {OLD}\n  {FINE}\n)\n", f"ENV XLA_FLAGS {OLD} {FINE}\n", f"{OLD} {FINE}\n"]
)
def test_a_list_of_flags_is_read(text: str):
    assert [f"--{one.name}" for one in read_text(text)] == [
        f.partition("=")[0] for f in (OLD, FINE)
    ]
    assert fixed(text).text == text.replace(OLD, NEW)


def only(text: str, form: FileFormat = "shell"):
    (found,) = lint(read_text(text, form), CATALOGUE)
    return found


@pytest.mark.parametrize(
    ("flag", "fix"),
    [
        ("--xla_gpu_enable_latency_hiding_sheduler=true", FINE),
        ("--xla_gpu_enable_latency_hiding_shceduler=true", FINE),
        ("--xla_gpu_enable_latency_hiding_sheduler=3.5", None),  # not its value
        ("--xla_gpu_enable_latency_hiding_sheduler=$ON", None),  # unknown until it runs
        ("--xla_gpu_enable_latency_hidng_shedulr=true", None),  # three letters
        ("--xla_gpu_foo=1", None),
    ],
)  # fmt: skip
def test_a_name_is_replaced_only_if_the_match_is_certain(flag: str, fix: str | None):
    found = only(f"export XLA_FLAGS='{flag}'\n")
    assert found.severity == "abort"
    assert found.fix == fix


@pytest.mark.parametrize("word", ["ture", "TRUE1", "flase", "Fasle", "ye", "maybe", "t"])
def test_misspelt_truth(word: str):
    meant = {"ture": "true", "TRUE1": "true", "flase": "false", "Fasle": "false"}.get(word)
    flag = only(f"export XLA_FLAGS=--xla_gpu_enable_pipelined_p2p={word}\n")
    assert flag.fix == (meant and f"--xla_gpu_enable_pipelined_p2p={meant}")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("shell", "export JAX_ENABLE_PGLE=ture\n"),
        ("shell", "JAX_ENABLE_PGLE='ture' python train.py\n"),
        ("yaml", 'env:\n- name: JAX_ENABLE_PGLE\n  value: "ture"\n'),
        ("env", "JAX_ENABLE_PGLE=ture\n"),
        ("python", 'os.environ["JAX_ENABLE_PGLE"] = "ture"\n'),
    ],
)
def test_a_truth_that_jax_rejects_ends_the_job(form: FileFormat, text: str):
    found = only(text, form)
    assert (found.code, found.severity) == ("malformed", "error")
    assert "importing jax fails" in found.message
    assert fixed(text, form) == Fixed(text.replace("ture", "true"), 1, 0)


def test_a_plain_scalar_of_yaml_would_become_another_type():
    """`ture` is a text, and `true` is none: Kubernetes would refuse the file."""
    text = "env: {JAX_ENABLE_PGLE: ture}\n"
    assert only(text, "yaml").severity == "error"
    assert fixed(text, "yaml") == Fixed(text, 0, 1)


def test_numbers_that_jax_rejects():
    found = only("export JAX_PGLE_PROFILING_RUNS=three\n")
    assert (found.severity, found.fix) == ("error", None)
    assert lint(read_text("export JAX_COMPILATION_CACHE_DIR=x\n"), CATALOGUE) == ()


# Files that took forever, or the process with them.


def test_time_is_in_proportion_to_the_length(hostile: Path):
    for name in ("hang_dollar.sh", "hang_alias.yaml"):
        read_settings(hostile / name)
    big = 5_000
    for form, text in {
        "shell": "XLA_FLAGS=" + "${A:-" * big,
        "env": "XLA_FLAGS=" + "${A:-x}" * big,
        "python": "x = [" + ", ".join('"--xla_é"' for _ in range(big)) + "]\n",
        "yaml": '{"a": [' + ", ".join('{"b": "c XLA_FLAGS d"}' for _ in range(big)) + "]}",
    }.items():
        read_text(text, form)


def test_nesting_does_not_overrun_the_stack():
    assert read_text("[" * 100_000, "yaml") == []
    with pytest.raises(Exception, match="nested|not Python"):
        read_text("(" * 100_000, "python")


def test_aliases_of_a_long_text_are_refused():
    text = f'a: &a "{" ".join([FINE] * 400)}"\n' + "".join(
        f"b{n}: {{XLA_FLAGS: *a}}\n" for n in range(5000)
    )
    with pytest.raises(Exception, match="aliases of this YAML file repeat"):
        read_text(text, "yaml")


@pytest.mark.parametrize(
    "text",
    [
        "a = " * 2000 + f'"{FINE * 500}"\n',
        "os.environ['XLA_FLAGS'] = " * 2000 + f'"{FINE * 500}"\n',
        ("{'a': " * 90 + "1" + "}" * 90 + "\n") * 20,
    ],
    ids=["names", "variables", "nested"],
)
def test_python_that_repeats_a_value_is_refused(text: str):
    """Every name of `a = b = c = value` has the whole value: a megabyte of it would take hours."""
    with pytest.raises(Exception, match="assignments repeat its"):
        read_text(text, "python")


def test_python_does_not_warn_of_escapes_in_the_file():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = read_text(f"os.environ['XLA_FLAGS'] = '{FINE}'; x = '\\='\n", "python")
    assert found.name == FINE.removeprefix("--").partition("=")[0]


def test_a_value_with_two_names_is_read_for_both():
    text = f"flags = os.environ['XLA_FLAGS'] = os.environ['LIBTPU_INIT_ARGS'] = '{FINE}'\n"
    assert len(read_text(text, "python")) == 3


# Random files. An independent reader says what each command, argument and value is.

WORDS = st.sampled_from(["python", "train.py", "--lr", "3", "a b", "x'y", "$HOME", "é", "--flag=1"])
VALUES = st.lists(st.sampled_from(sorted(FLAGS)), max_size=4, unique=True)


def expected_words(flags: list[str]) -> list[str]:
    return [FLAGS[flag] for flag in flags if FLAGS[flag]]


@st.composite
def shell_value(draw) -> tuple[str, list[str]]:
    flags = draw(VALUES)
    style = draw(st.sampled_from(["'", '"', "\\\n", "bare"]))
    if style == "bare" and len(flags) <= 1:
        return "".join(flags), flags
    if style == "\\\n":
        return '"' + " \\\n  ".join(flags) + '"', flags
    quote = style if style in "'\"" else '"'
    blanks = draw(st.sampled_from(["", " "]))
    return f"{quote}{blanks}{' '.join(flags)}{blanks}{quote}", flags


@st.composite
def shell_line(draw) -> str:
    value, _ = draw(shell_value())
    command = " ".join(shlex.quote(word) for word in draw(st.lists(WORDS, max_size=4)))
    form = draw(st.integers(0, 5))
    return [
        f"XLA_FLAGS={value} show {command}",
        f"export XLA_FLAGS={value}; show {command}",
        f"show -e XLA_FLAGS={value} {command}",
        f"show --env=XLA_FLAGS={value} {command} # XLA_FLAGS={GONE}",
        f"if true; then XLA_FLAGS={value} NCCL_DEBUG=INFO show {command}; fi",
        f"show {command}",
    ][form]


PRELUDE = 'show() { printf "<%s>" "$XLA_FLAGS" "$NCCL_DEBUG" "$@"; echo; }\nHOME=/h\n'


def run_bash(script: str) -> list[list[str]]:
    """What each command of a script gets, says bash: its environment and its arguments."""
    done = subprocess.run(
        ["bash", "-c", PRELUDE + script], capture_output=True, text=True, check=True
    )
    return [line[1:-1].split("><") for line in done.stdout.splitlines()]


def with_fixes(argument: str) -> list[str]:
    head, equals, flags = argument.rpartition("XLA_FLAGS=")
    return (
        [head + equals, *expected_words(flags.split())] if "--xla" in argument else argument.split()
    )


def normal(argument: str) -> list[str]:
    head, equals, flags = argument.rpartition("XLA_FLAGS=")
    return [head + equals, *flags.split()] if equals else argument.split()


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(shell_line(), min_size=1, max_size=5))
def test_bash_gets_the_same_commands_and_arguments(lines: list[str]):
    text = "\n".join(lines) + "\n"
    done = fixed(text)
    before, after = run_bash(text), run_bash(done.text)
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        assert len(old) == len(new)
        for a, b in zip(old, new, strict=True):
            assert a == b or [w for w in with_fixes(a) if w] == [w for w in normal(b) if w]
    assert done.left == 0
    assert fixed(done.text).made == 0


@st.composite
def docker_line(draw) -> str:
    value, _ = draw(shell_value())
    line = draw(shell_line())
    words = json.dumps(["python", *draw(st.lists(WORDS, max_size=3)), GONE])
    form = draw(st.integers(0, 4))
    return [
        f"ENV XLA_FLAGS={value} NCCL_DEBUG=INFO",
        f"RUN {line} && make",
        f"CMD {words}",
        f"FROM nvcr.io/nvidia/jax:24.10-py3 AS a\nENV A=1 \\\n    XLA_FLAGS={value}",
        f"# {GONE}\nCOPY . /app",
    ][form]


def docker_words(text: str) -> list[str]:
    """As Docker sees it: continued lines are joined before anything else."""
    lexer = shlex.shlex(text.replace("\\\n", ""), posix=True, punctuation_chars=";&|")
    lexer.whitespace_split, lexer.commenters = True, ""
    return list(lexer)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(docker_line(), min_size=1, max_size=5))
def test_a_dockerfile_has_the_same_instructions(lines: list[str]):
    text = "\n".join(lines) + "\n"
    done = fixed(text)
    assert done.left == 0
    assert strip_flags(text.split()) == strip_flags(done.text.split())
    before, after = (docker_words(one) for one in (text, done.text))
    assert len(before) == len(after)
    for a, b in zip(before, after, strict=True):
        if a != b:
            assert a.startswith(("XLA_FLAGS=", "--env=XLA_FLAGS=")), (a, b)
            assert [w for w in with_fixes(a) if w] == [w for w in normal(b) if w]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_yaml_holds_the_same_values(data):
    def value(depth: int):
        flags = data.draw(VALUES)
        script = "\n".join(data.draw(st.lists(shell_line(), max_size=3)))
        choice = data.draw(st.integers(0, 4 if depth < 3 else 2))
        if choice == 0:
            return {"XLA_FLAGS": " ".join(flags)}
        if choice == 1:
            return {"name": "XLA_FLAGS", "value": " ".join(flags), "x": script}
        if choice == 2:
            return [script, f"XLA_FLAGS={' '.join(flags)}", 3, None]
        return {f"k{n}": value(depth + 1) for n in range(data.draw(st.integers(0, 3)))}

    document = value(0)
    style = data.draw(st.sampled_from(["json", "block", "flow", '"', "|"]))
    text = (
        json.dumps(document, indent=data.draw(st.sampled_from([None, 2])))
        if style == "json"
        else yaml.safe_dump(
            document,
            default_flow_style=style == "flow",
            default_style=style if style in '"|' else None,
        )
    )
    done = fixed(text, "yaml")
    check_values(yaml.safe_load(text), yaml.safe_load(done.text))


def check_values(before, after) -> None:
    assert type(before) is type(after)
    if isinstance(before, dict):
        assert before.keys() == after.keys()
        for key in before:
            check_values(before[key], after[key])
    elif isinstance(before, list):
        assert len(before) == len(after)
        for one, other in zip(before, after, strict=True):
            check_values(one, other)
    elif isinstance(before, str):
        old, new = before.split(), after.split()
        assert strip_flags(old) == strip_flags(new)


def strip_flags(words: list[str]) -> list[str]:
    """The words without flags: `XLA_FLAGS='--xla_…` leaves `XLA_FLAGS='`."""
    known = sorted({*FLAGS, *FLAGS.values()} - {""}, key=len, reverse=True)
    for flag in known:
        words = [word.replace(flag, "") for word in words]
    return [char for word in words for char in word if char != "\\"]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.tuples(VALUES, st.integers(0, 5)), max_size=5))
def test_python_computes_the_same(parts):
    lines = ["import os, jax", "é = 'ü'; x = 3"]
    for flags, form in parts:
        joined = " ".join(flags)
        pieces = "".join(f'\n    "{flag} "' for flag in flags) or '""'
        lines.append(
            [
                f'os.environ["XLA_FLAGS"] = "{joined}"; lr = 0.1  # {GONE}',
                f"os.environ['XLA_FLAGS'] = ({pieces})",
                f'os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + f" {joined} {{x}}"',
                f'XLA_FLAGS = " ".join({flags!r})',
                'jax.jit(f, compiler_options={"xla_gpu_graph_level": 0, "b": [1, "é"]})',
                "def f(a, *, b=2):\n    return a + b",
            ][form]
        )
    text = "\n".join(lines) + "\n"
    done = fixed(text, "python")
    kept = {node_text(node) for node in ast.walk(ast.parse(text))}
    again = {node_text(node) for node in ast.walk(ast.parse(done.text))}
    assert kept == again
    assert fixed(done.text, "python").made == 0


def node_text(node: ast.AST) -> str:
    """What a node is, without the flags in it."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call):
        return f"{ast.unparse(node.func)} {len(node.args)} {[word.arg for word in node.keywords]}"
    if not isinstance(node, ast.Constant):
        return type(node).__name__
    text = str(node.value)
    for flag in sorted({*FLAGS, *FLAGS.values()} - {""}, key=len, reverse=True):
        text = text.replace(flag, "")
    for option in ("xla_gpu_graph_level", "xla_gpu_enable_command_buffer"):
        text = text.replace(option, "")
    return repr("".join(text.split()).strip("0"))
