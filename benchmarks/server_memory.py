"""What a parameter server keeps in memory: weights, the optimizer's state, and what pushes and fetches take besides.

    python benchmarks/server_memory.py [--num 25600000] [--no-save]

Each server is alone in a process, with weights of ResNet-50's size. Its workers push and fetch in turn, as the
dispatcher has it: a push is staged, applied, and the worker is handed weights. "held" are the bytes of all tensors and
staged pushes between calls; "peak" is how much the process's resident memory has grown at most since before the
server was made, by the kernel's own count. Under Ray a staged push lies in the memory that processes share, beside the
server; here it counts. All in slices: four bytes for each weight.
"""

import argparse
import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

NUM_ROUNDS, NUM_TENSORS = 2, 54
OPTIMIZERS = {"SGD, momentum": ("sgd", 1), "AdamW": ("adamw", 2)}
"""Its name, and its state in slices."""
KINDS: dict[str, dict[str, Any]] = {
    "pushes in fp32": {"push_codec": "fp32"},
    "pushes in 8 bits": {"push_codec": "dynamic-tree"},
    "delay compensation, constant": {"push_codec": "dynamic-tree", "compensation": "constant"},
    "delay compensation, adaptive": {"push_codec": "dynamic-tree", "compensation": "adaptive"},
    "fetches in 8 bits": {"push_codec": "dynamic-tree", "pull_codec": "dynamic-tree"},
}


def goal(optimizer: str, kind: str, workers: int) -> int:
    """Slices: weights, state and two more; one for each worker where the server keeps what it was given; and the mean
    of squares of adaptive delay compensation, which is state."""
    keeps = "compensation" in KINDS[kind] or "pull_codec" in KINDS[kind]
    return 1 + OPTIMIZERS[optimizer][1] + 2 + workers * keeps + ("adaptive" in kind)


def resident_bytes(which: str) -> int:
    """VmRSS or VmHWM, its peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(which):
            return int(line.split()[1]) * 1024
    raise AssertionError(which)


def play(optimizer: str, kind: str, workers: int, num: int) -> dict[str, float]:
    """One server's life, in this process."""
    import numpy as np
    import torch

    from augpipe.trainer.codecs import codec
    from augpipe.trainer.config.tables import OptimConfig
    from augpipe.trainer.servers.messages import Hand, LeaseName, Part, Update
    from augpipe.trainer.servers.server import Server
    from augpipe.trainer.servers.slices import Segment, Slice
    from augpipe.trainer.servers.specs import Compensation, ServerSpec

    about = dict(KINDS[kind])
    compensation = about.pop("compensation", None)
    codecs = {"push_codec": about["push_codec"], "pull_codec": about.get("pull_codec")}

    def spec_of(of_num: int) -> ServerSpec:
        size = of_num // NUM_TENSORS
        segments = (Segment(parameter=str(k), start=k * size, stop=(k + 1) * size) for k in range(NUM_TENSORS))
        total = size * NUM_TENSORS
        return ServerSpec(
            index=0,
            slice=Slice(wide=(0, total), narrow=(total, total), wide_segments=tuple(segments), narrow_segments=()),
            num_buffers=(0, 0),
            optim=OptimConfig(name=OPTIMIZERS[optimizer][0], lr=0.01, weight_decay=1e-4),
            compensation=None if compensation is None else Compensation(kind=compensation, strength=0.04),
            hands_views=True,
            **codecs,
        )

    def payload_of(spec: ServerSpec) -> bytes:
        encoder = codec(spec.push_codec)
        payload = np.empty(encoder.num_bytes(spec.slice.num_wide), np.uint8)
        encoder.encode_into(np.full(spec.slice.num_wide, 1e-3, np.float32), payload)
        return payload.tobytes()

    def lives(spec: ServerSpec, pushed: bytes) -> Server:
        server = Server(spec)
        server._wide.normal_()  # zeros take no memory before they are written to
        number = 0
        for worker in range(workers):
            number += 1
            server.carry_out(number, Hand(worker=worker, whole=True))
        for index in range(NUM_ROUNDS * workers):
            name, worker = LeaseName(0, index, 0), index % workers
            part = Part(
                wide=np.frombuffer(bytearray(pushed), np.uint8),
                narrow=np.zeros(0, np.float32),
                buffers=np.zeros(0, np.float32),
                counts=np.zeros(0, np.int64),
            )
            server.stage(worker, name, part)
            del part
            server.carry_out(number + 1, Update(pushes=(name,), num_samples=(1,), workers=(worker,), lr=1.0))
            server.carry_out(number + 2, Hand(worker=worker, whole=False))
            number += 2
        return server

    torch.set_num_threads(1)
    small = spec_of(10**6)
    lives(small, payload_of(small))  # whatever is compiled or loaded once
    spec = spec_of(num)
    pushed = payload_of(spec)
    ctypes.CDLL(None).malloc_trim(0)  # what was freed is not to be used again
    before = resident_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    server = lives(spec, pushed)
    state = [one for of in server._optimizer.state.values() for one in of.values()]
    tensors = [server._wide, *server._gradients, *state, *server._mean_squares]
    tensors += [one for pair in server._given.values() for one in pair]
    one_slice = 4 * spec.slice.num_wide
    return {
        "held": sum(one.nbytes for one in tensors) / one_slice,
        "peak": (resident_bytes("VmHWM") - before) / one_slice,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=25_600_000, help="weights")
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        optimizer, kind, workers = options.one
        print("RESULT" + json.dumps(play(optimizer, kind, int(workers), options.num)))
        return
    from common import save

    table = []
    for optimizer in OPTIMIZERS:
        for kind, about in KINDS.items():
            for workers in (1, 4) if len(about) > 1 else (4,):
                command = [sys.executable, __file__, "--num", str(options.num), "--one", optimizer, kind, str(workers)]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                line = next(line for line in out.splitlines() if line.startswith("RESULT"))
                found = json.loads(line.removeprefix("RESULT"))
                most = goal(optimizer, kind, workers)
                table.append({"optimizer": optimizer, "kind": kind, "workers": workers, **found, "goal": most})
                print(
                    f"{optimizer:14} {kind:29} {workers} worker(s): held {found['held']:.2f} slices, "
                    f"peak {found['peak']:.2f}; goal {most}",
                    flush=True,
                )
    if not options.no_save:
        save("server_memory", {"num": options.num, "table": table})


if __name__ == "__main__":
    main()
