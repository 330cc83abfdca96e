"""What a link sends through which process group: a GPU's takes tensors of the device alone."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from augpipe.trainer.codecs import codec
from augpipe.trainer.exchange.issuer import Issuer
from augpipe.trainer.parallel import link as link_module
from augpipe.trainer.parallel import pieces as pieces_module
from augpipe.trainer.parallel.link import Link

NCCL: Any = "a group over plain NCCL"
GLOO: Any = "another group of the same ranks"


class Dist:
    """torch.distributed of rank 0 of 2, where rank 1 sends what this one does."""

    ProcessGroup = object

    def __init__(self) -> None:
        self.made: list[Any] = []

    def get_rank(self, _group: Any) -> int:
        return 0

    def get_world_size(self, _group: Any) -> int:
        return 2

    def get_process_group_ranks(self, _group: Any) -> list[int]:
        return [0, 1]

    def all_to_all_single(self, received: Any, sent: Any, *_: Any, group: Any, **__: Any) -> Any:
        self._refuse(sent, group)
        received.copy_(sent)
        return SimpleNamespace(wait=lambda *timeout: None)

    def all_gather(self, outs: list[Any], mine: Any, *, group: Any, **_: Any) -> None:
        self._refuse(mine, group)
        for out in outs:
            out.copy_(mine)

    def _refuse(self, sent: Any, group: Any) -> None:
        if group == NCCL and sent.device.type == "cpu":
            raise RuntimeError("No backend type associated with device type cpu")


def test_ranks_agree_over_plain_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their whole numbers lie in the host's memory, which NCCL does not take."""
    dist = Dist()
    for module in (link_module, pieces_module):
        monkeypatch.setattr(module, "dist", dist)
    issuer = Issuer("model axis", torch.device("cpu"))
    fp32 = codec("fp32")
    link = Link(NCCL, issuer, host_group=GLOO, activations=fp32, deltas=fp32, timeout_s=2.0)
    assert link.agree([3, 1, 7]) == [[3, 1, 7], [3, 1, 7]]
    assert link.meter.total["control"] == 24
    issuer.close()
