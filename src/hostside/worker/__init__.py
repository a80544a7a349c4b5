"""Everything that starts for a run: its isolation, its processes, its workspace."""
