"""Model-data parallelism: shards of split layers are averaged over the data axis, everything else over all ranks."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from augpipe.trainer.exchange.issuer import Issuer
from augpipe.trainer.exchange.meter import Meter
from augpipe.trainer.exchange.objects import gather_bytes
from augpipe.trainer.strategies.collected import Collected, add_up
from augpipe.trainer.strategies.protocol import StepReport, Strategy
from augpipe.trainer.strategies.state import FORMAT, gather_states
from augpipe.trainer.strategies.update import AgreedScaler, Decision, Found, is_scaled


class MeshLike(Protocol):
    """This rank's place among data × model ranks."""

    @property
    def data(self) -> ProcessGroup:
        """The ranks that hold the same shards as this one."""

    @property
    def model(self) -> ProcessGroup:
        """The ranks among which layers are split."""

    @property
    def model_size(self) -> int:
        """Ranks of the model axis."""

    @property
    def model_rank(self) -> int:
        """This rank's place on it: which part of a split layer it holds."""


class SplitLike(Protocol):
    """What a strategy needs to know of a network whose layers are split; `augpipe.trainer.parallel.split` makes one."""

    @property
    def parameters(self) -> Mapping[nn.Parameter, str]:
        """The trainable shards, by name. The mean of their gradients over the data axis is that over all ranks."""

    @property
    def parts(self) -> Mapping[str, Any]:
        """The names of all shards, trainable or not."""

    @property
    def mesh(self) -> MeshLike:
        """Data × model ranks."""

    @property
    def issuer(self) -> Issuer:
        """The thread that issues this process's collectives."""

    @property
    def meter(self) -> Meter:
        """Bytes of activations and deltas that this rank sent."""

    @property
    def settings(self) -> dict[str, Any]:
        """What all ranks must have in common."""


class JoinedOptimizer(Optimizer):
    """Several optimizers' param groups and state in one place, for learning-rate schedulers and whoever looks.

    The groups are the parts' own, so that what is set in them counts. The strategies call the parts' `step`.
    """

    def __init__(self, *parts: Optimizer) -> None:
        # no constructor of torch's: it would make groups and state of its own
        self._parts = parts
        self.defaults = {}
        self.param_groups = [group for part in parts for group in part.param_groups]

    @property
    def state(self) -> dict[Any, Any]:  # type: ignore[override]
        """What is known of each weight."""
        return {weight: known for part in self._parts for weight, known in part.state.items()}

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Nothing: the parts have been stepped. Schedulers look whether this was called."""


class Hybrid:
    """A `Strategy` of two: `rest` over all ranks, `shards` over those that hold the same ones; one decides for both.

    Where all that trains is split there is no rest.
    The clip norm is that of the whole gradient, of which each model rank knows its shards' part. Something that is not
    finite anywhere leaves the step out everywhere.
    """

    def __init__(
        self,
        rest: Strategy | None,
        shards: Strategy,
        split: SplitLike,
        *,
        clip_norm: float | None,
        timeout_s: float,
    ) -> None:
        self._rest = rest
        self._shards = shards
        self._parts = [shards] if rest is None else [rest, shards]
        self.module: nn.Module = self._parts[0].module
        self.optimizer: Optimizer = JoinedOptimizer(*(part.optimizer for part in self._parts))
        self.meter = Meter(*(part.meter for part in self._parts), split.meter)
        self._split = split
        self._clip_norm = clip_norm
        self._timeout_s = timeout_s
        self._scaler = AgreedScaler(split.issuer.device)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients add up without any exchange of them; activations and deltas travel all the same."""
        with ExitStack() as held:
            for part in self._parts:
                held.enter_context(part.no_sync())
            yield

    def step(self, scaler: GradScaler | None = None) -> StepReport:
        """Finish both exchanges, decide once, and let both update."""
        collected = self.collect(is_scaled(scaler))
        start = time.perf_counter()
        copied = collected.numbers.cpu()
        self._split.issuer.waited(time.perf_counter() - start)
        return self.update(self._scaler.decide(scaler, collected.take(copied), self._clip_norm))

    def collect(self, scaled: bool) -> Collected:
        """What is found of the whole gradient; the same bits on all ranks.

        Without clipping or a scaler nobody needs to know of the other model ranks' shards.
        """
        parts = [part.collect(scaled) for part in self._parts]
        looks = self._clip_norm is not None or scaled
        everyones = (
            self._totals_of_model_axis(parts[-1].totals()) if looks and self._split.mesh.model_size > 1 else None
        )
        numbers = [part.numbers for part in parts]
        if everyones is not None:
            numbers.append(everyones.view(-1).view(torch.uint8))

        def take(copied: Tensor) -> Found:
            self._split.issuer.check()  # what did not end in time left nothing worth reading: features and deltas, too
            told = torch.split(copied, [len(one) for one in numbers])
            found = [part.take(one) for part, one in zip(parts, told, strict=False)]
            if everyones is not None:
                found += self._of_model_axis(found.pop(), told[-1].view(torch.int64).view(everyones.shape))
            return Found(
                square_sum=math.fsum(one.square_sum for one in found),
                num_bad=sum(one.num_bad for one in found),
                non_finite=sum(one.non_finite for one in found),
            )

        def totals() -> Tensor:
            shards = parts[-1].totals() if everyones is None else everyones.view(-1, 2)
            return torch.cat([*(part.totals() for part in parts[:-1]), shards])

        return Collected(numbers=torch.cat(numbers), take=take, totals=totals)

    def _totals_of_model_axis(self, mine: Tensor) -> Tensor:
        """(model ranks, owners, 2) int64 on the device: each model rank's shards' totals, in the order of ranks."""
        size, mine = self._split.mesh.model_size, mine.contiguous()
        everyones = mine.new_empty((size, *mine.shape))
        self.meter.add("control", (size - 1) * mine.nbytes)
        self._submit("gradient norms of the other model ranks", list(everyones), mine)
        return everyones

    def _of_model_axis(self, mine: Found, totals: Tensor) -> list[Found]:
        """What was found in each model rank's shards, by their totals on the CPU."""
        found = [add_up(of_rank) for of_rank in totals]
        if not any(num_bad for num_bad, _ in found):
            return [Found(square_sum=square_sum, num_bad=0, non_finite=0) for _, square_sum in found]
        # all model ranks see that, and tell each other how much it is
        counts = torch.tensor([mine.num_bad, mine.non_finite], device=self._split.issuer.device)
        everyones = counts.new_empty((len(found), 2))
        self.meter.add("control", (len(found) - 1) * counts.nbytes)
        self._submit("counts of what is not finite on the other model ranks", list(everyones), counts)
        told = everyones.tolist()
        self._split.issuer.check()
        return [
            Found(square_sum=square_sum, num_bad=num_bad, non_finite=non_finite)
            for (_, square_sum), (num_bad, non_finite) in zip(found, told, strict=True)
        ]

    def _submit(self, what: str, everyones: list[Tensor], mine: Tensor) -> None:
        """Gather a tensor over the model axis; on a GPU the current stream waits for it."""
        group = self._split.mesh.model
        self._split.issuer.submit(
            what, lambda: dist.all_gather(everyones, mine, group=group, async_op=True), group, self._timeout_s
        ).wait()

    def update(self, decision: Decision) -> StepReport:
        """Let both do what was decided."""
        exposed_s = sum([part.update(decision).exposed_s for part in self._parts])
        self.optimizer.step()
        return StepReport(
            grad_norm=decision.norm,
            found_inf=decision.found_inf,
            non_finite=decision.non_finite,
            exposed_s=exposed_s + self._split.issuer.take_exposed_s(),
            bytes_sent=self.meter.since_last(),
        )

    def flush(self) -> None:
        """Await every weight."""
        for part in self._parts:
            part.flush()
        self._split.issuer.check()

    def set_lr(self, factor: float) -> None:
        """Set every group's learning rate to `factor` times its first one."""
        for part in self._parts:
            part.set_lr(factor)

    def state_dict(self) -> dict[str, Any]:
        """Both states of this rank; that of its shards under its place on the model axis."""
        rest = None if self._rest is None else self._rest.state_dict()
        return self._state(rest, {self._split.mesh.model_rank: self._shards.state_dict()})

    def _state(self, rest: dict[str, Any] | None, shards: dict[int, dict[str, Any]]) -> dict[str, Any]:
        model_size = self._split.mesh.model_size
        return {"format": FORMAT, "kind": "split", "model_size": model_size, "rest": rest, "shards": shards}

    def full_optimizer_state(self) -> dict[str, Any]:
        """Both states, whole, with the shards of all model ranks (on the CPU), on every rank; for as many model
        ranks."""
        rest = None if self._rest is None else self._rest.full_optimizer_state()
        everyones = gather_states(self._shards.full_optimizer_state(), self._gather_of_model_axis)
        return self._state(rest, dict(enumerate(everyones)))

    def _gather_of_model_axis(self, mine: Tensor) -> list[Tensor]:
        """Every model rank's (num_bytes,) uint8 on the CPU."""
        group, found = self._split.mesh.model, list[Tensor]()
        what = "optimizer states of the other model ranks"
        self._split.issuer.submit(what, lambda: found.extend(gather_bytes(mine, group)), group, self._timeout_s).wait()
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up this rank's state, or a full or merged one of as many model ranks."""
        mesh = self._split.mesh
        model_size = state["model_size"] if state.get("kind") == "split" else 1
        if model_size != mesh.model_size or state.get("kind") != "split":
            raise ValueError(
                f"the state is of a network split among {model_size} model ranks, and this one's is split among "
                f"{mesh.model_size}. Split it as it was when saved."
            )
        known = state["shards"]
        if mesh.model_rank not in known:
            raise ValueError(
                f"the state has the shards of model rank {', '.join(map(str, known))}, and this is model rank "
                f"{mesh.model_rank}. Use the state of this rank, merge(all states) or full_optimizer_state()."
            )
        if self._rest is not None:
            self._rest.load_state_dict(state["rest"])
        self._shards.load_state_dict(known[mesh.model_rank])

    def close(self) -> None:
        """Close both; the issuer goes on, since the network needs it whenever it is called."""
        with ExitStack() as held:
            for part in self._parts:
                held.callback(part.close)
