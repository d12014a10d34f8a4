"""Receipts beside the job: profiles are read in a thread, and no step waits for it."""

from __future__ import annotations

import logging
import threading

from slipstream.errors import SlipstreamError
from slipstream.experiment.controller import Controller
from slipstream.experiment.receipt import Receipt, receipt_of
from slipstream.jaxhooks.shutdown import SHUTDOWN, run_in_background

log = logging.getLogger("slipstream")

_LOCK = threading.Lock()


def receipt_when_ready(controller: Controller) -> Receipt:
    """The receipt of a loop that is done; made now where nobody has made it."""
    with _LOCK:
        if controller.receipt is None:
            controller.receipt = receipt_of(controller)
        return controller.receipt


def write_receipt_later(controller: Controller) -> threading.Thread:
    """Write it into the loop's folder, in a thread."""
    return run_in_background(lambda: _write(controller), "slipstream-receipt")


def _write(controller: Controller) -> None:
    try:
        # What was found first, then what the profiles show: a process may end in between.
        receipt_of(controller, reads_profiles=False).write(controller.plan.folder)
        receipt_when_ready(controller).write(controller.plan.folder)
    except (OSError, SlipstreamError) as problem:
        log.warning("slipstream: the receipt was not written: %s", problem)
    except Exception:
        # A process that ends starts no threads any more, which reading a profile needs.
        if not SHUTDOWN.is_set():
            log.warning("slipstream: the receipt was not written", exc_info=True)
