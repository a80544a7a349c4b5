"""Schema history. Run at open by `database`; only imported when a file is new or older than this version."""
