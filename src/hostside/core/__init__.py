"""The boundary, pure: no process, no network, no file, no framework."""
