"""docs/cards.md says what the cards say."""

from pathlib import Path

import pytest

from augpipe.datasets.cards.card import Card, list_cards
from augpipe.datasets.cards.table import END, START, cards_as_markdown, updated

PAGE = (Path(__file__).parents[3] / "docs/cards.md").read_text(encoding="utf-8")


def test_the_page_is_up_to_date() -> None:
    assert updated(PAGE) == PAGE, "run: python -m augpipe.datasets.cards.table docs/cards.md"
    for name in list_cards():
        assert f"### {name}\n" in PAGE


def test_what_lies_between_the_marks_is_made_anew() -> None:
    assert updated(f"a\n{START}\nold\n{END}\nb") == f"a\n{START}\n\n{cards_as_markdown()}\n{END}\nb"
    with pytest.raises(ValueError, match="the page lacks its marks"):
        updated(f"a\n{START}\nb")


@pytest.mark.parametrize("kind", ["reader", "kind"])
def test_every_reader_and_every_kind_of_classes_is_named(kind: str) -> None:
    definitions = Card.model_json_schema()["$defs"].values()
    names = [entry["properties"][kind]["const"] for entry in definitions if kind in entry["properties"]]
    assert len(names) >= 6
    before = PAGE.partition(START)[0]
    assert [name for name in names if f"`{name}`" not in before] == []
