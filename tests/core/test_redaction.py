"""Secrets leave in no form (R-133, C-21)."""

import base64
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostside.core.redaction import MASK, Redactor

CANARY = "c4n4ry/with+odd chars=7"


@pytest.mark.parametrize(
    "text",
    [
        CANARY,
        quote(CANARY, safe=""),
        quote_plus(CANARY),
        base64.b64encode(CANARY.encode()).decode(),
        base64.b64encode(f"user:{CANARY}".encode()).decode(),
        base64.b64encode(f"me:{CANARY}".encode()).decode(),
        base64.b64encode(f"abc:{CANARY}".encode()).decode(),
        base64.urlsafe_b64encode(CANARY.encode()).decode(),
    ],
)
def test_a_known_secret_is_masked_in_every_form(text: str) -> None:
    masked = Redactor([CANARY]).text(f"before {text} after")
    assert MASK in masked
    assert masked.startswith("before ")
    core = text.strip("=")
    assert core[4:-4] not in masked


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("https://user:pw@host/x", f"https://{MASK}@host/x"),
        ("git clone 'https://oauth2:glpat-x@h.example/a.git'", f"git clone 'https://{MASK}@h.example/a.git'"),
        ("Authorization: Bearer abcdefghijklmnop", f"Authorization: Bearer {MASK}"),
        ("Basic dXNlcjpwYXNzd29yZA==", f"Basic {MASK}"),
        ("ghp_0123456789abcdefghij0123456789abcdef", MASK),
        ("token hst_abcdefghijklmnopqrstuvwxyz012345", f"token {MASK}"),
        ("lin_api_0123456789abcdef0123", MASK),
        ("sk-ant-api03-abcdefghijklmnop", MASK),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, left: str) -> None:
    assert Redactor().text(text) == left.replace(f"//{MASK}@", f"//{MASK}@")


@pytest.mark.parametrize(
    "text", ["a plain sentence", "https://host/path?x=1", "Bearer of news", "git@host:a/b.git", "12:34"]
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert Redactor([CANARY]).text(text) == text


@given(
    st.text(min_size=6, max_size=40).filter(lambda text: text.strip() == text and len(text) >= 6), st.text(max_size=20)
)
def test_no_value_carries_a_known_secret_out(secret: str, around: str) -> None:
    redactor = Redactor([secret])
    value = redactor.value({"k": [around + secret + around]})
    assert isinstance(value, dict)
    assert secret not in MASK + str(value["k"][0]).replace(MASK, "")  # type: ignore[index]


def test_short_values_are_not_taken_for_secrets() -> None:
    assert Redactor(["main"]).text("the main branch") == "the main branch"


def test_contents_keep_what_only_looks_like_a_secret() -> None:
    text = "ghp_0123456789abcdefghij0123456789abcdef"
    assert Redactor([CANARY]).known_value({"file": [text, CANARY]}) == {"file": [text, MASK]}


@pytest.mark.parametrize(
    "text", ["x" * 1_000_000, "//" * 200_000, "//a:" * 100_000, "Bearer " * 60_000, "authorization" * 40_000]
)
def test_the_time_of_redaction_is_linear_in_the_text(text: str) -> None:
    # A quadratic pattern needs hours here, not seconds; the bound on the whole suite would be felt long before.
    assert Redactor([CANARY]).text(text + CANARY).endswith(MASK)
