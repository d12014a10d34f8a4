"""A process that reads recordings, one after the other, and answers with their digests.

It reads tasks from its input and writes answers to its output, until the input ends. Whatever
libraries print goes to stderr.
"""

from __future__ import annotations

import os
import signal
import sys

from slipstream.fleet.task import Task, digest_of, receive, send


def main() -> None:
    from slipstream.sources.mapped_file import survive_shrinking

    # Ctrl-C reaches the parent, too, which then closes the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    survive_shrinking()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            task = receive(sys.stdin.buffer)
        except EOFError:
            return
        assert isinstance(task, Task)
        send(answers, digest_of(task))


if __name__ == "__main__":
    main()
