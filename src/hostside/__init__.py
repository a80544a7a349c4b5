"""The host's side of a coding agent's tool calls."""
