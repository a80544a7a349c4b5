"""One module for each revision, never edited after a release."""
