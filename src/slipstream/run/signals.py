"""Signals to `slipstream run` are meant for its job: none is lost, from before it starts."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

FORWARDED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""those that ask a job to end"""


class SignalForwarder:
    """Keeps signals while the block runs; passes them on once there is a job."""

    def __init__(self) -> None:
        self.caught: list[int] = []
        """all of them, in order"""
        self._waiting: list[int] = []
        self._send: Callable[[int], None] | None = None
        self._before: dict[int, Any] = {}

    @property
    def ending(self) -> list[int]:
        """Those that asked the job to end."""
        return [number for number in self.caught if number in ENDING]

    def go_to(self, send: Callable[[int], None]) -> None:
        self._send = send
        while self._waiting:
            send(self._waiting.pop(0))

    def _catch(self, number: int, frame: object) -> None:
        self.caught.append(number)
        if self._send is None:
            self._waiting.append(number)
        else:
            self._send(number)

    def __enter__(self) -> SignalForwarder:
        for number in FORWARDED:
            # What we ignore, the job ignores: it inherits that, as under nohup.
            if signal.getsignal(number) is signal.SIG_IGN:
                continue
            try:
                self._before[number] = signal.signal(number, self._catch)
            except ValueError:
                break  # not the main thread: whoever called us has the signals
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
