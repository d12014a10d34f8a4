"""Recordings of Keras's training with the JAX backend: a callback for `fit`.

    model.fit(x, y, callbacks=[slipstream.keras.Capture("profiles", start=5, steps=3)])

Importing this module imports Keras; `import slipstream` does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slipstream.api.capture import capture
from slipstream.errors import Missing

try:
    import keras
except ImportError as error:
    raise Missing(
        f"slipstream.keras needs Keras, which can't be imported ({error}): pip install keras jax"
    ) from error

__all__ = ["Capture"]


class Capture(keras.callbacks.Callback):  # type: ignore[misc]
    """Records some batches of a training with JAX's profiler.

    `start` counts the batches of all epochs, from 0; with `steps_per_execution`, the executions.
    `dir` and the other arguments are those of `slipstream.capture`. A failure is a warning in the
    log, never an exception in the training.
    """

    def __init__(
        self, dir: str | Path = "profiles", start: int = 5, steps: int = 3, **more: Any
    ) -> None:
        super().__init__()
        self.recording = capture(dir, start, steps, **more)
        """its `folder` and `problem` say how it went"""
        self._train: Any = None
        self._results: Any = None
        if keras.backend.backend() != "jax":
            self.recording.skip(
                f"Keras's backend is {keras.backend.backend()}, and only JAX can be recorded; set "
                "KERAS_BACKEND=jax"
            )

    def on_train_begin(self, logs: Any = None) -> None:
        # Not `on_train_batch_begin`: Keras calls that in another thread, at any time, unless a
        # callback wants every batch's results, and that would make every batch wait for them.
        if keras.backend.backend() == "jax":
            self._train = self.model.train_function
            self.model.train_function = self._recorded

    def _recorded(self, state: Any, batches: Any) -> Any:
        self.recording(wait_for=self._results)
        results = self._train(state, batches)
        self._results = results[0]  # the state is donated to the next batch
        return results

    def on_train_end(self, logs: Any = None) -> None:
        if self._train is not None:
            self.model.train_function, self._train = self._train, None
            self.recording(wait_for=self._results, force=True)
            self.recording.wait()
