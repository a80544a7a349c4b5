"""Bring a new or older file to the newest schema. Apart from `database`, so that a current file never loads Alembic."""

import logging
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine

from hostside.errors import ConfigError
from hostside.store.schema_version import APPLICATION_ID, IMMEDIATE, SCHEMA_VERSION

_log = logging.getLogger(__name__)


def upgrade(engine: Engine, path: Path) -> None:
    """Run the missing migrations in one transaction. The caller holds the folder's lock.

    Raises ConfigError when the file system cannot keep a write-ahead log.
    """
    with engine.connect() as connection:
        mode = connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar_one()
    if mode != "wal":
        raise ConfigError(
            "invalid_configuration",
            f"{path}: this file system cannot keep SQLite's write-ahead log (journal mode is {mode}).",
            remedy="Put the state folder on a local disk.",
        )
    with engine.connect().execution_options(**IMMEDIATE) as connection, connection.begin():
        _migrate(connection)
        # Both are part of the transaction: a file is either wholly this version or what it was.
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA_VERSION}")
    _log.info("database schema is now version %d", SCHEMA_VERSION)


def _migrate(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
