"""What the store raises."""

from hostside.errors import HostsideError


class StoreUnavailable(HostsideError):
    """The database could not be read or written: disk full, read-only, locked for too long, damaged, closed."""


class NotStored(HostsideError):
    """No row has this id."""


class StateConflict(HostsideError):
    """The row exists and its state does not allow this change. Nothing was written."""
