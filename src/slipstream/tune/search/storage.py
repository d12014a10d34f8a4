"""Where a study keeps its trials: SQLite in its folder, or a database server."""

from __future__ import annotations

import sqlite3
import time
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput, Missing, missing_extra
from slipstream.masking import mask_text

HEARTBEAT_S = 15
GRACE_S = 60
"""a worker that misses its heartbeats for this long is dead"""


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{(folder / 'study.sqlite3').absolute()}"


def open_storage(optuna: Any, url: str, grace_s: int = GRACE_S) -> Any:
    is_local = url.startswith("sqlite")
    options: dict[str, Any] = {"connect_args": {"timeout": 60}} if is_local else {}
    if url.startswith("postgresql://"):
        # SQLAlchemy's default is another driver.
        url = url.replace("postgresql://", "postgresql+psycopg://", 1)
    options |= {} if is_local else {"pool_pre_ping": True}
    for attempt in range(5):
        try:
            if is_local:
                _prepare(Path(url.removeprefix("sqlite:///")))
            storage = optuna.storages.RDBStorage(
                url, engine_kwargs=options, heartbeat_interval=HEARTBEAT_S, grace_period=grace_s
            )
            if is_local:
                _relax_syncing(storage.engine)
            return storage
        except ModuleNotFoundError as error:
            raise Missing(
                f"the storage {url.partition(':')[0]} needs the package {error.name}; install it "
                "with: pip install 'slipstream[postgresql]'"
            ) from None
        except (optuna.exceptions.StorageInternalError, _database_error()) as error:
            # Two processes may create the tables at the same time: the later one fails and retries.
            if attempt == 4:
                reason = mask_text(" ".join(str(error).split()))[:200]
                raise BadInput(
                    f"the storage {mask_text(url)} can't be used ({reason}); expected "
                    "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
                ) from None
            time.sleep(0.2 * 2**attempt)
    raise AssertionError


def _prepare(file: Path) -> None:
    """Use a write-ahead log: writers don't wait for readers, and a kill loses nothing."""
    try:
        with closing(sqlite3.connect(file, timeout=60)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
    except sqlite3.Error as error:
        raise BadInput(
            f"the study's file {file} can't be used ({error}); choose another folder with --study"
        ) from None


def _relax_syncing(engine: Any) -> None:
    """Don't wait for the disk on every write: only a power failure can lose the last trials."""
    from sqlalchemy import event

    event.listen(engine, "connect", lambda one, _: one.execute("PRAGMA synchronous=NORMAL"))


def _database_error() -> type[Exception]:
    from sqlalchemy.exc import SQLAlchemyError

    return SQLAlchemyError


def import_optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise missing_extra("optuna", "tune", "tuning") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # Heartbeats and multivariate TPE are marked experimental.
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    # `Study` sends the heartbeats itself, because it doesn't use `optimize`.
    warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed")
    return optuna
