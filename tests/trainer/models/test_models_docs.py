"""docs/models.md lists every network, with its numbers and options."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch

from augpipe.trainer.models import build, names, registry

PAGE = (Path(__file__).parents[3] / "docs" / "models.md").read_text()


def rows(heading: str) -> dict[str, list[str]]:
    """The cells of the table below the line that begins with `heading`, by the network's name."""
    table = PAGE.partition(heading)[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {row[0].strip("`"): row[1:] for row in cells if row[0].startswith("`")}


def test_the_page_lists_every_network_in_their_order() -> None:
    assert tuple(rows("| name | weights and biases |")) == names()
    assert tuple(rows("| name | difference |")) == names()


@pytest.mark.parametrize("name", names())
def test_a_networks_numbers_are_as_on_the_page(name: str) -> None:
    match = re.fullmatch(r"([\d,]+) with (\d+) classes", rows("| name | weights and biases |")[name][0])
    assert match is not None
    with torch.device("meta"):
        model = build(name, num_classes=int(match[2]))
    assert f"{sum(parameter.numel() for parameter in model.parameters()):,}" == match[1]


@pytest.mark.parametrize("name", names())
def test_a_networks_options_are_as_on_the_page(name: str) -> None:
    module, _, function = registry._BUILDERS[name].partition(":")
    builder = getattr(import_module(f"augpipe.trainer.models.{module}"), function)
    options = [f"`{option}`" for option in inspect.signature(builder).parameters if option != "num_classes"]
    written = rows("| name | difference |")[name][1]
    assert written == ", ".join(options) or (written == "the same" and "`filters`" in options)
