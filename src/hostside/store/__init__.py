"""Durable host state: receipts, journal, sessions, tokens, runs. SQLite through SQLAlchemy (D7, D18)."""
