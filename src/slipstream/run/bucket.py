"""`slipstream run --out s3://…`: the run writes to a local folder, which is copied to the bucket.

The job must not depend on a bucket: nothing waits for it while the job runs, and a bucket that
can't be reached is a warning that names the local folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from slipstream.remote.mirroring import Mirroring, local_folder
from slipstream.remote.paths import RemotePath
from slipstream.remote.systems import shown
from slipstream.run.context import RunResult, Say
from slipstream.run.rank import Rank
from slipstream.run.run_dir import FILES, FOLDERS
from slipstream.run.settings import DEFAULT_FOLDER, Settings
from slipstream.writing import MARKER

Run = Callable[[Settings, Say], RunResult]


def run_in_bucket(settings: Settings, out: RemotePath, run: Run, say: Say) -> RunResult:
    """Run in a local folder, and copy it to the bucket: as files are complete, and at the end."""
    url, folder = str(out), local_folder(str(out), DEFAULT_FOLDER)
    rank = Rank.here(settings.rank, os.environ)
    mirroring = Mirroring(
        url, folder, (*FILES, *FOLDERS, MARKER), lambda text: say("", text), rank.index
    )
    mirroring.start()
    if rank.is_first:
        say("bucket", f"this run works in {folder} and is copied to {shown(url)}")
    try:
        return run(replace(settings, out=folder), say)
    finally:
        # However the run ended: what it wrote is copied.
        is_copied = mirroring.finish()
        if is_copied and rank.is_first:
            say("bucket", f"copied; see: slipstream summary {shown(url)}")
