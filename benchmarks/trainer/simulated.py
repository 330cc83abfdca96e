"""What `augpipe simulate` says of throttled links, beside what was measured on them (results/*throttled*.json).

    python -m benchmarks.trainer.simulated

The cards throttled-200 and throttled-1000 hold what `cluster_rates` measured, which exchanges no gradients; they
were not changed after this comparison. Exchanges and whole steps are those of `throttled`: ResNet-50's shapes, two
to four ranks, computing played by sleeping. Split layers are those of `parallel exchange`, and of its `steps`,
whose ranks compute: what a pass takes one rank alone is measured here. DDP's hooks and PowerSGD are not simulated.
"""

import json
import statistics
import time
from typing import Any

import torch
from torch import nn

from augpipe.trainer.config.load import make_config
from augpipe.trainer.config.tables import RunConfig
from augpipe.trainer.models import build
from augpipe.trainer.simulate.cluster_card import Card, load_card
from augpipe.trainer.simulate.layers import Layer, network_of
from augpipe.trainer.simulate.prediction import subject_of
from augpipe.trainer.simulate.step import play_steps
from augpipe.trainer.simulate.workload import Settings, Workload
from benchmarks.harness import RESULTS, Bench
from benchmarks.trainer.played import shapes

CODECS = {"fp32": "fp32", "8 bits": "dynamic-tree", "4 bits": "nf4", "1 bit": "one-bit"}
NOTHING_S = 1e18
"""A rate at which an optimizer takes no time, as in an exchange alone."""
RATES, EXCHANGE, STEPS = "2026-11-23-cluster_rates", "2026-11-23-parallel_exchange", "2026-11-22-parallel_steps"


def settings_of(name: str) -> Settings | None:
    """What a contender of throttled.py is; None for one that is not simulated."""
    if name == "DDP fp32":
        return Settings(strategy="ddp")
    strategy, _, bits = name.removeprefix("step of ").partition(", ")
    if strategy not in ("butterfly", "lazy") or bits not in CODECS:
        return None
    return Settings(strategy=strategy, codec=CODECS[bits], bucket_bytes=4 * 2**20)


def exchange_s(name: str, settings: Settings, card: Card, ranks: int, num: int, steps: int, slept_s: float) -> float:
    """Seconds of one exchange, or of one of `steps` steps, the end of all that is under way included."""
    parameters = {nn.Parameter(torch.empty(shape, device="meta")): str(i) for i, shape in enumerate(shapes(num))}
    is_step = name.startswith("step")
    used = card if is_step else card.model_copy(update={"optimizer_bytes_per_s": NOTHING_S})
    # layers of one parameter each that share the computing evenly, a third of it in the forward pass
    share = slept_s / 3 / len(parameters) if is_step else 0.0
    times = {"forward_s": share, "backward_s": 2 * share, "output_bytes": 0}
    layers = tuple(Layer(name=str(number), parameters=(number,), **times) for number in range(len(parameters)))
    work = Workload(parameters, layers, settings, used, ranks, layers_sleep=True)
    return play_steps(work, steps if is_step else 1).flushed_s / (steps if is_step else 1)


def config_s(config: RunConfig, card: Card, ranks: int) -> float:
    """Seconds of a step of a config."""
    subject = subject_of(config, card)
    work = Workload(subject.parameters, subject.layers, subject.settings, card, ranks, splitting=subject.splitting)
    return play_steps(work, 1).flushed_s


def hybrid_s(codec: str, card: Card, ranks: int) -> float:
    """Seconds of the exchanges of `parallel exchange`, AlexNet with split layers: nothing is computed."""
    quick = card.model_copy(update={"optimizer_bytes_per_s": NOTHING_S, "flop_per_s": NOTHING_S})
    tables = {
        "data": {"source": "none", "size": 227, "batch_size": 128},
        "model": {"name": "alexnet", "num_classes": 1000},
        "sync": {"strategy": "butterfly", "codec": codec},
        "parallel": {"model": ranks, "activations": codec, "deltas": codec},
    }
    return config_s(make_config(tables), quick, ranks)


def step_config(codec: str, ranks: int, scheme: str | None) -> RunConfig:
    """The network and batch of `parallel steps`."""
    options = {"filters": [16, 32, 48, 64, 64], "fc_widths": [1024, 1024]}
    tables: dict[str, Any] = {
        "data": {"source": "none", "size": 64, "batch_size": 32},
        "model": {"name": "scaling-8conv", "num_classes": 1000, "options": options},
        "optim": {"name": "sgd", "momentum": 0.9},
        "sync": {"strategy": "butterfly", "codec": codec},
    }
    if scheme is not None:
        tables["parallel"] = {"model": ranks, "scheme": scheme, "activations": codec, "deltas": codec}
    return make_config(tables)


def computing_s(rounds: int) -> float:
    """The fastest of several forward and backward passes of that network, on one thread and alone."""
    config = step_config("fp32", 1, None)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = build(config.model.name, num_classes=config.model.num_classes, **config.model.options)
    images, labels = torch.randn(32, 3, 64, 64), torch.randint(0, 1000, (32,))
    found = []
    for _ in range(rounds):
        model.zero_grad()
        begun = time.perf_counter()
        nn.functional.cross_entropy(model(images), labels).backward()
        found.append(time.perf_counter() - begun)
    return min(found)


def step_s(codec: str, card: Card, ranks: int, scheme: str | None, alone_s: float) -> float:
    """Seconds of a whole step of `parallel steps`, whose passes take `alone_s` where one rank has the machine."""
    config = step_config(codec, ranks, scheme)
    layers = network_of(config, card.flop_per_s)[2]
    flop = card.flop_per_s * sum(layer.forward_s + layer.backward_s for layer in layers)
    return config_s(config, card.model_copy(update={"flop_per_s": flop / alone_s}), ranks)


def main() -> None:
    bench = Bench(__doc__, rounds=15)
    rates = json.loads((RESULTS / f"{RATES}.json").read_text())["results"]["links"]
    found: list[dict[str, Any]] = []

    def compare(file: str, link: str, name: str, taken: list[float], predicted: float) -> None:
        measured = statistics.median(taken)
        found.append({"file": file, "link": link, "name": name, "measured_s": measured, "predicted_s": predicted})
        told = f"measured {measured:6.3f}  predicted {predicted:6.3f}  {predicted / measured - 1:+.0%}"
        print(f"{file[:34]:34} {link:12} {name:28} {told}", flush=True)

    paths = sorted(RESULTS.glob("2026-11-2*-throttled*.json"))
    for path in bench.pick(paths, paths[:1]):
        report = json.loads(path.read_text())
        steps, ranks = report["settings"]["steps"], report["settings"]["ranks"]
        for link, result in report["results"].items():
            card = load_card(f"throttled-{link.split()[0]}")
            slept_s = rates[link]["0.3 s slept layer by layer"] * report["settings"]["compute_s"] / 0.3
            for name, taken in result["seconds"].items():
                if (settings := settings_of(name)) is not None:
                    predicted = exchange_s(name, settings, card, ranks, result["num"], steps, slept_s)
                    compare(path.stem, link, name, taken, predicted)
    for link, rows in json.loads((RESULTS / f"{EXCHANGE}.json").read_text())["results"].items():
        for name in ("fp32", "8 bits"):
            predicted = hybrid_s(CODECS[name], load_card(f"throttled-{link.split()[0]}"), 4)
            compare(EXCHANGE, link, f"split layers, {name}", rows[name]["seconds"], predicted)
    alone_s = computing_s(bench.rounds)
    for link, result in json.loads((RESULTS / f"{STEPS}.json").read_text())["results"].items():
        for name, taken in result["seconds"].items():
            *kind, bits = name.split(", ")
            scheme = kind[1] if kind[0] == "hybrid" else None
            predicted = step_s(CODECS[bits], load_card(f"throttled-{link.split()[0]}"), 4, scheme, alone_s)
            compare(STEPS, link, f"computed step of {name}", taken, predicted)
    off = [abs(row["predicted_s"] / row["measured_s"] - 1) for row in found]
    print(f"within 10 %: {sum(one <= 0.1 for one in off)} of {len(off)}; median {statistics.median(off):.0%} off")
    bench.keep("simulated", {"computing alone, s": alone_s, "results": found})


if __name__ == "__main__":
    main()
