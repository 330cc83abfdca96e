"""All ranks begin with rank 0's weights and buffers."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import ProcessGroup


def broadcast_module(module: nn.Module, group: ProcessGroup) -> None:
    """Copy rank 0's parameters and buffers to every rank, once; strided tensors of any layout.

    Buffers such as BatchNorm's running statistics are not touched after this: use SyncBatchNorm where they should
    agree, or call this before evaluation.
    """
    source = dist.get_global_rank(group, 0)
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            dense = tensor.detach().contiguous()
            # as bytes: Gloo knows neither int16 nor float8
            dist.broadcast(dense.reshape(-1).view(torch.uint8), src=source, group=group)
            if dense.data_ptr() != tensor.data_ptr():
                tensor.copy_(dense)
