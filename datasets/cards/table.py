"""The cards as Markdown, for the reference."""

from augpipe.datasets.cards.card import Card, list_cards, load_card


def cards_as_markdown() -> str:
    """A table of all cards."""
    table = ["| card | dataset | classes | samples of each split |", "|---|---|---|---|"]
    for card in map(load_card, list_cards()):
        splits = ", ".join(f"`{name}` {_number(split.num_samples)}" for name, split in card.splits.items())
        table.append(f"| `{card.name}` | [{card.title}]({card.home}) | {_number(card.num_classes)} | {splits} |")
    return "\n".join([*table, ""])


def card_sections() -> str:
    """A section on each card: licence, citation, archives, notes and layout."""
    return "\n".join(line for name in list_cards() for line in _section(load_card(name)))


def _section(card: Card) -> list[str]:
    return [
        f"## {card.name}",
        "",
        f"{card.title}, {card.home}",
        "",
        f"- Licence: {card.licence}",
        f"- Cite: {card.citation}",
        f"- Archives: {', '.join(f'`{archive}`' for archive in card.archives)}",
        *([f"- Notes: {card.notes}"] if card.notes else []),
        "",
        "```",
        card.layout.strip("\n"),
        "```",
        "",
    ]


def _number(number: int | None) -> str:
    return "not known" if number is None else f"{number:,}"
