"""What ranks tell each other as JSON and bytes."""

import pytest
import torch
import torch.distributed as dist

from augpipe.trainer.exchange import objects
from augpipe.trainer.exchange.objects import broadcast_json, gather_bytes, gather_json


def json_of_all_ranks(rank: int, world_size: int) -> None:
    """Values of any length, one of them None; a tuple is a list for all, and what JSON lacks is refused."""
    values = [None, {"a": [1, 2.5, "é" * 1000], "b": (True, None)}][:world_size]
    expected = [None, {"a": [1, 2.5, "é" * 1000], "b": [True, None]}][:world_size]
    assert gather_json(values[rank], dist.group.WORLD) == expected
    assert broadcast_json({"rank": rank}) == {"rank": 0}
    with pytest.raises(TypeError, match="not JSON serializable"):
        gather_json({1, 2})


def bytes_of_all_ranks(rank: int, world_size: int) -> None:
    """Of different lengths, in several chunks, or none at all."""
    objects.CHUNK_BYTES = 100
    mine = torch.full((rank * 250,), rank, dtype=torch.uint8)
    found = gather_bytes(mine)
    assert [one.tolist() for one in found] == [[other] * other * 250 for other in range(world_size)]


CASES = {2: ("json_of_all_ranks", "bytes_of_all_ranks")}
