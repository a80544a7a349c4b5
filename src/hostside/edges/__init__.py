"""Edges: wire to call, result to wire. They decide nothing."""
