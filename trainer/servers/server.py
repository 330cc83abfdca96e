"""A server: one slice of the weights, the optimizer on it, and what workers have sent and been given."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from augpipe.trainer.codecs import codec
from augpipe.trainer.optim.optimizer import make_optimizer
from augpipe.trainer.servers.messages import Command, Drop, Hand, LeaseName, Part, PeerLost, Restore, Save, Update
from augpipe.trainer.servers.slices import FlatWeights
from augpipe.trainer.servers.specs import Compensation, ServerSpec
from augpipe.trainer.servers.state_file import read_state, server_path, write_state

_ADAPTIVE_EPS = 1e-7
_CHUNK = 2**16
"""Numbers that are compensated at a time, so that what is worked out on the way takes little memory; a multiple of
ALIGN, by which vector loops see the same numbers in their main part as they would in the whole slice."""


@dataclass(frozen=True)
class _Staged:
    worker: int
    part: Part


class Server:
    """Carries out the dispatcher's commands in their one order; pushes wait here until a command counts them.

    It begins with weights of zero, and has its first ones by a `Restore` or by `begin`. What it gives out are copies,
    unless `hands_views` leaves them to the transport: nobody sees weights that change.
    """

    def __init__(self, spec: ServerSpec) -> None:
        torch.set_num_threads(spec.num_threads)
        self._spec = spec
        self._number = 0
        self.version = 0
        """Updates that the slice has seen."""
        self._wide, self._narrow = torch.zeros(spec.slice.num_wide), torch.zeros(spec.slice.num_narrow)
        self._buffers = None if spec.num_buffers is None else torch.zeros(spec.num_buffers[0])
        self._counts = None if spec.num_buffers is None else torch.zeros(spec.num_buffers[1], dtype=torch.int64)
        self._gradients = torch.zeros_like(self._wide), torch.zeros_like(self._narrow)
        self._optimizer = make_optimizer(spec.optim, self._parameters())
        self._base_lrs = [group["lr"] for group in self._optimizer.param_groups]
        self._push_codec = codec(spec.push_codec)
        self._pull_codec = None if spec.pull_codec is None else codec(spec.pull_codec)
        self._keeps_given = spec.pull_codec is not None or spec.compensation is not None
        self._staged: dict[LeaseName, _Staged] = {}
        self._given: dict[int, tuple[Tensor, Tensor]] = {}
        """By worker, the weights that it was given last."""
        self._mean_squares = (
            tuple(torch.zeros_like(one) for one in (self._wide, self._narrow))
            if spec.compensation is not None and spec.compensation.kind == "adaptive"
            else ()
        )

    def _parameters(self) -> list[nn.Parameter]:
        """One for each segment, a view of the slice, so that each is updated as in the whole tensor; wide ones keep two
        dimensions, by which weight decay goes."""
        made = []
        for is_wide, segments in ((True, self._spec.slice.wide_segments), (False, self._spec.slice.narrow_segments)):
            values, gradients = (self._wide, self._gradients[0]) if is_wide else (self._narrow, self._gradients[1])
            for segment in segments:
                shape = (1, -1) if is_wide else (-1,)
                parameter = nn.Parameter(values[segment.start : segment.stop].view(shape))
                parameter.grad = gradients[segment.start : segment.stop].view(shape)
                made.append(parameter)
        return made or [nn.Parameter(torch.zeros(0))]

    @torch.no_grad()
    def begin(self, flat: FlatWeights) -> "Server":
        """Take on the first weights: this server's slice of a network's; returns itself."""
        self._wide.copy_(flat.values[slice(*self._spec.slice.wide)])
        self._narrow.copy_(flat.values[slice(*self._spec.slice.narrow)])
        if self._buffers is not None and self._counts is not None:
            floating, counting = flat.buffers()
            self._buffers.copy_(floating)
            self._counts.copy_(counting)
        return self

    def stage(self, worker: int, name: LeaseName, part: Part) -> None:
        """Keep a worker's push until a command says whether it counts; the same name twice is the later one.

        Raises:
            ValueError: it is of another size.
        """
        sizes = part.wide.nbytes, len(part.narrow)
        expected = self._push_codec.num_bytes(len(self._wide)), len(self._narrow)
        if sizes != expected:
            raise ValueError(
                f"worker {worker} pushed {sizes[0]} bytes and {sizes[1]} narrow numbers to server {self._spec.index}, "
                f"whose slice takes {expected[0]} and {expected[1]}: it has another network or codec."
            )
        self._staged[name] = _Staged(worker, part)

    def ping(self) -> None:
        """Answers, so it is there."""

    def carry_out(self, number: int, command: Command) -> Any:
        """Carry out the dispatcher's command number `number`; returns a `Part` for Hand, else nothing.

        Raises:
            PeerLost: this server was restarted, and has not had its slice back.
        """
        if isinstance(command, Restore):
            self._restore(Path(command.folder))
            self._number = number
            return None
        if number != self._number + 1:
            raise PeerLost(f"server {self._spec.index} got command {number} after {self._number}: it has restarted")
        self._number = number
        match command:
            case Hand():
                return self._hand(command.worker, command.whole)
            case Update():
                self._update(command)
            case Drop():
                self._drop(command)
            case Save():
                self._save(Path(command.folder))
        return None

    def _hand(self, worker: int, whole: bool) -> Part:
        buffers = None if self._buffers is None else self._buffers.numpy().copy()
        counts = None if self._counts is None else self._counts.numpy().copy()
        given = self._given.get(worker)
        if self._pull_codec is None or whole or given is None:
            if self._keeps_given and worker >= 0:
                self._keep_given(worker)
            wide, narrow = self._wide, self._narrow
            if not self._spec.hands_views:
                wide, narrow = wide.clone(), narrow.clone()
            return Part(wide=wide.numpy().view(np.uint8), narrow=narrow.numpy(), buffers=buffers, counts=counts)
        before_wide, before_narrow = given
        change = torch.sub(self._wide, before_wide, out=self._gradients[0])  # nobody needs those between updates
        payload = self._pull_codec.encode(change)
        # what encoding leaves out stays in the difference, and goes with the next one
        self._pull_codec.decode_into(payload, before_wide, add=True)
        before_narrow.copy_(self._narrow)
        return Part(
            wide=payload.numpy(), narrow=self._narrow.numpy().copy(), buffers=buffers, counts=counts, is_change=True
        )

    def _keep_given(self, worker: int) -> None:
        now = self._wide, self._narrow
        if worker in self._given:
            for kept, one in zip(self._given[worker], now, strict=True):
                kept.copy_(one)
        else:
            self._given[worker] = self._wide.clone(), self._narrow.clone()

    @torch.no_grad()
    def _update(self, command: Update) -> None:
        staged = [self._staged.pop(name) for name in command.pushes]
        self._mean_into_gradients([one.part for one in staged], command.num_samples)
        if self._spec.compensation is not None:
            assert len(staged) == 1, "only what is applied push by push is compensated"
            self._compensate(self._spec.compensation, self._given[command.workers[0]])
        for group, lr in zip(self._optimizer.param_groups, self._base_lrs, strict=True):
            group["lr"] = lr * command.lr
        self._optimizer.step()
        self._update_buffers([one.part for one in staged], command.num_samples)
        self.version += 1

    def _mean_into_gradients(self, parts: Sequence[Part], num_samples: Sequence[int]) -> None:
        wide, narrow = self._gradients
        is_even = len(set(num_samples)) == 1
        mean = sum(num_samples) / len(num_samples)
        for i, (part, num) in enumerate(zip(parts, num_samples, strict=True)):
            theirs = torch.from_numpy(np.array(part.narrow))
            if is_even:
                self._push_codec.decode_into(np.asarray(part.wide), wide.numpy(), add=i > 0)
            else:
                decoded = torch.from_numpy(self._push_codec.decode(np.asarray(part.wide))).mul_(num / mean)
                wide.copy_(decoded) if i == 0 else wide.add_(decoded)
                theirs.mul_(num / mean)
            narrow.copy_(theirs) if i == 0 else narrow.add_(theirs)
        if len(parts) > 1:
            wide.mul_(1.0 / len(parts))
            narrow.mul_(1.0 / len(parts))

    def _compensate(self, how: Compensation, given: tuple[Tensor, Tensor]) -> None:
        """g + lambda * g * g * (w - w_then); adaptive: lambda_0 / sqrt(mean of squares + eps), number by number."""
        kinds: list[tuple[Tensor, ...]] = [self._gradients, (self._wide, self._narrow), given]
        if how.kind == "adaptive":
            kinds.append(self._mean_squares)
        for of_kind in zip(*kinds, strict=True):  # the wide numbers, then the narrow ones
            for gradient, now, then, *means in zip(*(torch.split(one, _CHUNK) for one in of_kind), strict=True):
                square = gradient * gradient
                strength: float | Tensor = how.strength
                for mean in means:
                    mean.mul_(how.decay).add_(square, alpha=1 - how.decay)
                    strength = how.strength / torch.sqrt(mean + _ADAPTIVE_EPS)
                gradient.add_(strength * square * (now - then))

    def _update_buffers(self, parts: Sequence[Part], num_samples: Sequence[int]) -> None:
        """Running statistics move by the mean of the pushes' changes, weighted by their samples; counts by the most."""
        if self._buffers is None or self._counts is None:
            return
        total = sum(num_samples)
        for part, num in zip(parts, num_samples, strict=True):
            assert part.buffers is not None
            self._buffers.add_(torch.from_numpy(np.array(part.buffers)), alpha=num / total)
        if self._counts.numel():
            changes = np.stack([part.counts for part in parts if part.counts is not None])
            self._counts.add_(torch.from_numpy(changes.max(axis=0)))

    def _drop(self, command: Drop) -> None:
        for name in command.pushes:
            self._staged.pop(name, None)
        for worker in command.workers:
            self._given.pop(worker, None)
            self._staged = {name: one for name, one in self._staged.items() if one.worker != worker}

    def _save(self, folder: Path) -> None:
        self._given.clear()
        self._staged.clear()
        self.write(folder)

    def write(self, folder: Path) -> None:
        """Write what `Restore` reads."""
        write_state(server_path(folder, self._spec.index), self._state())

    def _state(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "wide": self._wide,
            "narrow": self._narrow,
            "buffers": self._buffers,
            "counts": self._counts,
            "mean_squares": dict(enumerate(self._mean_squares)),
            "optimizer": self._optimizer.state_dict()["state"],
        }

    @torch.no_grad()
    def _restore(self, folder: Path) -> None:
        state = read_state(server_path(folder, self._spec.index))
        self.version = state["version"]
        self._wide.copy_(state["wide"])
        self._narrow.copy_(state["narrow"])
        if self._buffers is not None and self._counts is not None:
            self._buffers.copy_(state["buffers"])
            self._counts.copy_(state["counts"])
        for mean, saved in zip(self._mean_squares, state["mean_squares"].values(), strict=True):
            mean.copy_(saved)
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": state["optimizer"], "param_groups": groups})
        self._staged.clear()
        self._given.clear()
