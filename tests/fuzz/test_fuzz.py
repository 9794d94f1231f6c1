"""A short run of the fuzzer (`make fuzz` is a longer one), and what it is made of."""

import pytest

from tests.fuzz.__main__ import run
from tests.fuzz.cases import shortest
from tests.fuzz.texts import corpus, tokens

SEED = 1


def test_texts_are_cut_and_put_together_without_loss() -> None:
    assert len(corpus()) > 1000
    assert all("".join(tokens(text)) == text for _, text in corpus())


def test_what_fails_is_made_short() -> None:
    assert shortest(list("abcdefgh"), lambda parts: "c" in parts and "f" in parts) == ["c", "f"]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 120, 30))
def test_a_short_run(first: int) -> None:
    found = [
        f"seed {SEED}, case {number}: {what}" for number in range(first, first + 30) if (what := run(SEED, number))
    ]
    assert not found, "\n".join(found)
