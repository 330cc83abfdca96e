"""Gradients as 8-bit numbers in a DistributedDataParallel script of your own: the two lines with butterfly_hook.

It draws a small dataset first, so that it runs as it stands, on CPUs.

usage: torchrun --standalone --nproc-per-node 2 examples/ddp_hook.py [FOLDER_OF_CLASS_FOLDERS]
"""

import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from augpipe import Loader, Recipe, ops
from augpipe.datasets.synthetic.generate import generate
from augpipe.trainer import butterfly_hook, model

NUM_EPOCHS = 2
RECIPE = Recipe(
    name="small",
    ops=[ops.MultiResolutionCrop(size=64, scales=(64, 96)), ops.ColorCast(), ops.Flip(), ops.Normalize()],
)


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    try:
        if len(sys.argv) > 1:
            train(sys.argv[1])
            return
        with tempfile.TemporaryDirectory() as own_folder:
            # rank 0's folder, as bytes: torch's object collectives would unpickle what they are sent
            name = torch.zeros(4096, dtype=torch.uint8)
            own_name = os.fsencode(own_folder)
            name[: len(own_name)] = torch.tensor(list(own_name), dtype=torch.uint8)
            dist.broadcast(name, 0)
            folder = Path(os.fsdecode(bytes(name.tolist()).rstrip(b"\0")))
            if dist.get_rank() == 0:
                generate(Path(own_folder) / "photos", num=64, classes=4)
            dist.barrier()
            train(folder / "photos")
            dist.barrier()  # no rank reads any more
    finally:
        dist.destroy_process_group()


def train(folder: str | Path) -> None:
    rank = dist.get_rank()
    loader = Loader(folder, RECIPE, batch_size=8, seed=1)  # its rank is the process group's
    torch.manual_seed(1)
    network = DistributedDataParallel(
        model("small-cnn", num_classes=len(loader.source.classes)), bucket_cap_mb=4, gradient_as_bucket_view=True
    )
    state, hook = butterfly_hook(codec="dynamic-tree")
    network.register_comm_hook(state, hook)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    for epoch in range(NUM_EPOCHS):
        loader.set_epoch(epoch)
        total = torch.zeros(())
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: mean loss {total.item() / len(loader) / dist.get_world_size():.3f}")
    weights = torch.cat([parameter.detach().flatten() for parameter in network.parameters()])
    everyones = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, weights)
    if rank == 0:
        print("all ranks have the same weights:", all(torch.equal(weights, other) for other in everyones))


if __name__ == "__main__":
    main()
