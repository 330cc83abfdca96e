"""Groups of processes that share a lease add up as one process does that computes all their shares."""

import torch
import torch.distributed as dist

from augpipe.trainer.servers.group import OneProcess, Processes, ShareResult

NUM = 1000


def share(rank: int) -> ShareResult:
    made = torch.Generator().manual_seed(rank)
    return ShareResult(
        gradient=torch.randn(NUM, generator=made),
        buffers=(torch.randn(7, generator=made), torch.tensor([rank, 3])),
        loss_sum=0.5 * rank,
        num_correct=rank,
        num_samples=4 + rank,
    )


def processes_add_up_as_one_does(rank: int, world_size: int) -> None:
    """To the bit; the order of adding matters to it."""
    assert dist.group.WORLD is not None
    group = Processes(dist.group.WORLD)
    assert tuple(group.members) == (rank,)
    found = group.combine([share(rank)])
    expected = OneProcess(world_size).combine([share(other) for other in range(world_size)])
    assert torch.equal(found.buffers[0], expected.buffers[0]) and torch.equal(found.buffers[1], expected.buffers[1])
    assert (found.loss_sum, found.num_correct, found.num_samples) == (
        expected.loss_sum,
        expected.num_correct,
        expected.num_samples,
    )
    if rank == 0:
        assert torch.equal(found.gradient, expected.gradient)
    ascending = sum((share(other).gradient for other in range(world_size)), torch.zeros(NUM))
    assert world_size == 2 or not torch.equal(expected.gradient, ascending)
    assert torch.allclose(expected.gradient, ascending, atol=1e-5)


def all_hear_the_first(rank: int, world_size: int) -> None:
    """What the first process says."""
    assert dist.group.WORLD is not None
    assert Processes(dist.group.WORLD).tell(["lease", rank] if rank == 0 else None) == ["lease", 0]


CASES = {2: ("processes_add_up_as_one_does",), 4: ("processes_add_up_as_one_does", "all_hear_the_first")}
