"""Every flag line of the five guides, linted for four jaxlibs and started for real in two.

    python scripts/check_guides.py --python 0.10.2=PATH --python 0.12.0.1=PATH [--write]

Starts one process for each line and each Python given; exits with 1 where `lint` and a process
disagree.  `--write` records the table in docs/guides-flags.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "flags" / "lint")]

from guides import GUIDE_LINES  # noqa: E402

from slipstream.flags.catalogue.history import catalogue_of  # noqa: E402
from slipstream.flags.lint.findings import FAILING, LintFinding  # noqa: E402
from slipstream.flags.lint.lint import lint  # noqa: E402
from slipstream.flags.presets.definitions import GUIDES  # noqa: E402
from slipstream.flags.settings import read_text  # noqa: E402

VERSIONS = ("0.4.18", "0.6.0", "0.10.2", "0.12.0.1")
PAGE = ROOT / "docs" / "guides-flags.md"
START = "from jaxlib import xla_client; xla_client.CompileOptions()"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--python", action="append", default=[], metavar="VERSION=PATH")
    arguments.add_argument("--write", action="store_true")
    options = arguments.parse_args()
    pythons = dict(pair.split("=", 1) for pair in options.python)
    lines = list(dict.fromkeys(line for _, line in GUIDE_LINES))
    started = {version: starts(python, lines) for version, python in pythons.items()}
    wrong = [
        f"{version} {line}: lint says {'abort' if aborts(line, version) else 'fine'}, "
        f"the process {'ended' if ended else 'ran'}"
        for version, verdicts in started.items()
        for line, ended in verdicts.items()
        if ended != aborts(line, version)
    ]
    print("\n".join(wrong) or f"{len(lines)} lines: lint and {', '.join(started)} agree")
    if options.write:
        PAGE.write_text(page(started, not wrong), encoding="utf-8")
    return 1 if wrong else 0


def starts(python: str, lines: list[str]) -> dict[str, bool]:
    """Whether a process that starts with the line ends at once."""
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return dict(zip(lines, pool.map(lambda line: ends(python, line), lines), strict=True))


def ends(python: str, flags: str) -> bool:
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([python, "-c", START], env=environment, capture_output=True, timeout=120)
    return done.returncode != 0


def findings(line: str, version: str) -> tuple[LintFinding, ...]:
    """What lint says of a line by itself, in double quotes as the guides write it."""
    escaped = line.replace("\\", "\\\\")
    return lint(read_text(f'export XLA_FLAGS="{escaped}"'), catalogue_of(version))


def aborts(line: str, version: str) -> bool:
    return any(finding.severity in FAILING for finding in findings(line, version))


def verdict(line: str, version: str) -> str:
    found = findings(line, version)
    worst = next((f for f in found if f.severity in FAILING), None) or next(
        (f for f in found if f.severity == "warning"), None
    )
    if worst is None:
        return "default" if found else "works"
    return f"**{worst.code}**" if worst.severity in FAILING else worst.code


def page(started: dict[str, dict[str, bool]], agree: bool) -> str:
    """The page: what was done, the counts, the table."""
    guides: dict[str, list[str]] = {}
    for guide, line in GUIDE_LINES:
        guides.setdefault(line, []).append(guide)
    counts = " · ".join(
        f"{version}: {sum(aborts(line, version) for line in guides)}" for version in VERSIONS
    )
    real = " and ".join(f"jaxlib {version}" for version in started)
    count = sum(map(len, started.values()))
    said = "Every verdict agreed." if agree else "Some verdicts did not agree."
    rows = [
        f"| `{line}` | {', '.join(dict.fromkeys(names))} | "
        + " | ".join(verdict(line, version) for version in VERSIONS)
        + " |"
        for line, names in guides.items()
    ]
    legend = [f"- **{key}**: [{guide.title}]({guide.source})" for key, guide in GUIDES.items()]
    return HEAD.format(
        lines=len(guides), counts=counts, real=real, count=count, said=said
    ) + "\n".join(
        [
            *legend,
            "",
            f"| line | guide | {' | '.join(VERSIONS)} |",
            "| --- | --- |" + " --- |" * len(VERSIONS),
            *rows,
            "",
        ]
    )


HEAD = """# The guides' flags, today

Every flag line of the five guides ({lines} different ones) through `slipstream flags lint`, for
four releases of jaxlib. In bold: XLA aborts at startup. `works` and `default` run;
`no-effect` and `deprecated` run too, and do nothing or not for long.

Lines that abort the process: {counts}.

`scripts/check_guides.py --write` makes this page: it started {count} processes, one for each line
under {real}, and compared what happened with what lint said.
{said}

"""


if __name__ == "__main__":
    sys.exit(main())
