"""The config of a training run."""

from augpipe.trainer.config.load import differences, example, load_config, make_config, to_toml
from augpipe.trainer.config.tables import RunConfig

__all__ = ["RunConfig", "differences", "example", "load_config", "make_config", "to_toml"]
