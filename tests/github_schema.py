"""What GitHub's own schemas, as check-jsonschema has them, say of a file."""

import subprocess
import sys
from pathlib import Path


def github_schema(kind: str, *files: Path) -> str:
    """The verdict on `workflows` or `issue-forms`; it needs no network."""
    words = ["-m", "check_jsonschema", "--builtin-schema", f"vendor.github-{kind}", "--color=never"]
    done = subprocess.run(
        [sys.executable, *words, *map(str, files)], capture_output=True, text=True
    )
    return done.stdout + done.stderr
