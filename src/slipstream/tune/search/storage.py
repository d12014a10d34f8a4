"""Where a study's trials are: SQLite in its folder, or a server that several machines reach."""

from __future__ import annotations

import sqlite3
import time
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput, Missing, missing_extra

HEARTBEAT_S = 15
GRACE_S = 60
"""a heart that is silent for so long has stopped"""


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{(folder / 'study.sqlite3').absolute()}"


def open_storage(optuna: Any, url: str, grace_s: int = GRACE_S) -> Any:
    is_local = url.startswith("sqlite")
    options: dict[str, Any] = {"connect_args": {"timeout": 60}} if is_local else {}
    if url.startswith("postgresql://"):
        # SQLAlchemy's own default is another driver.
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
                _spare_the_disk(storage.engine)
            return storage
        except ModuleNotFoundError as error:
            raise Missing(
                f"the storage {url.partition(':')[0]} needs the package {error.name}; install it "
                "with: pip install 'slipstream[postgresql]'"
            ) from None
        except (optuna.exceptions.StorageInternalError, _database_error()) as error:
            # Two processes that make the tables at the same time: one of them is late.
            if attempt == 4:
                reason = " ".join(str(error).split())[:200]
                raise BadInput(
                    f"the storage {_without_password(url)} can't be used ({reason}); expected "
                    "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
                ) from None
            time.sleep(0.2 * 2**attempt)
    raise AssertionError


def _prepare(file: Path) -> None:
    """A log ahead of the file: writers don't wait for readers, and a kill loses nothing."""
    try:
        with closing(sqlite3.connect(file, timeout=60)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
    except sqlite3.Error as error:
        raise BadInput(
            f"the study's file {file} can't be used ({error}); choose another folder with --study"
        ) from None


def _spare_the_disk(engine: Any) -> None:
    """Only a power cut can lose the last lines, never a kill: not each one waits for the disk."""
    from sqlalchemy import event

    event.listen(engine, "connect", lambda one, _: one.execute("PRAGMA synchronous=NORMAL"))


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.rpartition(':')[0] or head}{at}{tail}" if ":" in head[8:] else url


def _database_error() -> type[Exception]:
    from sqlalchemy.exc import SQLAlchemyError

    return SQLAlchemyError


def import_optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise missing_extra("optuna", "tune", "tuning") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # Heartbeats and multivariate TPE are called experimental; their names may change, no more.
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    # They are beaten here, since candidates are asked for, not handed to `optimize`.
    warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed")
    return optuna
