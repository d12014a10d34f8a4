"""Writes src/slipstream/flags/catalogue/values.json: which values every flag of a jaxlib takes.

    python scripts/harvest_values.py --python .venv/bin/python --python .venv312/bin/python
    python scripts/harvest_values.py 0.6.0 0.11.2        releases, downloaded as harvest_flags does

Every value is tried in a process of its own: numbers in all notations and beyond their range,
switches, and, for enums, every part of every member's name in four spellings, the words of XLA's
own help, numbers, and lists with and without signs, blanks and empty parts.  What is recorded is
the grammar that says of every value tried what the process did; a flag without one is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from slipstream.flags.catalogue.catalogue import Catalogue, Flag
from slipstream.flags.catalogue.grammar import Grammar, without_separators, wordless_grammars
from slipstream.flags.catalogue.history import catalogue_of, version_key
from slipstream.flags.catalogue.jaxlib_library import library_in
from slipstream.flags.catalogue.probe import Probe
from slipstream.flags.catalogue.release_grammars import DATA
from slipstream.writing import atomic_write

PLAIN: tuple[str | None, ...] = (
    *(None, "", "true", "True", "TRUE", "tRuE", "t", "false", "fAlse", "yes", "on", "true "),
    *("1", "0", "2", "-1", "+3", "007", "0x10", "1e9", "1.5", ".5", "1.", "3k", "1_000", "1,000"),
    *(" 1", "1 ", "\t1", "--1", "+-1", "+", "-", "1.5e", "1e400", "inf", "-inf", "nan", "infinity"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "4294967296"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"),
    *("a", "a,b", "a,", ",", "a b", "a=b", "a=1", "a=1,b=-2", "a=1,", "a=", "=a", "=1", "a=1=2"),
    *("10s", "1h30m", "1.5s", ".5s", "-10s", "10 s", "1d", "0s", "00", "1S", "s", "1m1s1ms"),
    *(
        "a:2147483648",
        "a:9223372036854775808",
        "a: 1",
        "1:2",
        "1:",
        ":2",
        ":",
        "2:1",
        "1:2:3",
        "1,2",
        "1:2,5",
        "1,,2",
        "a:1",
        "a:b",
        "a:+1,b",
        "1-2",
        "/tmp/x",
        "xyzzy",
    ),
)
VOCABULARY = ("on", "off", "true", "false", "auto", "none", "default", "all", "0", "1", "2", "-1")
LISTS = (
    *("A,B", "+A", "-A", "+A,-B", "+A,B", "A,-B", "A,+B", "A,", ",A", ",", "A,,B", "A,A", "+A,"),
    *("+A,+A", "A, B", " A", "A ", "+A, -B", "A;B", "A+B", "+", "-", "+,", "A,+", "++A", "--A"),
    *("+ A", ",+A", "+A,,-B", "A,xyzzy", "+xyzzy", "-xyzzy"),
)
OPTIONS = """
import json, sys
import jax

def complaint(name, value):
    try:
        lowered.compile(compiler_options={name: value, "xla_no_release_has_this": "1"})
    except Exception as error:
        return "xla_no_release_has_this" not in str(error)
    raise SystemExit("an option that no release has was accepted")

lowered = jax.jit(lambda x: x + 1).lower(1.0)
print(json.dumps([complaint(*pair) for pair in json.load(sys.stdin)]))
"""
"""the second option is refused once the first was read: nothing is ever compiled"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("releases", nargs="*", help="jaxlib releases, downloaded")
    parser.add_argument("--python", action="append", default=[], help="a Python that has jaxlib")
    arguments = parser.parse_args()
    for python in arguments.python:
        record(version_of(python), Probe(python), python)
    for release in arguments.releases:
        record_download(release)
    return 0


def record_download(version: str) -> None:
    """Downloads a release and tries it; without jax, so compile options are not tried."""
    import harvest_flags as flags  # beside this script

    release = flags.available()[version]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        flags.unpack(flags.download(release, folder), folder)
        library_in(folder / "jaxlib", version)
        python = flags.environment(release.python, flags.orders(version)[0], folder / "python")
        record(version, Probe(str(python), (folder,)), None)


def record(version: str, probe: Probe, python: str | None) -> None:
    """Tries one jaxlib and adds what it takes to the data file."""
    began = time.monotonic()
    catalogue = catalogue_of(version)
    tried, flags = try_flags(catalogue, probe)
    found: dict[str, Any] = {"tried": tried, "flags": flags}
    if python is not None:
        found["options"], found["options_tried"] = try_options(catalogue, python)
    data = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
    data[version] = found
    ordered = {key: data[key] for key in sorted(data, key=version_key)}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in ordered.items()]
    with atomic_write(DATA) as path:
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    seconds = time.monotonic() - began
    count = f"{tried} values of flags, {found.get('options_tried', 0)} of options"
    print(f"jaxlib {version}: {count}, {seconds:.0f} s", flush=True)


def try_flags(catalogue: Catalogue, probe: Probe) -> tuple[int, dict[str, Any]]:
    """How many values were tried, and the grammar of every flag that `XLA_FLAGS` takes."""
    flags = [flag for flag in catalogue.flags.values() if flag.in_xla_flags]
    words = help_words(probe)
    # XLA cuts its help, so a list of messages is tried with the members of all lists of enums.
    members = list(
        dict.fromkeys(m for f in flags if f.kind == "repeated enum" for m in f.enum_values)
    )
    for flag in flags:
        if "message" in flag.kind:
            words[flag.name] = members
    values = {flag.name: list(candidates(flag, words.get(flag.name, ()))) for flag in flags}
    pairs = [(name, value) for name, tries in values.items() for value in tries]
    ended = dict(zip(pairs, probe.aborts([written(*pair) for pair in pairs]), strict=True))
    for flag in flags:
        if "message" in flag.kind:
            # No descriptor names its members: what was accepted are the words to make lists of.
            words_of = [v for v in values[flag.name] if v and not ended[flag.name, v]]
            more = lists_of([word for word in words_of if word.isalpha()])
            more = [value for value in more if value not in values[flag.name]]
            values[flag.name] += more
            tried = [(flag.name, value) for value in more]
            pairs += tried
            ended |= zip(tried, probe.aborts([written(*pair) for pair in tried]), strict=True)
    found = {}
    for flag in flags:
        fine = {value: not ended[flag.name, value] for value in values[flag.name]}
        found[flag.name] = grammar(flag, fine).row()
    return len(pairs), found


def written(name: str, value: str | None) -> str:
    if value is None:
        return f"--{name}"
    quoted = f"'{value}'" if re.search(r"\s", value) else value
    return f"--{name}={quoted}"


def candidates(flag: Flag, words: Sequence[str]) -> list[str | None]:
    """Everything that is tried for a flag."""
    tries: list[str | None] = list(PLAIN)
    if "enum" in flag.kind or "message" in flag.kind:
        stems = [*flag.enum_values, *VOCABULARY] if flag.enum_values else [*words, *VOCABULARY]
        tries += [form for stem in stems for part in parts(stem) for form in cases(part)]
        tries += words
        tries += [str(number) for number in range(len(flag.enum_values) + 1)]
        names = list(dict.fromkeys(part for stem in stems for part in parts(stem)))
        for first, second in pairs_of(names, flag):
            tries += [_filled(pattern, first, second) for pattern in LISTS]
        tries += [f" {stems[0]}", f"{stems[0]} "]
    return list(dict.fromkeys(tries))


def lists_of(words: Sequence[str]) -> list[str]:
    """Lists of two words that are fine by themselves, and words with lines in odd places."""
    pairs = list(zip(words, words[1:], strict=False))[:4]
    found = [_filled(pattern, *pair) for pair in pairs for pattern in LISTS]
    found += [f"{word[:2]}{line}{word[2:]}" for word in words[:4] for line in ("_", "-", "__", " ")]
    return list(dict.fromkeys(found))


def _filled(pattern: str, first: str, second: str) -> str:
    return re.sub(r"\b[AB]\b", lambda letter: first if letter[0] == "A" else second, pattern)


def pairs_of(names: Sequence[str], flag: Flag) -> Iterator[tuple[str, str]]:
    """Two members at a time, whole and without what their names share."""
    members = flag.enum_values or tuple(names)
    shared = len(os.path.commonprefix(list(members)).rpartition("_")[0])
    for at in range(1, min(len(members) - 1, 3)):
        yield members[at], members[at + 1]
        if shared:
            yield members[at][shared + 1 :], members[at + 1][shared + 1 :]


def parts(name: str) -> Iterator[str]:
    """Every run of the words of a name, with and without the lines between them."""
    words = name.split("_")
    for start in range(len(words)):
        for end in range(start + 1, len(words) + 1):
            yield "_".join(words[start:end])
            yield "".join(words[start:end])


def cases(word: str) -> tuple[str, ...]:
    return word, word.lower(), word.upper(), mixed(word)


def mixed(word: str) -> str:
    return "".join(c.upper() if at % 2 else c.lower() for at, c in enumerate(word))


def help_words(probe: Probe) -> dict[str, list[str]]:
    """The words of each flag's description: XLA prints them all when a value is wrong."""
    text = probe.usage()
    found: dict[str, list[str]] = {}
    for match in re.finditer(r"\n\t--(\w+)=(.*?)(?=\n\t--|\Z)", text, re.S):
        found[match[1]] = sorted(set(re.findall(r"[A-Za-z_]{2,40}", match[2])))
    return found


def grammar(flag: Flag, fine: dict[str | None, bool]) -> Grammar:
    """The grammar that agrees with every value that was tried."""
    numbers = [int(v) for v, ok in fine.items() if ok and v and re.fullmatch(r"[+-]?\d+", v)]
    guesses = [*wordless_grammars(), *worded(fine)]
    guesses += [
        replace(g, least=min(numbers)) for g in wordless_grammars() if numbers and "int" in g.form
    ]
    wrong: dict[str, list[str | None]] = {}
    for guess in guesses:
        differ = [value for value, ok in fine.items() if guess.accepts(value) != ok]
        if not differ:
            return guess
        wrong[guess.form] = differ
    closest = min(wrong, key=lambda form: len(wrong[form]))
    raise SystemExit(f"{flag.name} ({flag.kind}): {closest} is wrong about {wrong[closest][:20]}")


def worded(fine: dict[str | None, bool]) -> Iterator[Grammar]:
    """Grammars with the words that were accepted, in the spelling met first."""
    accepted = [v for v, ok in fine.items() if ok and v and re.fullmatch(r"\w+", v)]
    groups: dict[str, list[str]] = {}
    for word in accepted:
        groups.setdefault(word.lower(), []).append(word)
    is_any_case = all(fine.get(form, False) for word in accepted for form in cases(word))
    words = tuple(group[0] for group in groups.values()) if is_any_case else tuple(accepted)
    for form in ("words", "list", "signed list"):
        is_empty_fine = form == "words" and fine[""]
        yield Grammar(form, words, is_any_case, None, is_empty_fine)
    spelt: dict[str, str] = {}
    for word in words:
        spelt.setdefault(without_separators(word), word)
    yield Grammar("minus list", tuple(spelt.values()), any_case=True)


def try_options(catalogue: Catalogue, python: str) -> tuple[dict[str, Any], int]:
    """The grammar of each kind of compile option; members of enums stand as `words: members`."""
    flags = [flag for flag in catalogue.flags.values() if flag.in_compiler_options]
    pairs = [(flag.name, value) for flag in flags for value in option_values(flag)]
    done = subprocess.run(
        [python, "-c", OPTIONS],
        input=json.dumps(pairs),
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    refused = dict(zip(map(repr, pairs), json.loads(done.stdout.splitlines()[-1]), strict=True))
    found: dict[str, Any] = {}
    for flag in flags:
        fine = {v: not refused[repr((flag.name, v))] for v in option_values(flag)}
        texts = {v: ok for v, ok in fine.items() if isinstance(v, str)}
        kind = option_grammar(flag, texts)
        types = sorted({type(v).__name__ for v, ok in fine.items() if ok} - {"str"})
        row = {"form": kind.form, "types": types}
        if found.setdefault(flag.kind, row) != row:
            raise SystemExit(f"{flag.name} differs from other {flag.kind}: {row}")
    return found, len(pairs)


def option_values(flag: Flag) -> list[Any]:
    texts = [value for value in candidates(flag, ()) if value is not None]
    if flag.enum_values:
        texts = [v for v in texts if v in flag.enum_values or v in PLAIN or "," in v or " " in v]
        texts += [form for member in flag.enum_values for form in cases(member)]
    # Python's True and 1 are equal: keep them apart.
    return [*dict.fromkeys(texts), True, 3, -1, 1.5]


def option_grammar(flag: Flag, fine: dict[str, bool]) -> Grammar:
    guesses = [
        Grammar("words", ("True", "False")),
        *map(Grammar, ("int32", "int64", "float", "text")),
        Grammar("number", flag.enum_values),
        Grammar("numbers", flag.enum_values),
    ]
    for guess in guesses:
        if all(guess.accepts(value) == ok for value, ok in fine.items()):
            return guess
    closest = {g.form: [v for v, ok in fine.items() if g.accepts(v) != ok][:10] for g in guesses}
    raise SystemExit(f"option {flag.name} ({flag.kind}): {closest}")


def version_of(python: str) -> str:
    code = "from importlib.metadata import version; print(version('jaxlib'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
