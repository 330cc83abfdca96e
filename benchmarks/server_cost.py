"""What a parameter server costs beside what it must do: decode a push and take a step of the optimizer.

    python benchmarks/server_cost.py [--num 25600000] [--rounds 9] [--no-ray] [--no-save]

One server holds the weights of a network of ResNet-50's size as one slice of 54 tensors; pushes come in 8 bits. "alone"
decodes into a gradient and steps SGD with momentum on plain torch parameters of the same shapes; "server" stages the
push and carries out the update. Both in one process on one core, turn by turn, in CPU time. Handing out weights is
measured beside one copy of them, and in 8 bits beside subtracting, encoding and decoding.

Then a worker's push and fetch over Ray, on one machine, in seconds of the wall: encoding, staging at a server in
another process, and loading the whole weights that it hands out; beside encoding, one copy of the payload, and one of
the weights.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from common import save
from torch import nn

from augpipe.trainer.codecs import codec
from augpipe.trainer.config.tables import OptimConfig
from augpipe.trainer.servers.messages import Hand, LeaseName, Part, Update
from augpipe.trainer.servers.server import Server
from augpipe.trainer.servers.slices import FlatWeights
from augpipe.trainer.servers.specs import ServerSpec

NUM_TENSORS = 54
GOALS = {"update": 0.8, "push and fetch": 1.3}
"""Updates a second of a server over those of the bare work, at least; time over Ray over that of the bare, at most."""


class Wide(nn.Module):
    """Weights, and nothing to do with them."""

    def __init__(self, num: int) -> None:
        super().__init__()
        rows = num // NUM_TENSORS // 512
        self.layers = nn.ParameterList(nn.Parameter(torch.randn(rows, 512) * 0.01) for _ in range(NUM_TENSORS))


def over_ray(num: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of a push and a fetch, and of what they cannot do without, in turn."""
    import asyncio

    import ray

    from augpipe.trainer.servers.ray_cluster import RayPeer

    ray.init(address="local", include_dashboard=False, log_to_driver=False, object_store_memory=2**31)
    flat = FlatWeights(Wide(num))
    (one,) = flat.cut(1)
    optim = OptimConfig(name="sgd", lr=0.01, momentum=0.9)
    spec = ServerSpec(
        index=0,
        slice=one,
        num_buffers=(0, 0),
        optim=optim,
        push_codec="dynamic-tree",
        pull_codec=None,
        hands_views=True,
    )
    server = RayPeer(ray.remote(num_cpus=0)(Server).remote(spec))
    eight_bit = codec("dynamic-tree")
    gradient, values = (torch.randn(one.num_wide) * 1e-3).numpy(), flat.values.numpy()
    payload = np.empty(eight_bit.num_bytes(len(gradient)), np.uint8)
    copied, weights = np.empty_like(payload), np.empty_like(values)
    empty = np.zeros(0, np.float32)

    async def push_and_fetch(number: int) -> None:
        eight_bit.encode_into(gradient, payload)
        part = Part(wide=payload, narrow=empty, buffers=empty, counts=np.zeros(0, np.int64))
        await server.call("stage", 0, LeaseName(0, 0, number), part)
        given: Part = await server.call("carry_out", number, Hand(worker=0, whole=True))
        values[:] = given.wide.view(np.float32)

    def bare() -> None:
        eight_bit.encode_into(gradient, payload)
        copied[:] = payload
        weights[:] = values

    taken: dict[str, list[float]] = {"push and fetch": [], "bare": []}
    for number in range(1, rounds + 3):
        for name in taken:
            start = time.perf_counter()
            asyncio.run(push_and_fetch(number)) if name == "push and fetch" else bare()
            if number > 2:
                taken[name].append(time.perf_counter() - start)
    ray.shutdown()
    return taken


def seconds_of(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=25_600_000, help="weights")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-ray", action="store_true", help="leave out the push and fetch over Ray")
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    optim = OptimConfig(name="sgd", lr=0.01, momentum=0.9, weight_decay=1e-4)
    flat = FlatWeights(Wide(options.num))
    (one,) = flat.cut(1)
    eight_bit = codec("dynamic-tree")
    servers = {
        pull: Server(
            ServerSpec(
                index=0,
                slice=one,
                num_buffers=(0, 0),
                optim=optim,
                push_codec="dynamic-tree",
                pull_codec=None if pull == "whole" else pull,
            )
        ).begin(flat)
        for pull in ("whole", "dynamic-tree")
    }
    gradient = torch.randn(one.num_wide) * 1e-3
    nothing = np.zeros(0, np.float32), np.zeros(0, np.int64)
    part = Part(
        wide=eight_bit.encode(gradient).numpy(), narrow=np.zeros(0, np.float32), buffers=nothing[0], counts=nothing[1]
    )
    alone = Wide(options.num)
    decoded = torch.empty(one.num_wide)
    start = 0
    for parameter in alone.layers:
        parameter.grad = decoded[start : start + parameter.numel()].view(parameter.shape)
        start += parameter.numel()
    optimizer = torch.optim.SGD(alone.layers, lr=0.01, momentum=0.9, weight_decay=1e-4)
    numbers = dict.fromkeys(servers, 0)
    weights, given = flat.values.clone(), flat.values.clone()

    def update_alone() -> None:
        eight_bit.decode_into(part.wide, decoded.numpy())
        optimizer.step()

    def command(pull: str, what: Hand | Update) -> None:
        numbers[pull] += 1
        servers[pull].carry_out(numbers[pull], what)

    def update(pull: str) -> None:
        name = LeaseName(0, numbers[pull], 0)
        servers[pull].stage(0, name, part)
        command(pull, Update(pushes=(name,), num_samples=(1,), workers=(0,), lr=1.0))

    def change_alone() -> None:
        payload = eight_bit.encode(weights - given)
        eight_bit.decode_into(payload, given, add=True)

    def copy_alone() -> None:
        flat.values.clone()

    contenders: dict[str, Callable[[], None]] = {
        "update, alone": update_alone,
        "update, server": lambda: update("whole"),
        "hand whole, a copy": copy_alone,
        "hand whole, server": lambda: command("whole", Hand(worker=0, whole=False)),
        "hand changes, alone": change_alone,
        "hand changes, server": lambda: command("dynamic-tree", Hand(worker=0, whole=False)),
    }
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(options.rounds + 2):
        for name, call in contenders.items():
            if turn >= 2:
                taken[name].append(seconds_of(call))
            else:
                call()
    best = {name: min(times) for name, times in taken.items()}
    ratios = {what: best[f"{what}, {how}"] / best[f"{what}, server"] for what, how in BARE.items()}
    for name, seconds in best.items():
        print(f"  {name:24} {1e3 * seconds:8.1f} ms ({1e3 * statistics.median(taken[name]):.1f} median)")
    for what, ratio in ratios.items():
        print(f"  {what}: {ratio:.2f} of the bare work's rate" + (f"; goal {GOALS[what]}" if what in GOALS else ""))
    round_trip: dict[str, list[float]] = {}
    if not options.no_ray:
        round_trip = over_ray(options.num, options.rounds)
        fastest = {name: min(times) for name, times in round_trip.items()}
        ratios["push and fetch"] = fastest["push and fetch"] / fastest["bare"]
        print(
            f"  push and fetch over Ray {1e3 * fastest['push and fetch']:.0f} ms, bare {1e3 * fastest['bare']:.0f} ms:"
        )
        print(f"    {ratios['push and fetch']:.2f} of it; goal at most {GOALS['push and fetch']}")
    if not options.no_save:
        result = {"num": one.num_wide, "seconds": taken, "over_ray_s": round_trip, "ratios": ratios, "goals": GOALS}
        save("server_cost", result)


BARE = {"update": "alone", "hand whole": "a copy", "hand changes": "alone"}

if __name__ == "__main__":
    main()
