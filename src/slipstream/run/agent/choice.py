"""What the job's processes measure: the first rank chooses by device time, the others follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.run.agent.announcements import Announcements, announcements_for
from slipstream.run.agent.call_timer import CallTimer
from slipstream.run.agent.hot_program import HotProgramChooser
from slipstream.run.agent.request import APPLY, COMPARE, LOOP, PROFILE, Request

RECONSIDERED = (PROFILE, COMPARE, LOOP, APPLY)
"""modes in which another program may take over; the others watch one, and let go of the rest"""
MOST_NAMED = 8
"""functions that a message lists"""


class Choice:
    """Which program is measured next, on this rank."""

    def __init__(self, request: Request) -> None:
        self.chooser = HotProgramChooser(max(request.start - 1, 1), request.functions)
        self.is_reconsidered = request.mode in RECONSIDERED
        self._request = request
        self.seconds_not_run: Callable[[CompiledProgram], float] = lambda program: 0.0
        """what a call would take that is not really run"""
        self._call_timer = CallTimer()
        self._others: Announcements | None = None
        """what ranks tell each other; None for a process on its own"""

    @property
    def is_made_here(self) -> bool:
        """Whether this rank chooses: of several, only the first does."""
        return self._others is None or self._others.is_leader

    @property
    def is_shared(self) -> bool:
        return self._others is not None

    def run(
        self, program: CompiledProgram, arguments: Sequence[Any], run: Callable[[], Any]
    ) -> Any:
        """Run a call of a program that is not measured, and see how long it takes."""
        if self.is_made_here and self.chooser.is_timed(program):
            result, seconds = self._call_timer.timed(arguments, run)
            self.chooser.called(program, seconds + self.seconds_not_run(program))
        else:
            result = self._call_timer.run(run)
            self.chooser.called(program)
        return result

    def is_next(self, program: CompiledProgram) -> bool:
        """Whether a program is to be measured from now on."""
        if program.calls == 1 and self._others is None and self.is_reconsidered:
            # Ranks that reach each other through a folder need one that is the same for all.
            folder = Path(self._request.folder).parent
            self._others = announcements_for(folder, self._request.mode)
        if self._others is None:
            return self.chooser.is_next(program)
        if self._others.is_leader:
            return len(program.processes) > 1 and self.chooser.is_next(program)
        heard = self._others.heard()
        if heard is None or not heard.is_of(program):
            return False
        self._others.follow()
        return True

    @property
    def is_over_elsewhere(self) -> bool:
        """Whether the rank that chooses has ended it."""
        heard = self._others.heard() if self._others is not None else None
        return heard is not None and heard.is_over

    def begin(self, program: CompiledProgram, *, is_known: bool) -> None:
        """A program is measured; ranks that know it from an earlier run need not be told."""
        self.chooser.begin(program)
        if self._others is not None and self._others.is_leader and not is_known:
            self._others.announce(program)

    def is_negligible(self, program: CompiledProgram) -> bool:
        """Whether a program may run at full speed from now on, unwatched."""
        return self.is_made_here and self.chooser.is_negligible(program)

    def end_everywhere(self) -> None:
        """Tell the other ranks that nothing more is measured."""
        if self._others is not None and self._others.is_leader:
            self._others.announce(None)

    def why_nothing(self) -> str | None:
        """Why no program was chosen, where it is the user's choice or the job has none."""
        if self.chooser.busiest() is None:
            return "the job called no jitted function"
        if self._request.functions and not self.chooser.has_called_chosen:
            asked = " or ".join(self._request.functions)
            ran = ", ".join(self.chooser.names()[:MOST_NAMED])
            return f"the job called no function named {asked}; give --function one of: {ran}"
        return None
