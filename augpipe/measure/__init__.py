"""How fast this machine decodes, plans, augments and loads, measured side by side in one run."""

from augpipe.measure.machine import machine
from augpipe.measure.report import Rate, Report, measure

__all__ = ["Rate", "Report", "machine", "measure"]
