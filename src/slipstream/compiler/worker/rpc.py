"""Remote procedure calls over stdin and stdout, one line of JSON per request and answer.

    {"do": "compile", …}   →   the return value of the method, or {"error", "line", …}

XLA's log and the output of targets go to stderr, which the parent process keeps in a file.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from types import ModuleType
from typing import Any, TextIO

Answer = dict[str, Any]


def serve_stdin(worker: object) -> None:
    """Answer requests from stdin until it ends, then exit."""
    # Keep the output of targets out of the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(worker, sys.stdin, answers)
    answers.flush()
    os._exit(0)


def serve(worker: object, requests: TextIO, answers: TextIO) -> None:
    """Answer requests until there are no more."""
    for line in requests:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("do"))(**request)
        except (Exception, SystemExit) as error:
            # Any error in a target or XLA is an answer; the traceback goes to the log.
            traceback.print_exc()
            answer = failure_of(error)
        sys.stderr.flush()
        print(json.dumps(answer), file=answers, flush=True)


def failure_of(error: BaseException) -> Answer:
    """The error, and its place in the user's code: the last frame outside packages."""
    frames = traceback.extract_tb(error.__traceback__)
    packages = (
        os.sep + "site-packages" + os.sep,
        "<frozen",
        os.path.dirname(os.path.dirname(__file__)),
    )
    own = [f for f in frames if not any(part in f.filename for part in packages)]
    own = [f for f in own if not f.filename.startswith(os.path.dirname(os.__file__))]
    return {
        "error": type(error).__name__,
        "text": str(error),
        # Without the notes that JAX adds to errors.
        "line": f"{type(error).__name__}: {error}",
        "place": f"{own[-1].filename}:{own[-1].lineno}" if own else "",
        "names": _near_names(error),
    }


def _near_names(error: BaseException) -> list[str]:
    if not isinstance(error, AttributeError) or error.obj is None:
        return []
    # Objects of C++ have no __dict__.
    found = getattr(error.obj, "__dict__", {})
    functions = [name for name, value in found.items() if callable(value)]
    if not isinstance(error.obj, ModuleType):
        return functions
    # What a script imports is none of its functions.
    own = error.obj.__name__
    return [name for name in functions if getattr(found[name], "__module__", own) == own]
