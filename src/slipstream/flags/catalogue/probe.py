"""What a jaxlib accepts in `XLA_FLAGS`, and its defaults: asked of the library itself.

XLA reads `XLA_FLAGS` once, when the first options are made.  It names every value that it can't
read, or, if there is none, every name that it doesn't know, and ends the process:

    --a=1 --b=1 --c=1 ──► "Couldn't interpret value 1 for flag b"     b is a flag, with other values
    --a=1 --c=1       ──► "Unknown flags in XLA_FLAGS: --c=1"         c is no flag, a is one

Until 2024 a value that can't be read keeps XLA from looking for unknown names, and the process goes
on.  So each question has one name that is unknown for sure: while XLA doesn't complain about that
one, a value is in its way.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from slipstream.errors import BadInput

_OPTIONS = """
from jaxlib import xla_client
options = xla_client.CompileOptions()
options.executable_build_options.debug_options
"""
_PRINT_OPTIONS = _OPTIONS + "import sys; sys.stdout.buffer.write(options.SerializeAsString())\n"
_TRY_ALL = """
import json, os, resource, sys
from jaxlib import xla_client

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

def ends(flags):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] != 0
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.environ["XLA_FLAGS"] = flags
    try:
        xla_client.CompileOptions().executable_build_options.debug_options
    except BaseException:  # whatever it was, this child must not go on as its parent
        os._exit(3)
    os._exit(0)

print(json.dumps([ends(flags) for flags in json.load(sys.stdin)]))
"""
"""a process for each string, forked once jaxlib is loaded and has read nothing yet: 5 ms each"""
_UNKNOWN = re.compile(r"Unknown flags? in XLA_FLAGS:((?: --\S+)*)")
"""up to the first double space: old releases go on with flags that they do know"""
_USAGE = "usage:"
_CANARY = "xla_no_release_has_this_flag"
_NAME = re.compile(r"[a-z0-9_]+")
_BATCH = 150
"""names a process: XLA cuts its messages at 15,000 characters"""
_PATIENCE_S = 60


@dataclass(frozen=True)
class Probe:
    """A way to start a jaxlib: a Python, and where jaxlib and its requirements lie."""

    python: str = sys.executable
    folders: tuple[Path, ...] = field(default=())

    def compile_options(self) -> bytes:
        """A serialized `CompileOptionsProto` with nothing set: the defaults."""
        return self._run("", _PRINT_OPTIONS).stdout

    def accepted(
        self, names: Mapping[str, str], alone: Collection[str] = frozenset()
    ) -> frozenset[str]:
        """Those of `names`, given with a value each, that `XLA_FLAGS` takes.

        Those of `alone` are asked one by one: they may refuse a value without a word.
        """
        ordered = sorted(f"--{name}={names[name]}" for name in set(names) - set(alone))
        batches = [ordered[at : at + _BATCH] for at in range(0, len(ordered), _BATCH)]
        batches += [[f"--{name}={names[name]}"] for name in sorted(set(names) & set(alone))]
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            return frozenset().union(*pool.map(self._accepted, batches))

    def usage(self) -> str:
        """XLA's own help: every flag with its default and what it says about itself."""
        done = self._run("--xla_backend_optimization_level=none", _OPTIONS, check=False)
        return done.stderr.decode(errors="replace")

    def ends(self, strings: Sequence[str]) -> list[bool]:
        """Whether a process that starts with each of these as its `XLA_FLAGS` ends at once."""
        count = max(1, min(os.cpu_count() or 1, len(strings)))
        shares = [strings[at::count] for at in range(count)]
        with ThreadPoolExecutor(max_workers=count) as pool:
            answers = list(pool.map(self._ends, shares))
        return [answers[at % count][at // count] for at in range(len(strings))]

    def _ends(self, strings: Sequence[str]) -> list[bool]:
        done = self._run("", _TRY_ALL, asked=json.dumps(strings).encode(), patience_s=None)
        answer: list[bool] = json.loads(done.stdout)
        return answer

    def _accepted(self, flags: list[str]) -> frozenset[str]:
        if not flags:
            return frozenset()
        names = {_NAME.findall(flag)[0] for flag in flags}
        done = self._run(" ".join([*flags, f"--{_CANARY}=1"]), _OPTIONS, check=False)
        said = done.stderr.decode(errors="replace")
        complaint = _UNKNOWN.search(said)
        if complaint is not None:
            return frozenset(names) - set(_NAME.findall(complaint.group(1)))
        # Some values crash some releases (a negative code): they got as far as a flag.
        if done.returncode > 0 and _USAGE not in said:
            raise _unexpected(self.python, said)
        return self._refused(flags, names, said)

    def _refused(self, flags: list[str], names: set[str], said: str) -> frozenset[str]:
        """Asks again, without the flags whose values XLA could not read; those are flags."""
        complaints, _, _ = said.partition(_USAGE)
        refused = set(_NAME.findall(complaints)) & names
        if refused:
            rest = [flag for flag in flags if _NAME.findall(flag)[0] not in refused]
            return frozenset(refused) | self._accepted(rest)
        if len(flags) == 1:
            return frozenset(names)
        # Some flags refuse a value without a word.
        half = len(flags) // 2
        return self._accepted(flags[:half]) | self._accepted(flags[half:])

    def _run(
        self,
        flags: str,
        code: str,
        check: bool = True,
        asked: bytes = b"",
        patience_s: float | None = _PATIENCE_S,
    ) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        environment |= {"TF_CPP_MIN_LOG_LEVEL": "0"}
        if not flags:
            del environment["XLA_FLAGS"]
        if self.folders:
            environment["PYTHONPATH"] = os.pathsep.join(map(str, self.folders))
        try:
            done = subprocess.run(
                [self.python, "-c", code],
                env=environment,
                input=asked,
                capture_output=True,
                timeout=patience_s,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _unexpected(self.python, str(error)) from None
        if check and done.returncode != 0:
            raise _unexpected(self.python, done.stderr.decode(errors="replace"))
        return done


def _unexpected(python: str, said: str) -> BadInput:
    tail = " / ".join(said.strip().splitlines()[-3:])
    return BadInput(
        f"jaxlib did not say which flags it accepts; {python} said: {tail[:500]}; "
        "does it start? python -c 'import jaxlib.xla_client'"
    )
