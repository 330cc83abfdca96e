"""Overrides that look like something else: names that are dates or numbers, and tables that are none."""

import re
from typing import Any

import pytest

from augpipe.trainer.config import make_config

MINIMAL: dict[str, Any] = {"data": {"source": "photos"}}


@pytest.mark.parametrize("name", ["2026-11-21", "7", "1e5", "true", "inf", "07:30:00", "[1]", "a b"])
def test_a_bare_word_is_a_name(name: str) -> None:
    assert make_config(MINIMAL, [f"out={name}"]).out == name
    assert make_config(MINIMAL, [f"out='{name}'"]).out == name
    assert make_config(MINIMAL, [f"model.weights={name}"]).model.weights == name
    assert make_config(MINIMAL, ["model.options.width=7"]).model.options == {"width": 7}


@pytest.mark.parametrize(
    ("tables", "text", "message"),
    [
        ({"optim": "sgd"}, "optim.lr=0.1", "--set optim.lr=0.1: the config has optim = 'sgd', where a table belongs."),
        ({"model": {"options": 3}}, "model.options.width=1", "the config has options = 3, where a table belongs."),
    ],
)
def test_a_value_in_a_tables_place(tables: dict[str, Any], text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make_config(MINIMAL | tables, [text])
