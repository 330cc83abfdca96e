"""Old paths of modules work for one release, and say so."""

import importlib
import warnings

import pytest

import augpipe


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("augpipe.recipe", "augpipe.recipes.recipe", "Recipe"),
        ("augpipe.schedule", "augpipe.recipes.schedule", "Schedule"),
        ("augpipe.source", "augpipe.sources.protocol", "Source"),
    ],
)
def test_an_old_path_gives_the_same_names_and_warns_where_it_is_written(old: str, new: str, name: str) -> None:
    module = importlib.import_module(old)
    with pytest.warns(DeprecationWarning, match=f"{old} is deprecated .* Write {new} instead.") as w:
        found = getattr(module, name)
    assert found is getattr(augpipe, name)
    assert [one.filename for one in w] == [__file__]


def test_what_an_old_path_never_had_is_missing_without_a_warning() -> None:
    module = importlib.import_module("augpipe.recipe")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(AttributeError, match="nothing_of_this_name"):
            module.nothing_of_this_name  # noqa: B018
