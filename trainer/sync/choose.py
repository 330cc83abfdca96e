"""Build a sync strategy by its name."""

from typing import Any, Literal

from torch import nn
from torch.distributed import ProcessGroup

from augpipe.trainer.codecs import Codec
from augpipe.trainer.codecs import codec as codec_by_name
from augpipe.trainer.sync.alone import Alone
from augpipe.trainer.sync.base import Parts
from augpipe.trainer.sync.butterfly import Butterfly
from augpipe.trainer.sync.ddp import Ddp
from augpipe.trainer.sync.elementwise import check_elementwise
from augpipe.trainer.sync.groups import own_group, world_size_of
from augpipe.trainer.sync.handshake import describe, handshake
from augpipe.trainer.sync.lazy import Lazy
from augpipe.trainer.sync.plan import make_plan
from augpipe.trainer.sync.protocol import MakeOptimizer, Strategy
from augpipe.trainer.sync.start import broadcast_module
from augpipe.trainer.sync.state import names_of, trainable

NAMES = ("ddp", "butterfly", "lazy")
BUCKET_BYTES = {"ddp": 25 * 2**20, "butterfly": 4 * 2**20, "lazy": 4 * 2**20}


def strategy(
    name: Literal["ddp", "butterfly", "lazy"],
    model: nn.Module,
    optimizer: MakeOptimizer,
    *,
    codec: str | Codec = "fp32",
    bucket_bytes: int | None = None,
    error_feedback: bool = False,
    exempt_1d: bool = True,
    clip_norm: float | None = None,
    group: ProcessGroup | None = None,
    find_unused_parameters: bool = False,
    timeout_s: float = 300.0,
    wait: Literal["use", "model"] = "use",
) -> Strategy:
    """Wrap `model` for training on all ranks of `group`; called by all of them at the same point.

    All ranks start from rank 0's weights and buffers. With one rank, or without torch.distributed, every strategy
    trains without communication, and nothing is encoded.

    Args:
        model: on its device, in its final dtype and memory format, with `requires_grad` as it is to be.
        optimizer: called once with the trainable parameters; returns the optimizer, with param groups as it likes.
            Under lazy the groups then hold slices, and the optimizer must treat each weight by itself.
        codec: for gradients (and, under lazy, updates); see `augpipe.trainer.codec`. "fp32" sends parameters' own
            dtype.
        bucket_bytes: of gradients exchanged at once; a larger parameter is cut. None: 25 MiB for ddp, as torch has
            it, and 4 MiB for the others, where encoding one bucket overlaps with sending another.
        error_feedback: keep what encoding a gradient left out and add it to the next; as much memory as the gradients.
        exempt_1d: do not encode biases and normalisation weights.
        clip_norm: clip the norm of the whole averaged gradient, as torch.nn.utils.clip_grad_norm_.
        group: the ranks; None for all.
        find_unused_parameters: as DDP's; the others find them anyway.
        timeout_s: seconds after which an exchange that a rank takes no part in is an error.
        wait: under lazy, "use": each parameter is awaited where it is next read; "model": all of them when the model is
            next called, for models under torch.compile.

    Raises:
        ValueError: an argument, a parameter or the optimizer does not fit.
        SyncError: ranks differ in model, settings or optimizer, or one did not come.
    """
    if name not in NAMES:
        raise ValueError(f"strategy={name!r} is unknown. Choose one of {', '.join(map(repr, NAMES))}.")
    if wait not in ("use", "model"):
        raise ValueError(f"wait={wait!r} is unknown. Choose 'use' or 'model'.")
    for number, what in ((bucket_bytes, "bucket_bytes"), (timeout_s, "timeout_s"), (clip_norm, "clip_norm")):
        if number is not None and number <= 0:
            raise ValueError(f"{what}={number} is not positive.")
    bucket_bytes = BUCKET_BYTES[name] if bucket_bytes is None else bucket_bytes
    used_codec = codec_by_name(codec) if isinstance(codec, str) else codec
    world_size = world_size_of(group)
    if not callable(optimizer):
        raise ValueError(
            f"optimizer is {type(optimizer).__name__}: give a function of the parameters that builds it, such as "
            "lambda parameters: torch.optim.SGD(parameters, lr=0.1)."
        )
    if world_size == 1:
        return Alone(model, optimizer, clip_norm=clip_norm)
    built = optimizer(trainable(model))
    names = names_of(model, built)
    if name == "lazy":
        check_elementwise(built)
    settings: dict[str, Any] = {
        "strategy": name,
        "codec": used_codec.name,
        "codec block": used_codec.block,
        "bucket_bytes": bucket_bytes,
        "error_feedback": error_feedback,
        "exempt_1d": exempt_1d,
        "clip_norm": clip_norm,
        "world_size": world_size,
        "optimizer": type(built).__name__,
        "param groups": [[names[parameter] for parameter in one["params"]] for one in built.param_groups],
    }
    plan = None
    if name != "ddp":
        in_model_order = [(n, p) for n, p in model.named_parameters() if p in names]
        plan = make_plan(
            name,
            [p for _, p in in_model_order],
            [n for n, _ in in_model_order],
            world_size=world_size,
            codec=used_codec,
            bucket_bytes=bucket_bytes,
            exempt_1d=exempt_1d,
        )
    control_group = own_group(group, timeout_s=timeout_s)
    handshake(settings, describe(model.named_parameters()), control_group, timeout_s=timeout_s)
    broadcast_module(model, control_group)
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
            group=control_group,
            find_unused_parameters=find_unused_parameters,
            timeout_s=timeout_s,
        )
    parts = Parts(
        model=model,
        optimizer=built,
        names=names,
        plan=plan,
        codec=used_codec,
        clip_norm=clip_norm,
        error_feedback=error_feedback,
        reduce_group=own_group(group, timeout_s=timeout_s),
        gather_group=own_group(group, timeout_s=timeout_s),
        control_group=control_group,
        device=plan.flats[0].device,
        timeout_s=timeout_s,
    )
    return Butterfly(parts) if name == "butterfly" else Lazy(parts, wait=wait)
