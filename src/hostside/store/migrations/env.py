"""Alembic's entry: runs inside the connection and the transaction that `store.upgrade` holds."""

from alembic import context

from hostside.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
