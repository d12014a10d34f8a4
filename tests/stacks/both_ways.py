"""One training script, bare and under `slipstream run`, in folders of their own, compared."""

import hashlib
import json
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from run_jobs import OTHER, command, environment
from stacks.table import Stack

LONGEST_S = 900
ROUNDS = 8
LONGER = (1, 4, 16)
"""times as many steps, as long as a job ends too early: a busy machine needs more of them"""


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str
    seconds: float
    losses: list[str]
    files: dict[str, str | None]
    """name: hash, or None if its contents differ between two bare runs too"""


@dataclass(frozen=True)
class BothWays:
    bare: Run
    ours: Run
    receipt: dict

    @property
    def function(self) -> str:
        return function_of(self.receipt)


def run_both_ways(stack: Stack, folder: Path, until_compared: bool) -> BothWays:
    """With us first: that tells how long the job must train for its step to be measured."""
    ours, receipt, steps = _run_with_us(stack, folder, until_compared)
    # One after the other: side by side each would disturb the other's times.
    return BothWays(_run(stack, folder / "bare", steps), ours, receipt)


def _run_with_us(stack: Stack, folder: Path, until_compared: bool) -> tuple[Run, dict, int]:
    # A CPU makes the same program of all variants that are always tried.
    # What a tracker gets of us, a job without us can't leave.
    options = (*OTHER, "--rounds", str(ROUNDS), "--track", "none")
    for factor in LONGER:
        place, receipts = folder / f"ours{factor}", folder / f"receipts{factor}"
        steps = factor * stack.steps
        ours = _run(stack, place, steps, lambda job, to=receipts: command(to, job, *options))
        receipt = json.loads((receipts / "receipt.json").read_text())
        # A busy machine may take all of a short job for a part that comes before the step.
        is_measured = re.fullmatch(stack.function, function_of(receipt))
        is_enough = is_measured and (is_compared(receipt) or not until_compared)
        if is_enough or ours.code != stack.code:
            break
    return ours, receipt, steps


def function_of(receipt: dict) -> str:
    """The function that the receipt is about."""
    return (receipt.get("program") or {}).get("name") or "none"


def is_compared(receipt: dict) -> bool:
    """Whether another program than the original took turns with it."""
    arms = receipt.get("arms") or ()
    return any(arm["rounds"] for arm in arms if arm["name"] != "original")


def _run(
    stack: Stack, folder: Path, steps: int, wrap: Callable[[list[str]], list[str]] = list
) -> Run:
    folder.mkdir()
    began = time.monotonic()
    done = subprocess.run(
        wrap(stack.words(steps, folder)),
        cwd=folder,
        env=environment(**stack.variables),
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    seconds = time.monotonic() - began
    said = f"{done.stdout}\n{done.stderr}"
    losses = [match[0] for match in re.finditer(stack.loss, said)]
    files = _files(stack, folder)
    return Run(done.returncode, done.stdout, done.stderr, seconds, losses, files)


def _files(stack: Stack, folder: Path) -> dict[str, str | None]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder)
            anew = any(name.match(pattern) for pattern in stack.written_anew)
            digest = None if anew else hashlib.sha256(path.read_bytes()).hexdigest()
            found[_name(stack, name)] = digest
    return found


def _name(stack: Stack, name: Path) -> str:
    text = name.as_posix()
    for pattern, instead in stack.renamed:
        text = re.sub(pattern, instead, text)
    return text
