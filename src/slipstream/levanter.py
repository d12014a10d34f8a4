"""Recordings of Levanter's training: a callback, and the configuration group of one.

    trainer.add_hook(slipstream.levanter.Capture("profiles", start=5, steps=3))
    TrainerConfig(profiler=slipstream.levanter.CaptureConfig(dir="gs://bucket/profiles"))

    python -m slipstream.levanter --config_path llama.yaml --trainer.profiler.dir profiles

The last one is `levanter.main.train_lm` with that group in place of Levanter's own. Importing this
module imports Levanter; `import slipstream` does not.
"""

# No `from __future__ import annotations`: Levanter's configuration reads the types of fields.
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.api.capture import capture
from slipstream.errors import Missing

try:
    from levanter.callbacks import Callback, ProfilerConfig, StepInfo
    from levanter.main import train_lm
    from levanter.trainer import TrainerConfig
except ImportError as error:
    raise Missing(
        f"slipstream.levanter needs Levanter, which can't be imported ({error}): "
        "pip install marin-levanter"
    ) from error

__all__ = ["Capture", "CaptureConfig"]


class Capture(Callback):  # type: ignore[misc]
    """Records the steps `start` to `start + steps - 1` of a training, for `trainer.add_hook`.

    `dir` and the other arguments are those of `slipstream.capture`. A failure is a warning in the
    log, never an exception in the training.
    """

    def __init__(
        self, dir: str | Path = "profiles", start: int = 5, steps: int = 3, **more: Any
    ) -> None:
        self.recording = capture(dir, start, steps, **more)
        """its `folder` and `problem` say how it went"""

    def on_step(self, info: StepInfo, force: bool = False) -> None:
        # Levanter calls after a step, so a recording begins before the next one.
        self.recording(info.next_step, force=force)
        if force:
            self.recording.wait()


@dataclass(frozen=True)
class CaptureConfig(ProfilerConfig):  # type: ignore[misc]
    """Levanter's `trainer.profiler`, recorded by Slipstream.

    `dir` is a folder or a URL (gs://, s3://), and by default where Levanter keeps its profiles.
    """

    enabled: bool = True
    num_steps: int = 3
    dir: str | None = None

    def build(self, path: str, run_id: str, num_steps: int | None = None) -> Capture:
        """The callback that Levanter's trainer adds."""
        return Capture(
            self.dir or path,
            self.start_step,
            self.num_steps if num_steps is None else num_steps,
            perfetto=self.perfetto_link or self.create_perfetto_trace,
            options=self.build_jax_profile_options(),
            profiler=self._is_recorded(),
        )

    def _is_recorded(self) -> bool:
        import jax

        return self.process_index is None or jax.process_index() == self.process_index


@dataclass
class _Trainer(TrainerConfig):  # type: ignore[misc]
    profiler: CaptureConfig = field(default_factory=CaptureConfig)


@dataclass
class _TrainLm(train_lm.TrainLmConfig):  # type: ignore[misc]
    trainer: _Trainer = field(default_factory=_Trainer)


def _train(config: _TrainLm) -> None:
    train_lm.main(config)


if __name__ == "__main__":
    import levanter.config

    levanter.config.main(_train)()
