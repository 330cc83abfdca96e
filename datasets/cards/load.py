"""The cards that come with augpipe, and cards of one's own."""

import os
import tomllib
from pathlib import Path

from pydantic import ValidationError

from augpipe.datasets.cards.card import Card
from augpipe.datasets.names import printable

_HERE = Path(__file__).parent


def list_cards() -> tuple[str, ...]:
    """The names that `load_card` knows, sorted."""
    return tuple(sorted(path.stem for path in _HERE.glob("*.toml")))


def load_card(name: str | os.PathLike[str]) -> Card:
    """A card by its name (`list_cards()`), or from a TOML file of one's own, whose path ends with .toml.

    Raises:
        ValueError: there is no such card, or the file is not a valid one; says what is wrong in it.
        OSError: the file cannot be read.
    """
    text = os.fspath(name)
    if text.endswith(".toml"):
        return _read(Path(text))
    if text not in list_cards():
        raise ValueError(
            f"card {printable(text)!r} is not known. Known: {', '.join(list_cards())}; "
            "or give the path of a card of your own, which ends with .toml."
        )
    return _read(_HERE / f"{text}.toml")


def _read(path: Path) -> Card:
    shown = printable(os.fspath(path))
    try:
        with path.open("rb") as file:
            data = tomllib.load(file)
    except FileNotFoundError:
        known = ", ".join(list_cards())
        raise ValueError(f"card {shown!r} does not exist. Check the path, or give one of {known}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"card {shown!r} is not TOML: {error}. Fix it there.") from None
    try:
        card = Card.model_validate(data)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise ValueError(f"card {shown!r} is not valid: {faults}. Fix it there.") from None
    if card.name != path.stem:
        raise ValueError(f"card {shown!r} calls itself {card.name!r}. Give both the same name.")
    return card
