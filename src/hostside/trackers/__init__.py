"""Adapters: one module for each tracker kind, which never know each other."""
