"""Cases: training in fp16 by the loop itself, where the gradient of one rank overflows in one step."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor

from augpipe.trainer.loop import run
from augpipe.trainer.loop.step import Step
from augpipe.trainer.report.metrics import read_rows
from tests.distributed.sync_models import assert_same_everywhere, weights
from tests.distributed.train_runs import config, write_photos

STEPS, OVERFLOWS_IN = 5, 3
FIRST_SCALE = 2.0**8  # at torch's own first one, this network overflows by itself


def ddp(rank: int, world_size: int) -> None:
    one_ranks_overflow(rank, strategy="ddp")


def butterfly(rank: int, world_size: int) -> None:
    one_ranks_overflow(rank, strategy="butterfly", codec="dynamic-tree", error_feedback=True, bucket_bytes=2000)


def lazy(rank: int, world_size: int) -> None:
    one_ranks_overflow(rank, strategy="lazy", codec="dynamic-tree", error_feedback=True, bucket_bytes=2000)


def one_ranks_overflow(rank: int, **sync: Any) -> None:
    """Rank 1 has an infinite gradient in one step: no rank makes that step, both lower the scale, both go on."""
    seen: list[tuple[Tensor, float, bool, bool]] = []
    with shared_folder(rank) as folder, overflowing(rank == 1, seen):
        photos = folder / "photos" if rank else write_photos(folder, 24)
        dist.barrier()
        result = run(config(folder / "run", photos, max_steps=STEPS, optim={"lr": 0.05, "amp": "fp16"}, sync=sync))
        rows = read_rows(folder / "run" / "metrics.csv")
    assert result.step == STEPS == len(seen)
    for values, *_ in seen:
        assert torch.isfinite(values).all()
        assert_same_everywhere(values)
    after = [values for values, *_ in seen]
    moved = [not torch.equal(before, now) for before, now in pairwise(after)]
    assert moved == [step != OVERFLOWS_IN for step in range(2, STEPS + 1)]
    scales = [scale for _, scale, *_ in seen]
    assert scales == [FIRST_SCALE if step < OVERFLOWS_IN else FIRST_SCALE / 2 for step in range(1, STEPS + 1)]
    assert [is_skipped for *_, is_skipped, _ in seen] == [step == OVERFLOWS_IN for step in range(1, STEPS + 1)]
    assert all(is_finite for *_, is_finite in seen)  # the lower scale is the answer; faults.on_nan is not asked
    assert [int(row["skipped"]) for row in rows] == [int(step >= OVERFLOWS_IN) for step in range(1, STEPS + 1)]


@contextmanager
def shared_folder(rank: int) -> Iterator[Path]:
    """Rank 0's, known to all; it goes when all have done with it."""
    with TemporaryDirectory() as made:
        name = [made]
        dist.broadcast_object_list(name, src=0)
        yield Path(name[0])
        dist.barrier()


@contextmanager
def overflowing(here: bool, seen: list[tuple[Tensor, float, bool, bool]]) -> Iterator[None]:
    """Within it an inf gets into this rank's gradient of one step, if `here`; `seen` has what each step left."""
    inner = Step.run

    def watched(self: Step, *arguments: Any) -> Any:
        assert self._scaler is not None
        if not seen:
            self._scaler.load_state_dict({**self._scaler.state_dict(), "scale": FIRST_SCALE})
        parameter = next(self._strategy.module.parameters())

        def overflow(gradient: Tensor) -> Tensor:
            gradient = gradient.clone()
            gradient.view(-1)[0] = torch.inf
            return gradient

        handle = None
        if here and len(seen) == OVERFLOWS_IN - 1:
            handle = parameter.register_hook(overflow)  # type: ignore[no-untyped-call]
        result = inner(self, *arguments)
        if handle is not None:
            handle.remove()
        self._strategy.flush()
        found = weights(self._strategy.module).clone()
        seen.append((found, self._scaler.get_scale(), result.is_skipped, result.is_finite))
        return result

    with patch.object(Step, "run", watched):
        yield


CASES = ["ddp", "butterfly", "lazy"]
