"""What of this machine augpipe can use, what is missing, and how to get it."""

from augpipe.doctor.examine import examine, is_well
from augpipe.doctor.finding import Finding, Status

__all__ = ["Finding", "Status", "examine", "is_well"]
