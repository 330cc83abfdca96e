"""How ranks agree on weights."""

from typing import Literal

from pydantic import Field

from augpipe.trainer.config.base import Section


class SyncConfig(Section):
    """The `[sync]` table."""

    strategy: Literal["ddp", "butterfly", "lazy"] = "ddp"
    """ddp: torch's own; butterfly: each rank sums its share of the gradient; lazy: each rank also keeps its share of
    the optimizer and sends updates, which are waited for only where they are used."""
    codec: str = "fp32"
    """What is sent: fp32, bf16, dynamic-tree, dynamic-map, linear, mantissa, static-tree, one-bit."""
    bucket_bytes: int | None = Field(default=None, ge=1)
    """Gradients that travel together, in bytes of float32; unset: 25 MiB for ddp, 4 MiB for the others."""
    error_feedback: bool = False
    """Add what encoding lost to the next step's gradient."""
    exempt_1d: bool = True
    """Send 1-D tensors (biases, normalisation) as float32 whatever the codec."""
