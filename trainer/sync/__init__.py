"""Sync strategies: how the ranks' weights are kept the same."""

from augpipe.trainer.sync.choose import strategy
from augpipe.trainer.sync.errors import SyncError
from augpipe.trainer.sync.hook import ButterflyState, butterfly_hook
from augpipe.trainer.sync.meter import Meter, butterfly_bytes
from augpipe.trainer.sync.protocol import StepReport, Strategy
from augpipe.trainer.sync.shards import merge
from augpipe.trainer.sync.start import broadcast_module

__all__ = [
    "ButterflyState",
    "Meter",
    "StepReport",
    "Strategy",
    "SyncError",
    "broadcast_module",
    "butterfly_bytes",
    "butterfly_hook",
    "merge",
    "strategy",
]
