"""What a parameter server costs beside what it must do, in time and in memory, with ResNet-50's number of weights.

    python -m benchmarks.trainer.server_cost time      # decode a push, take a step of the optimizer; hand out weights
    python -m benchmarks.trainer.server_cost memory    # weights, the optimizer's state, what pushes and fetches take

time: one server holds all weights as one slice of 54 tensors; pushes come in 8 bits. "alone" decodes into a gradient
and steps SGD with momentum on plain torch parameters of the same shapes; "server" stages the push and carries out the
update. Both in one process on one core, turn by turn, in CPU time. Handing out weights is measured beside one copy of
them, and in 8 bits beside subtracting, encoding and decoding. Then a worker's push and fetch over Ray, on one machine,
in seconds of the wall: encoding, staging at a server in another process, and loading the whole weights that it hands
out; beside encoding, one copy of the payload, and one of the weights.

memory: each server is alone in a process. Its workers push and fetch in turn, as the dispatcher has it: a push is
staged, applied, and the worker is handed weights. "held" are the bytes of all tensors and staged pushes between calls;
"peak" is how much the process's resident memory has grown at most since before the server was made, by the kernel's own
count. Under Ray a staged push lies in the memory that processes share, beside the server; here it counts. All in
slices: four bytes for each weight.
"""

import asyncio
import ctypes
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from augpipe.trainer.codecs import codec
from augpipe.trainer.config.tables import OptimConfig
from augpipe.trainer.servers.messages import Hand, LeaseName, Part, Update
from augpipe.trainer.servers.server import Server
from augpipe.trainer.servers.slices import FlatWeights, Segment, Slice
from augpipe.trainer.servers.specs import Compensation, ServerSpec
from benchmarks.harness import Bench, in_turn
from benchmarks.trainer.sized_cluster import NUM_TENSORS, Wide, part_of, updates

GOALS = {"update": 0.8, "push and fetch": 1.3}
"""Updates a second of a server over those of the bare work, at least; time over Ray over that of the bare, at most."""
SGD = OptimConfig(name="sgd", lr=0.01, momentum=0.9, weight_decay=1e-4)
BARE = {"update": "alone", "hand whole": "a copy", "hand changes": "alone"}
OPTIMIZERS = {"SGD, momentum": ("sgd", 1), "AdamW": ("adamw", 2)}
"""Its name, and its state in slices."""
KINDS: dict[str, dict[str, Any]] = {
    "pushes in fp32": {"push_codec": "fp32"},
    "pushes in 8 bits": {"push_codec": "dynamic-tree"},
    "delay compensation, constant": {"push_codec": "dynamic-tree", "compensation": "constant"},
    "delay compensation, adaptive": {"push_codec": "dynamic-tree", "compensation": "adaptive"},
    "fetches in 8 bits": {"push_codec": "dynamic-tree", "pull_codec": "dynamic-tree"},
}


def over_ray(num: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of a push and a fetch, and of what they cannot do without, in turn."""
    import ray

    from augpipe.trainer.servers.ray_cluster import RayPeer

    ray.init(address="local", include_dashboard=False, log_to_driver=False, object_store_memory=2**31)
    flat, eight_bit = FlatWeights(Wide(num)), codec("dynamic-tree")
    (one,) = flat.cut(1)
    codecs = {"push_codec": "dynamic-tree", "pull_codec": None}
    spec = ServerSpec(index=0, slice=one, num_buffers=(0, 0), optim=SGD, hands_views=True, **codecs)
    server = RayPeer(ray.remote(num_cpus=0)(Server).remote(spec))
    gradient, values = (torch.randn(one.num_wide) * 1e-3).numpy(), flat.values.numpy()
    payload = np.empty(eight_bit.num_bytes(len(gradient)), np.uint8)
    copied, weights, number = np.empty_like(payload), np.empty_like(values), 0

    async def calls() -> None:
        await server.call("stage", 0, LeaseName(0, 0, number), part_of(payload))
        given: Part = await server.call("carry_out", number, Hand(worker=0, whole=True))
        values[:] = given.wide.view(np.float32)

    def push_and_fetch() -> int:
        nonlocal number
        number += 1
        eight_bit.encode_into(gradient, payload)
        asyncio.run(calls())
        return 1

    def bare() -> int:
        eight_bit.encode_into(gradient, payload)
        copied[:] = payload
        weights[:] = values
        return 1

    taken = in_turn({"push and fetch": push_and_fetch, "bare": bare}, rounds)
    ray.shutdown()
    return taken


def run_time(bench: Bench, num: int) -> None:
    torch.set_num_threads(1)
    flat, eight_bit, alone = FlatWeights(Wide(num)), codec("dynamic-tree"), Wide(num)
    (one,) = flat.cut(1)
    common = {"index": 0, "slice": one, "num_buffers": (0, 0), "optim": SGD, "push_codec": "dynamic-tree"}
    servers = {pull: Server(ServerSpec(pull_codec=pull, **common)).begin(flat) for pull in (None, "dynamic-tree")}
    part, decoded = part_of(eight_bit.encode(torch.randn(one.num_wide) * 1e-3).numpy()), torch.empty(one.num_wide)
    start = 0
    for parameter in alone.layers:
        parameter.grad = decoded[start : start + parameter.numel()].view(parameter.shape)
        start += parameter.numel()
    optimizer = torch.optim.SGD(alone.layers, lr=0.01, momentum=0.9, weight_decay=1e-4)
    numbers = dict.fromkeys(servers, 0)
    weights, given = flat.values.clone(), flat.values.clone()

    def update_alone() -> int:
        eight_bit.decode_into(part.wide, decoded.numpy())
        optimizer.step()
        return 1

    def command(pull: str | None, what: Hand | Update) -> int:
        numbers[pull] += 1
        servers[pull].carry_out(numbers[pull], what)
        return 1

    def update() -> int:
        name = LeaseName(0, numbers[None], 0)
        servers[None].stage(0, name, part)
        return command(None, updates([name]))

    def change_alone() -> int:
        eight_bit.decode_into(eight_bit.encode(weights - given), given, add=True)
        return 1

    contenders = {
        "update, alone": update_alone,
        "update, server": update,
        "hand whole, a copy": lambda: len([flat.values.clone()]),
        "hand whole, server": lambda: command(None, Hand(worker=0, whole=False)),
        "hand changes, alone": change_alone,
        "hand changes, server": lambda: command("dynamic-tree", Hand(worker=0, whole=False)),
    }
    seconds = bench.in_turn(contenders, clock=time.process_time)
    ratios = {what: min(seconds[f"{what}, {how}"]) / min(seconds[f"{what}, server"]) for what, how in BARE.items()}
    round_trip = over_ray(num, bench.rounds)
    ratios["push and fetch"] = min(round_trip["push and fetch"]) / min(round_trip["bare"])
    for what, ratio in ratios.items():
        print(f"  {what}: {ratio:.2f}" + (f"; goal {GOALS[what]}" if what in GOALS else ""))
    found = {"num": one.num_wide, "seconds": seconds, "over_ray_s": round_trip, "ratios": ratios, "goals": GOALS}
    bench.keep("server_cost", found)


def goal(optimizer: str, kind: str, workers: int) -> int:
    """Slices: weights, state and two more; one for each worker where the server keeps what it was given; and the mean
    of squares of adaptive delay compensation, which is state."""
    keeps = "compensation" in KINDS[kind] or "pull_codec" in KINDS[kind]
    return 1 + OPTIMIZERS[optimizer][1] + 2 + workers * keeps + ("adaptive" in kind)


def resident_bytes(which: str) -> int:
    """VmRSS or VmHWM, its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(which))


def live(optimizer: str, kind: str, workers: int, num: int) -> dict[str, float]:
    """One server's life, in this process."""
    about = {"pull_codec": None} | KINDS[kind]
    compensation = about.pop("compensation", None)

    def lived(of_num: int) -> tuple[Server, int]:
        size = of_num // NUM_TENSORS
        segments = (Segment(parameter=str(k), start=k * size, stop=(k + 1) * size) for k in range(NUM_TENSORS))
        total = size * NUM_TENSORS
        spec = ServerSpec(
            index=0,
            slice=Slice(wide=(0, total), narrow=(total, total), wide_segments=tuple(segments), narrow_segments=()),
            num_buffers=(0, 0),
            optim=OptimConfig(name=OPTIMIZERS[optimizer][0], lr=0.01, weight_decay=1e-4),
            compensation=None if compensation is None else Compensation(kind=compensation, strength=0.04),
            hands_views=True,
            **about,
        )
        pushed = codec(spec.push_codec).encode(np.full(total, 1e-3, np.float32)).tobytes()
        ctypes.CDLL(None).malloc_trim(0)  # what was freed is not to be used again
        before.append(resident_bytes("VmRSS"))
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        server = Server(spec)
        server._wide.normal_()  # zeros take no memory before they are written to
        for worker in range(workers):
            server.carry_out(worker + 1, Hand(worker=worker, whole=True))
        for index in range(2 * workers):
            name, number = LeaseName(0, index, 0), workers + 2 * index
            server.stage(index % workers, name, part_of(np.frombuffer(bytearray(pushed), np.uint8)))
            applied = Update(pushes=(name,), num_samples=(1,), workers=(index % workers,), lr=1.0)
            server.carry_out(number + 1, applied)
            server.carry_out(number + 2, Hand(worker=index % workers, whole=False))
        return server, 4 * total

    torch.set_num_threads(1)
    before: list[int] = []
    lived(10**5)  # whatever is compiled or loaded once
    server, one_slice = lived(num)
    state = [one for of in server._optimizer.state.values() for one in of.values()]
    tensors = [server._wide, *server._gradients, *state, *server._mean_squares]
    tensors += [one for pair in server._given.values() for one in pair]
    held, peak = sum(one.nbytes for one in tensors), resident_bytes("VmHWM") - before[-1]
    return {"held": held / one_slice, "peak": peak / one_slice}


def run_memory(bench: Bench, num: int) -> None:
    table = []
    for optimizer in bench.pick(list(OPTIMIZERS), list(OPTIMIZERS)[:1]):
        for kind, about in KINDS.items():
            for workers in (1, 4) if len(about) > 1 else (4,):
                code = "import json, sys; from benchmarks.trainer.server_cost import live"
                code += "; print(json.dumps(live(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))))"
                command = [sys.executable, "-c", code, optimizer, kind, str(workers), str(num)]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found = json.loads(out.splitlines()[-1]) | {"goal": goal(optimizer, kind, workers)}
                table.append({"optimizer": optimizer, "kind": kind, "workers": workers, **found})
                print(f"{optimizer:14} {kind:29} {workers} worker(s), in slices: {found}", flush=True)
    bench.keep("server_memory", {"num": num, "table": table})


def main() -> None:
    runs = {"time": run_time, "memory": run_memory}
    bench = Bench(__doc__, rounds=9, names=runs, num=25_600_000)
    for name in bench.names:
        runs[name](bench, bench.pick(bench.options.num, 300_000))


if __name__ == "__main__":
    main()
