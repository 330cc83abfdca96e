"""The ranks of a run as a rectangle: a data axis, along which gradients are averaged, and a model axis, along which
layers are split."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from augpipe.validation.plural import count

AXES = ("data", "model")


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """This rank's place among data × model ranks; the ranks of one model axis are next to each other."""

    device_mesh: DeviceMesh
    """torch's own, with the axes "data" and "model"."""

    @property
    def data(self) -> ProcessGroup:
        """The ranks that hold the same shards as this one."""
        return self.device_mesh.get_group("data")

    @property
    def model(self) -> ProcessGroup:
        """The ranks among which layers are split, this one among them."""
        return self.device_mesh.get_group("model")

    @property
    def data_size(self) -> int:
        """Ranks of the data axis."""
        return self.device_mesh.size(0)

    @property
    def model_size(self) -> int:
        """Ranks of the model axis: parts of a split layer."""
        return self.device_mesh.size(1)

    @property
    def data_rank(self) -> int:
        """This rank's place on the data axis."""
        return self.device_mesh.get_local_rank("data")

    @property
    def model_rank(self) -> int:
        """This rank's place on the model axis: which part of a split layer it holds."""
        return self.device_mesh.get_local_rank("model")

    @property
    def device(self) -> torch.device:
        """Where this rank trains: CUDA's current device, or the CPU."""
        is_cuda = self.device_mesh.device_type == "cuda"
        return torch.device("cuda", torch.cuda.current_device()) if is_cuda else torch.device("cpu")

    def __deepcopy__(self, _memo: Any) -> "Mesh":
        return self


def make_mesh(model: int = 1, *, device_type: str = "cpu") -> Mesh:
    """All ranks of torch.distributed's process group as a mesh; called by all of them at the same point.

    Args:
        model: ranks of the model axis, which are next to each other; 1 for none.
        device_type: "cpu" or "cuda".

    Raises:
        ValueError: `model` does not divide the number of ranks, or there is no process group.
    """
    if not dist.is_initialized():
        raise ValueError(
            "a mesh is made of a process group's ranks, and there is none: start by torchrun, or call "
            "torch.distributed.init_process_group first."
        )
    world_size = dist.get_world_size()
    if isinstance(model, bool) or not isinstance(model, int) or model < 1 or world_size % model:
        fitting = [str(m) for m in range(1, world_size + 1) if world_size % m == 0]
        raise ValueError(
            f"model={model!r} does not divide the run's {count(world_size, 'rank')}: the model axis can have "
            f"{', '.join(fitting)}. Choose one of these, or start another number of ranks."
        )
    return Mesh(device_mesh=init_device_mesh(device_type, (world_size // model, model), mesh_dim_names=AXES))
