"""How fast this machine decodes, plans, augments and loads, measured side by side in one run."""

from augpipe.bench.machine import machine
from augpipe.bench.measurements import Rate, Report, measure

__all__ = ["Rate", "Report", "machine", "measure"]
