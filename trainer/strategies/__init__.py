"""Sync strategies: how the ranks' weights are kept the same."""

from augpipe.trainer.exchange.exchange_errors import SyncError
from augpipe.trainer.exchange.meter import Meter, butterfly_bytes
from augpipe.trainer.strategies.build_strategy import broadcast_module, strategy
from augpipe.trainer.strategies.hook import ButterflyState, butterfly_hook
from augpipe.trainer.strategies.owned_slices import merge
from augpipe.trainer.strategies.protocol import StepReport, Strategy

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
