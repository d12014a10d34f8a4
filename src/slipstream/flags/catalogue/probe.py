"""Test what a jaxlib accepts in `XLA_FLAGS`, and its defaults, by running it.

XLA reads `XLA_FLAGS` once, when the first options are created.  It reports every value that it
can't parse or, if there is none, every unknown name, and aborts the process:

    --a=1 --b=1 --c=1 ──► "Couldn't interpret value 1 for flag b"     b is a flag with other values
    --a=1 --c=1       ──► "Unknown flags in XLA_FLAGS: --c=1"         c is not a flag, a is

Releases before 2024 don't look for unknown names if a value can't be parsed, and don't abort.  So
each test includes one name that is certainly unknown: until XLA reports it, some value is invalid.
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
    except BaseException:  # the child must never return into the parent's code
        os._exit(3)
    os._exit(0)

print(json.dumps([ends(flags) for flags in json.load(sys.stdin)]))
"""
"""one process per string, forked after jaxlib is loaded but has read no flags: 5 ms each"""
_UNKNOWN = re.compile(r"Unknown flags? in XLA_FLAGS:((?: --\S+)*)")
"""up to the first double space, after which old releases list the flags that they know"""
_USAGE = "usage:"
_CANARY = "xla_no_release_has_this_flag"
_NAME = re.compile(r"[a-z0-9_]+")
_BATCH = 150
"""names per process: XLA truncates its messages at 15,000 characters"""
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Probe:
    """How to start a jaxlib: a Python, and the folders of jaxlib and its requirements."""

    python: str = sys.executable
    folders: tuple[Path, ...] = field(default=())

    def compile_options(self) -> bytes:
        """A serialized `CompileOptionsProto` with nothing set: the defaults."""
        return self._run("", _PRINT_OPTIONS).stdout

    def accepted(
        self, names: Mapping[str, str], alone: Collection[str] = frozenset()
    ) -> frozenset[str]:
        """The flags in `names` (each with a value) that `XLA_FLAGS` accepts.

        Those in `alone` are tested one by one, since they may silently reject a value.
        """
        ordered = sorted(f"--{name}={names[name]}" for name in set(names) - set(alone))
        batches = [ordered[at : at + _BATCH] for at in range(0, len(ordered), _BATCH)]
        batches += [[f"--{name}={names[name]}"] for name in sorted(set(names) & set(alone))]
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            return frozenset().union(*pool.map(self._accepted, batches))

    def usage(self) -> str:
        """XLA's own help: every flag with its default and its description."""
        done = self._run("--xla_backend_optimization_level=none", _OPTIONS, check=False)
        return done.stderr.decode(errors="replace")

    def aborts(self, strings: Sequence[str]) -> list[bool]:
        """For each string, whether a process with it as `XLA_FLAGS` aborts."""
        count = max(1, min(os.cpu_count() or 1, len(strings)))
        shares = [strings[at::count] for at in range(count)]
        with ThreadPoolExecutor(max_workers=count) as pool:
            answers = list(pool.map(self._aborts, shares))
        return [answers[at % count][at // count] for at in range(len(strings))]

    def _aborts(self, strings: Sequence[str]) -> list[bool]:
        done = self._run("", _TRY_ALL, stdin=json.dumps(strings).encode(), timeout_s=None)
        answer: list[bool] = json.loads(done.stdout)
        return answer

    def _accepted(self, flags: list[str]) -> frozenset[str]:
        if not flags:
            return frozenset()
        names = {_NAME.findall(flag)[0] for flag in flags}
        done = self._run(" ".join([*flags, f"--{_CANARY}=1"]), _OPTIONS, check=False)
        stderr = done.stderr.decode(errors="replace")
        unknown = _UNKNOWN.search(stderr)
        if unknown is not None:
            return frozenset(names) - set(_NAME.findall(unknown.group(1)))
        # Some values crash some releases (a negative code), which means that they name a flag.
        if done.returncode > 0 and _USAGE not in stderr:
            raise _unexpected(self.python, stderr)
        return self._refused(flags, names, stderr)

    def _refused(self, flags: list[str], names: set[str], stderr: str) -> frozenset[str]:
        """Test again without the flags whose values XLA could not parse; those exist."""
        errors, _, _ = stderr.partition(_USAGE)
        refused = set(_NAME.findall(errors)) & names
        if refused:
            rest = [flag for flag in flags if _NAME.findall(flag)[0] not in refused]
            return frozenset(refused) | self._accepted(rest)
        if len(flags) == 1:
            return frozenset(names)
        # Some flags silently reject a value.
        half = len(flags) // 2
        return self._accepted(flags[:half]) | self._accepted(flags[half:])

    def _run(
        self,
        flags: str,
        code: str,
        check: bool = True,
        stdin: bytes = b"",
        timeout_s: float | None = _TIMEOUT_S,
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
                input=stdin,
                capture_output=True,
                timeout=timeout_s,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _unexpected(self.python, str(error)) from None
        if check and done.returncode != 0:
            raise _unexpected(self.python, done.stderr.decode(errors="replace"))
        return done


def _unexpected(python: str, stderr: str) -> BadInput:
    tail = " / ".join(stderr.strip().splitlines()[-3:])
    return BadInput(
        f"can't find out which flags jaxlib accepts; {python} printed: {tail[:500]}; "
        "check that it starts: python -c 'import jaxlib.xla_client'"
    )
