"""The network of a run: one host-side proxy that a run's policy opens, and nothing else (D25)."""
