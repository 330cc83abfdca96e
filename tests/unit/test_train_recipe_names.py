"""Every recipe that the description of data.recipe names is one that training takes."""

import re

from augpipe.trainer.config.data import DataConfig
from augpipe.trainer.loop.data import training_recipe


def test_each_recipe_named_is_taken() -> None:
    described = DataConfig.model_fields["recipe"].description
    assert described is not None
    names = re.findall(r"\b[a-z_]+(?=,)", described)
    assert "deep_image" in names
    for name in names:
        training_recipe(DataConfig(source="photos", recipe=name))
