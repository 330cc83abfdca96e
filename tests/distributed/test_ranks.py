"""Processes that share an epoch over Gloo: in step to its end, each sample once, also after a resume by fewer."""

import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from augpipe import Batch, Loader
from tests.augpipe.loader.loader_sources import PAPER, MemorySource, jpegs, samples, truncated
from tests.distributed.rank_processes import run_script

NUM, EPOCH, SEED = 29, 2, 11
BAD = (4, 17)

RANK = """
import json, sys
from datetime import timedelta
import torch.distributed as dist
from tests.distributed.test_ranks import digests, make
rank, world_size, meeting_place = json.loads(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=world_size,
                        timeout=timedelta(seconds=30))
loader = make(batch_size=4)  # its rank is the process group's
seen, states = [], []
for batch in loader:
    # a rank with a batch more than the others would wait here, and fail by the timeout
    everyones = [None] * world_size
    dist.all_gather_object(everyones, (digests([batch]), loader.state_dict()))
    seen.append([samples for samples, _ in everyones])
    states.append([state for _, state in everyones])
dist.barrier()
dist.destroy_process_group()
print(json.dumps([seen, states, len(loader)]))
"""


def make(**options: Any) -> Loader:
    images = [truncated() if i in BAD else data for i, data in enumerate(jpegs(NUM))]
    loader = Loader(
        MemorySource(images), PAPER, seed=SEED, framework="torch", num_threads=1, on_error="skip", **options
    )
    loader.set_epoch(EPOCH)
    return loader


def digests(batches: Iterable[Batch]) -> list[list[Any]]:
    """[sample id, hash of its bits] in the order in which they come."""
    return [[sample_id, sha256(b"".join(bits)).hexdigest()] for sample_id, bits in samples(batches)]


def run_ranks(world_size: int, meeting_place: Path) -> list[Any]:
    """What each rank prints; a rank's traceback is in the failure."""
    outs = run_script(RANK, [[rank, world_size, str(meeting_place)] for rank in range(world_size)])
    return [json.loads(out) for out in outs]


def test_three_ranks_then_two_see_each_sample_once(tmp_path: Path) -> None:
    expected = sorted(digests(make(batch_size=1)))
    assert len(expected) == NUM

    whole = run_ranks(3, tmp_path / "meeting place")
    assert all(rank == whole[0] for rank in whole)
    seen, states, length = whole[0]
    assert length == len(seen) == 3
    assert [[len(rank) for rank in step] for step in seen] == [[4, 4, 4], [4, 4, 4], [2, 2, 1]]
    assert sorted(sample for step in seen for rank in step for sample in rank) == expected
    assert all(state == step[0] for step in states for state in step)
    assert [step[0]["samples_consumed"] for step in states] == [12, 24, 29]

    together = [sample for rank in seen[0] for sample in rank]
    for rank in range(2):
        loader = make(batch_size=3, rank=rank, world_size=2)
        loader.load_state_dict(states[0][rank])
        together += digests(loader)
    assert sorted(together) == expected
