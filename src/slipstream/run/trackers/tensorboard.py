"""TensorBoard: a run of its own beside the job's, and profiles where XProf's plugin finds them.

    LOGDIR/slipstream/events.out.tfevents…          scalars and texts
    LOGDIR/slipstream/receipt.html, report.html     pages, which TensorBoard itself does not show
    LOGDIR/plugins/profile/slipstream_before_…/     the recording before, and the one after

A second event file in the job's own run would hide what the job writes later: TensorBoard reads
the newest file of a folder only.
"""

from __future__ import annotations

import gc
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slipstream.remote.paths import RemotePath, any_path
from slipstream.remote.systems import shown
from slipstream.remote.upload import upload
from slipstream.run.trackers.event_file import write_events
from slipstream.run.trackers.tracked import PREFIX, Tracked
from slipstream.writing import make_folder

WRITERS = {
    "tensorboardX.writer": ("SummaryWriter", "logdir"),
    "tensorboard.summary.writer.event_file_writer": ("EventFileWriter", "_logdir"),
}
"""by module: a class that writes event files, and which of its attributes has the folder; PyTorch
uses TensorBoard's. Those of TensorFlow, which Flax and CLU use, keep no folder"""


@dataclass(frozen=True)
class TensorBoard:
    """One log folder."""

    folder: str

    @property
    def text(self) -> str:
        return f"TensorBoard in {shown(self.folder)}"

    def log(self, tracked: Tracked) -> None:
        texts = {f"{PREFIX}/{name}": text for name, text in tracked.texts.items()}
        pages = f"{shown(self.folder)}/{PREFIX}"
        texts[f"{PREFIX}/pages"] = f"{pages}: receipt.html; report.html if it was made"
        with self._written() as folder:
            write_events(folder / PREFIX, tracked.metrics, texts)
            for file in tracked.files:
                shutil.copyfile(file, folder / PREFIX / file.name)
            for when, recording in tracked.profiles.items():
                for file in recording.rglob("*.xplane.pb"):
                    # JAX's folder is the time of the recording: several runs may share a LOGDIR.
                    name = f"{PREFIX}_{when}_{file.parent.name}"
                    target = make_folder(folder / "plugins" / "profile" / name)
                    shutil.copyfile(file, target / file.name)

    def log_report(self, page: Path) -> None:
        with self._written() as folder:
            shutil.copyfile(page, make_folder(folder / PREFIX) / page.name)

    @contextmanager
    def _written(self) -> Iterator[Path]:
        """The log folder; or one whose files are then copied to the bucket that it is in."""
        place = any_path(self.folder)
        if not isinstance(place, RemotePath):
            yield place
            return
        with tempfile.TemporaryDirectory(prefix="slipstream-") as temporary:
            folder = Path(temporary)
            yield folder
            for file in sorted(one for one in folder.rglob("*") if one.is_file()):
                upload(file, place / file.relative_to(folder).as_posix())


def writer_of_this_process() -> TensorBoard | None:
    """The log folder of a writer that the job has; None if it has none."""
    classes = {
        getattr(sys.modules[module], name, None): attribute
        for module, (name, attribute) in WRITERS.items()
        if module in sys.modules
    }
    if not classes:
        return None
    for one in gc.get_objects():
        folder = getattr(one, classes[type(one)], None) if type(one) in classes else None
        if folder:
            return TensorBoard(str(folder))
    return None
