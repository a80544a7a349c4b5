"""Built-in tools by subject."""
