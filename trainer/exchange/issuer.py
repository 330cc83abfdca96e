"""Stand-in until the branch with the issuing thread is merged."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

from augpipe.trainer.exchange.errors import SyncError


class Pending:
    def __init__(self, what: str, work: Any, timeout_s: float) -> None:
        self._what, self._work, self._timeout_s = what, work, timeout_s

    def wait(self) -> None:
        try:
            self._work.wait(timedelta(seconds=self._timeout_s))
        except RuntimeError as error:
            raise SyncError(f"waited for the {self._what}, at most {self._timeout_s:g} s, and got: {error}.") from error


class Issuer:
    def __init__(self, name: str, device: torch.device) -> None:
        self._name = name

    def submit(self, what: str, issue: Callable[[], Any], timeout_s: float) -> Pending:
        return Pending(what, issue(), timeout_s)

    def close(self) -> None:
        pass
