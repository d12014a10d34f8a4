"""Where machine code is kept between processes, and under which name."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib.util import source_hash
from pathlib import Path

from slipstream.native.image import Image

_OWN = Path(__file__).parent


def fingerprint(signature: str, files: list[str]) -> str:
    """Everything the machine code depends on: sources, ours included, and the processor."""
    parts = [signature.encode(), _processor().encode(), _own_sources()]
    parts += [_bytes_of(file) for file in files]
    return source_hash(b"\0".join(parts)).hex()


def stored(file_name: str) -> Image | None:
    """The image of that name, if it was kept."""
    for folder in _folders():
        try:
            data = Path(folder, file_name).read_bytes()
        except OSError:
            continue
        return Image.from_bytes(data)
    return None


def kept(file_name: str, image: Image) -> Image:
    """Write an image to the first folder that can be written; if none can, go on without."""
    import tempfile

    for folder in _folders():
        try:
            os.makedirs(folder, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(image.to_bytes())
            os.replace(temporary, Path(folder, file_name))
        except OSError:
            continue
        break
    return image


def _folders() -> list[str]:
    """Beside the sources, else in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [str(_OWN / "__pycache__"), os.path.join(cache, "slipstream")]


@lru_cache(maxsize=1)
def _own_sources() -> bytes:
    return b"".join(_bytes_of(str(_OWN / f"{name}.py")) for name in ("numba_compiler", "linker"))


@lru_cache(maxsize=64)
def _bytes_of(file: str) -> bytes:
    return Path(file).read_bytes()


@lru_cache(maxsize=1)
def _processor() -> str:
    """What the processor can do. Linux says so at once; elsewhere LLVM is asked."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            # Every core has the same lines; a machine may have hundreds of cores.
            lines = file.read(8192).partition("\n\n")[0].splitlines()
    except OSError:
        lines = []
    named = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU "))]
    if not any(line.startswith(("flags", "Features")) for line in named):
        import llvmlite.binding as llvm

        named = [llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
    return "\n".join([sys.implementation.cache_tag, *named])
