"""How much of a result fits into the text that a caller gets (D22)."""

from hostside.core.canonical import JsonValue, compact

#: Under the 40,000 bytes of a success, with room for a tool's other fields.
MAX_TEXT_BYTES = 38_000


def json_bytes(value: JsonValue) -> int:
    """Return how many bytes a value takes as compact JSON."""
    return len(compact(value).encode())


def text_bytes(text: str) -> int:
    """Return how many bytes a text takes inside the quotes of compact JSON."""
    return json_bytes(text) - 2


def cut_text(text: str, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return the longest simple beginning of `text` that takes at most `max_bytes` inside JSON."""
    while (size := text_bytes(text)) > max_bytes:
        text = text[: min(len(text) - 1, len(text) * max_bytes // size)]
    return text


def fitting_lines(lines: list[str], max_characters: int, max_bytes: int = MAX_TEXT_BYTES) -> int:
    """Return how many lines from the first fit whole into both limits."""
    characters = size = 0
    for index, line in enumerate(lines):
        characters += len(line)
        size += text_bytes(line)
        if characters > max_characters or size > max_bytes:
            return index
    return len(lines)
