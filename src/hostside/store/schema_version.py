"""Which version of the schema a file has, from two numbers in its header: no table is read, no Alembic loaded."""

from pathlib import Path

from sqlalchemy import Connection

from hostside.errors import ConfigError

#: The number of the newest migration.
SCHEMA_VERSION = 1
#: "HSTD": tells this product's files from any other SQLite database.
APPLICATION_ID = 0x48535444
#: Execution options of a connection whose transactions begin with the write lock. Reading first and writing later in
#: one deferred transaction fails under a second writer, without a wait.
IMMEDIATE = {"hostside_begin": "BEGIN IMMEDIATE"}
#: Execution options of a connection whose transactions read one snapshot.
SNAPSHOT = {"hostside_begin": "BEGIN"}


def is_current(connection: Connection, path: Path) -> bool:
    """Return whether the schema is the newest; False for an empty file or an older schema.

    Raises ConfigError for a file of a newer version and for another program's database.
    """
    version = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
    application = int(connection.exec_driver_sql("PRAGMA application_id").scalar_one())
    if application == APPLICATION_ID:
        if version > SCHEMA_VERSION:
            raise ConfigError(
                "invalid_configuration",
                f"{path} was written by a newer hostside (schema {version}; this one knows {SCHEMA_VERSION}).",
                remedy="Use that version or a newer one, or another state folder.",
            )
        return version == SCHEMA_VERSION
    empty = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one() == 0
    if application == 0 and version == 0 and empty:
        return False
    raise ConfigError(
        "invalid_configuration",
        f"{path} is a database of another program.",
        remedy="Name another file or state folder; this one is left as it is.",
    )
