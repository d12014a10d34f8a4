"""How far predictions are from what was measured; writes docs/accuracy.md, failures included.

    python benchmarks/accuracy.py [--external FOLDER] [--output FILE]

What it needs beside the repository: the folder of recordings made by others (see
CONTRIBUTING.md), and, for the last part on them, the compiler extra.  Parts whose inputs are
absent say so on the page.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from accuracy_parts import mocked, models, offload, pax  # noqa: E402

REPOSITORY = Path(__file__).resolve().parent.parent
HEAD = """# How accurate predictions are

Made by `benchmarks/accuracy.py` from recordings on an H200 (`tests/data`) and of others; nothing
here is written by hand, and what misses its goal is shown like the rest.

An error is predicted over measured, less one. *Measured* is the device time of the median recorded
step, from its first kernel to the end of its last. A step of one program swings by several per cent
between minutes and machines (kernels run slower as the GPU warms up), so no prediction from another
recording can be better than that.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--external", default=str(REPOSITORY.parent / "shared/traces/external"))
    parser.add_argument("--output", default=str(REPOSITORY / "docs" / "accuracy.md"))
    options = parser.parse_args()
    data = REPOSITORY / "tests" / "data"
    parts = [
        offload.page(data),
        pax.page(Path(options.external)),
        models.page(data),
        mocked.page(data / "accuracy"),
    ]
    Path(options.output).write_text("\n".join([HEAD, *parts]).rstrip() + "\n", encoding="utf-8")
    print(Path(options.output).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
