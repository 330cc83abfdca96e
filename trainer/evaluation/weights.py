"""The weights of a checkpoint, as an evaluation takes them, in one file for other programs."""

import os
from pathlib import Path

import torch

from augpipe.trainer.checkpoint import Checkpoint
from augpipe.trainer.tensors.tensor_file import write_tensors


def write_weights(checkpoint: Checkpoint, path: Path, *, averaged: bool) -> None:
    """Write the network's `state_dict`, or its moving average's, to a .safetensors or .pt file.

    Running statistics are the mean over ranks, as an evaluation takes them.

    Raises:
        ValueError: there is no average, the file exists, or the checkpoint is damaged.
    """
    if path.exists():
        raise ValueError(f"{path} exists. Remove it, or choose another name.")
    if averaged and not checkpoint.num_averaged():
        raise ValueError(f"{checkpoint.path} has no average of the weights. Leave --ema out.")
    entry, prefix, buffers = ("ema", "module.", "ema_buffers") if averaged else ("model", "", "buffers")
    saved = checkpoint.common_tensors(entry)
    state = {name.removeprefix(prefix): saved[name] for name in saved if name.startswith(prefix)}
    for name, value in checkpoint.averaged_buffers(buffers).items():
        if name in state:
            state[name] = value.to(state[name].dtype)
    temporary = path.with_name(f".{path.name}.tmp")
    if path.suffix == ".safetensors":
        write_tensors(temporary, state, {})
    else:
        torch.save(state, temporary)
    os.replace(temporary, path)
