"""Which network a run trains, from which weights, and which of its layers."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from augpipe.trainer.config.base import Section


def _is_trainable(text: str) -> str:
    if not re.fullmatch(r"all|last|last-fc:[1-9][0-9]*", text):
        raise ValueError(f'trainable={text!r} is none of "all", "last" and "last-fc:N" with N from 1 on.')
    return text


class ModelConfig(Section):
    """The `[model]` table."""

    name: str = "small-cnn"
    """A network of augpipe.trainer.models, or torchvision:NAME or timm:NAME where those are installed."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What the network's builder takes beside num_classes, as { width = 64 }."""
    num_classes: int | None = Field(default=None, ge=2)
    """Outputs; left out: as many as the source has classes."""
    weights: str | None = None
    """A file to start from (weights only: no code in it is run); what does not match is listed, and ends the run."""
    new_head: bool = False
    """With weights: let the last layer begin anew where the file's is of another shape, as for other classes."""
    trainable: Annotated[str, AfterValidator(_is_trainable)] = "all"
    """Which layers train: all, last, or last-fc:N for the last N fully connected layers."""
    dropout: float | None = Field(default=None, ge=0.0, lt=1.0)
    """Probability for every dropout layer of the network; left out: as the network has them."""
    channels_last: bool = False
    """Hold weights and pictures as NHWC in memory, which convolutions on newer GPUs prefer."""
    compile: bool = False
    """Run the network through torch.compile."""
    sync_batchnorm: bool = False
    """Batch normalisation over all ranks' batches; CUDA only."""
