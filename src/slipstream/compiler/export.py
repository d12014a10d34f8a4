"""Write a compiled program to a file, as proto or text by the file's ending."""

from __future__ import annotations

import os
from pathlib import Path

from slipstream.compiler.compilation import Compilation
from slipstream.errors import BadInput
from slipstream.jaxhooks.hlo import text_from_proto
from slipstream.remote.paths import any_path
from slipstream.writing import atomic_write

PROTO, TEXT = (".pb",), (".hlo", ".txt")


def write_program(compilation: Compilation, path: str | os.PathLike[str]) -> Path:
    """`.pb` gets an HloModuleProto, `.hlo` and `.txt` what `compiled.as_text()` would print."""
    target = any_path(path)
    if target.suffix not in PROTO + TEXT:
        raise BadInput(
            f"{target.name} has no known ending; expected .hlo.pb for a proto, or .hlo or .txt for "
            "text"
        )
    data = compilation.proto.read_bytes()
    if target.suffix in TEXT:
        data = text_from_proto(data).encode()
    with atomic_write(target) as temporary:
        temporary.write_bytes(data)
    return target
