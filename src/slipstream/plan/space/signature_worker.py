"""The process that imports a build function to read its signature; see `compiler/worker/rpc.py`.

parameters  {module, function}   → {parameters}
"""

from __future__ import annotations

from slipstream.compiler.worker.rpc import Answer, serve_stdin
from slipstream.compiler.worker.worker import import_target
from slipstream.plan.space.parameters import parameters_of


class SignatureWorker:
    """Imports targets; it needs no XLA."""

    def parameters(self, module: str, function: str) -> Answer:
        build = getattr(import_target(module), function)
        return {"parameters": [one.to_json() for one in parameters_of(build)]}


if __name__ == "__main__":
    serve_stdin(SignatureWorker())
