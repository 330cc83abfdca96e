"""Build a sync strategy by its name."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from augpipe.trainer.codecs import Codec
from augpipe.trainer.codecs import codec as codec_by_name
from augpipe.trainer.exchange.group_exchange import GroupExchange
from augpipe.trainer.exchange.issuer import Issuer
from augpipe.trainer.exchange.ranks import (
    describe,
    describe_buffers,
    destroy_group,
    handshake,
    own_group,
    world_size_of,
)
from augpipe.trainer.strategies.agreement import options_of
from augpipe.trainer.strategies.alone import Alone
from augpipe.trainer.strategies.butterfly import Butterfly
from augpipe.trainer.strategies.ddp import Ddp
from augpipe.trainer.strategies.flat_buffers import check_dtype, make_plan
from augpipe.trainer.strategies.hybrid import Hybrid, SplitLike
from augpipe.trainer.strategies.lazy import Lazy
from augpipe.trainer.strategies.owned_slices import check_elementwise
from augpipe.trainer.strategies.protocol import MakeOptimizer, Strategy
from augpipe.trainer.strategies.state import named_groups, names_of

NAMES = ("ddp", "butterfly", "lazy")
TORCHS_BUCKET_BYTES, BUCKET_BYTES = 25 * 2**20, 4 * 2**20


def strategy(
    name: Literal["ddp", "butterfly", "lazy"],
    model: nn.Module,
    optimizer: MakeOptimizer,
    *,
    parameters: Iterable[nn.Parameter] | None = None,
    codec: str | Codec = "fp32",
    bucket_bytes: int | None = None,
    error_feedback: bool = False,
    exempt_1d: bool = True,
    clip_norm: float | None = None,
    group: ProcessGroup | None = None,
    find_unused_parameters: bool = False,
    timeout_s: float = 300.0,
    wait: Literal["use", "model"] = "use",
    issuer: Issuer | None = None,
    split: SplitLike | None = None,
) -> Strategy:
    """Wrap `model` for training on all ranks of `group`; called by all of them at the same point.

    The ranks start from the group's first one's weights and buffers. With one rank, or without torch.distributed, every
    strategy trains without communication, and nothing is encoded.

    Args:
        model: on its device, in its final dtype and memory format, with `requires_grad` as it is to be.
        optimizer: called once with the parameters that are averaged; returns the optimizer, with param groups as it
            likes. Under lazy the groups then hold slices, and the optimizer must treat each weight by itself.
        parameters: those of the model's that this strategy averages over `group`, clips by their norm, and updates;
            None for all that are trainable. The others, and buffers, are then left to another strategy.
        codec: for gradients (and, under lazy, updates); see `augpipe.trainer.codec`. "fp32" sends parameters' own
            dtype.
        bucket_bytes: of gradients exchanged at once; a larger parameter is cut, but by ddp. None: 4 MiB, so that
            encoding one bucket overlaps with sending another, and 25 MiB, as torch has it, for ddp without a codec.
        error_feedback: keep what encoding a gradient left out and add it to the next; as much memory as the gradients.
        exempt_1d: do not encode biases and normalisation weights.
        clip_norm: clip the norm of the whole averaged gradient, as torch.nn.utils.clip_grad_norm_.
        group: the ranks; None for all.
        find_unused_parameters: as DDP's; the others find them anyway.
        timeout_s: seconds after which an exchange that a rank takes no part in is an error.
        wait: under lazy, "use": each parameter is awaited where it is next read; "model": all of them when the model is
            next called, for models under torch.compile.
        issuer: the thread that issues the collectives, where the process has others on this device, of another strategy
            or its own; None for one of the strategy's own. It is left open. Under ddp, torch's all-reduces then give
            way to the butterfly hook.
        split: what `augpipe.trainer.parallel.split` made of `model`: its shards are averaged over the data axis and
            everything else over all ranks, in common steps; `optimizer` is called once for either.

    Raises:
        ValueError: an argument, a parameter or the optimizer does not fit.
        SyncError: ranks differ in model, settings or optimizer, or one did not come.
    """
    if name not in NAMES:
        raise ValueError(f"strategy={name!r} is unknown. Choose one of {', '.join(map(repr, NAMES))}.")
    if wait not in ("use", "model"):
        raise ValueError(f"wait={wait!r} is unknown. Choose 'use' or 'model'.")
    if not isinstance(model, nn.Module):
        raise ValueError(f"model is a {type(model).__name__}. Give a torch.nn.Module.")
    for number, what in ((bucket_bytes, "bucket_bytes"), (timeout_s, "timeout_s"), (clip_norm, "clip_norm")):
        if number is not None and not (isinstance(number, int | float) and number > 0):
            raise ValueError(f"{what}={number!r} must be a number above 0. Leave it out for the default.")
    if split is not None:
        if parameters is not None or group is not None or issuer is not None:
            raise ValueError("split knows the parameters, groups and issuer itself: leave these arguments out.")
        options: dict[str, Any] = {
            "codec": codec,
            "bucket_bytes": bucket_bytes,
            "error_feedback": error_feedback,
            "exempt_1d": exempt_1d,
            "clip_norm": clip_norm,
            "find_unused_parameters": find_unused_parameters,
            "timeout_s": timeout_s,
            "wait": wait,
        }
        return _hybrid(name, model, optimizer, split, options)
    used_codec = codec_by_name(codec) if isinstance(codec, str) else codec
    if bucket_bytes is None:
        is_torchs = name == "ddp" and used_codec.name == "fp32" and issuer is None
        bucket_bytes = TORCHS_BUCKET_BYTES if is_torchs else BUCKET_BYTES
    world_size = world_size_of(group)
    if not callable(optimizer):
        raise ValueError(
            f"optimizer is {type(optimizer).__name__}: give a function of the parameters that builds it, such as "
            "lambda parameters: torch.optim.SGD(parameters, lr=0.1)."
        )
    given = _averaged(model, parameters)
    built = optimizer(list(given))
    names = names_of(built, given)
    if world_size == 1:
        return Alone(model, built, names, clip_norm=clip_norm)
    if name == "lazy":
        check_elementwise(built)
    settings: dict[str, Any] = {
        "strategy": name,
        "split parameters": [],
        "codec": used_codec.name,
        "codec block": used_codec.block,
        "bucket_bytes": bucket_bytes,
        "error_feedback": error_feedback,
        "exempt_1d": exempt_1d,
        "clip_norm": clip_norm,
        "world_size": world_size,
        "optimizer": type(built).__name__,
        "param groups": named_groups(built, names),
        **options_of(built),
        **({"find_unused_parameters": find_unused_parameters} if name == "ddp" else {}),
    }
    plan = None
    if name == "ddp" and (used_codec.name != "fp32" or issuer is not None):
        for parameter, known_as in given.items():
            check_dtype(parameter, known_as, used_codec)
    if name != "ddp":
        plan = make_plan(
            name,
            {parameter: known for parameter, known in given.items() if parameter in names},
            world_size=world_size,
            codec=used_codec,
            bucket_bytes=bucket_bytes,
            exempt_1d=exempt_1d,
        )
        settings |= {f"collective {i}": str(one) for i, one in enumerate(plan.exchange.collectives)}
    own = own_group(group, timeout_s=timeout_s, waits_itself=plan is not None)
    compared = model.named_parameters() if parameters is None else ((given[p], p) for p in given)
    described = describe(compared) | (describe_buffers(model) if parameters is None else {})
    handshake(settings, described, own, timeout_s=timeout_s)
    broadcast_module(model, own) if parameters is None else broadcast(given, own)
    others = {parameter for parameter in model.parameters() if parameter.requires_grad and parameter not in given}
    known = others | set(given if plan is None else plan.parameters)

    def strangers() -> Iterator[nn.Parameter]:
        return (parameter for parameter in model.parameters() if parameter not in known)

    if plan is None:
        return Ddp(
            model,
            built,
            names,
            codec=used_codec,
            exempt_1d=exempt_1d,
            error_feedback=error_feedback,
            clip_norm=clip_norm,
            bucket_bytes=bucket_bytes,
            group=own,
            find_unused_parameters=find_unused_parameters,
            timeout_s=timeout_s,
            issuer=issuer,
            left_to_others=[left for left, parameter in model.named_parameters() if parameter in others],
            strangers=strangers,
        )
    exchange = GroupExchange(
        name,
        own,
        used_codec,
        device=plan.flats[0].device,
        timeout_s=timeout_s,
        error_feedback=error_feedback,
        with_norm=clip_norm is not None,
        issuer=issuer,
    )

    if name == "butterfly":
        return Butterfly(model, built, plan, exchange, clip_norm=clip_norm, strangers=strangers)
    return Lazy(model, built, plan, exchange, clip_norm=clip_norm, strangers=strangers, wait=wait)


def _hybrid(
    name: Literal["ddp", "butterfly", "lazy"],
    model: nn.Module,
    optimizer: MakeOptimizer,
    split: SplitLike,
    options: dict[str, Any],
) -> Strategy:
    """Two strategies and what they have in common; under ddp the shards go by the butterfly."""
    trainable = {parameter for parameter in model.parameters() if parameter.requires_grad}
    rest, shards = trainable - set(split.parameters), trainable & set(split.parameters)
    if not shards:
        raise ValueError("no split layer has a trainable parameter: nothing to share out. Train without split layers.")
    group = own_group(None, timeout_s=options["timeout_s"])
    settings = {"strategy": name, "split parameters": list(split.parameters.values())} | split.settings
    handshake(settings, {}, group, timeout_s=options["timeout_s"])
    frozen = [p for known, p in model.named_parameters() if not p.requires_grad and known not in split.parts]
    broadcast([*frozen, *model.buffers()], group)
    destroy_group(group)
    options = options | {"issuer": split.issuer}
    return Hybrid(
        strategy(name, model, optimizer, parameters=rest, **options) if rest else None,
        strategy(
            "butterfly" if name == "ddp" else name,
            model,
            optimizer,
            parameters=shards,
            group=split.mesh.data,
            **options,
        ),
        split,
        clip_norm=options["clip_norm"],
        timeout_s=options["timeout_s"],
    )


def _averaged(model: nn.Module, parameters: Iterable[nn.Parameter] | None) -> dict[nn.Parameter, str]:
    """The parameters that a strategy is for, in the model's order, by name; a shared one counts once."""
    wanted = None if parameters is None else set(parameters)
    found = {
        parameter: name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and (wanted is None or parameter in wanted)
    }
    if wanted is not None and len(found) != len(wanted):
        raise ValueError(
            f"parameters has {len(wanted)} tensors, of which {len(found)} are trainable parameters of the model: give "
            "some of model.parameters(), with requires_grad as it is to be."
        )
    if not found:
        raise ValueError("the model has no parameter with requires_grad=True: nothing to train. Unfreeze some.")
    return found


def broadcast_module(module: nn.Module, group: ProcessGroup) -> None:
    """Copy the first rank's parameters and buffers to every rank of the group, once; strided tensors of any layout.

    Buffers such as BatchNorm's running statistics are not touched after this: use SyncBatchNorm where they should
    agree, or call this before evaluation.
    """
    broadcast([*module.parameters(), *module.buffers()], group)


def broadcast(tensors: Iterable[Tensor], group: ProcessGroup) -> None:
    """Copy the first rank's tensors to every rank of the group."""
    source = dist.get_global_rank(group, 0)
    with torch.no_grad():
        for tensor in tensors:
            dense = tensor.detach().contiguous()
            # as bytes: Gloo knows neither int16 nor float8
            dist.broadcast(dense.reshape(-1).view(torch.uint8), src=source, group=group)
            if dense.data_ptr() != tensor.data_ptr():
                tensor.copy_(dense)
