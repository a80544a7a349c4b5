"""The composition root: the only place that picks concrete classes."""
