"""Commands: data on standard output, logs on standard error."""
