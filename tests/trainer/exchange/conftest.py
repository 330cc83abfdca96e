"""Fixtures of the exchange's tests."""

import pytest

from tests.trainer.exchange.cards import Stream, pretend_card


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """A "cuda" device, all of whose threads have one stream."""
    return pretend_card(monkeypatch)
