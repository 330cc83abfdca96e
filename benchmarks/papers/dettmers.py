"""Dettmers' experiments, rerun: does training with 8-bit gradients end at the same test error as with 32-bit ones?

Over two or four ranks of this machine (Gloo); the paper simulated a cluster on one GPU. Data parallel: each exchange of
gradients is a butterfly of the codec under test. Model parallel: fully and locally connected layers are split among the
ranks, and activations and error deltas are encoded as well. MNIST: his 784-1024-1024-10 network, dropout 0.2, 0.3, 0.3,
RMSProp; five seeds for 32 bits and each of his four 8-bit types, and his F-test. CIFAR-10: his convolutional network. A
seed fixes the first weights, the order of the samples and the dropout for all codecs alike. What the paper does not
say, batch size, epochs and schedule, is chosen so that two cores are done within an hour: the errors are those of short
training.

    python -m benchmarks.papers.dettmers mnist
    python -m benchmarks.papers.dettmers cifar10
    python -m benchmarks.papers.dettmers mnist_split_2      # model parallel, as the next two are
    python -m benchmarks.papers.dettmers mnist_split_4
    python -m benchmarks.papers.dettmers cifar10_split_2

The same question for four bits and for one, both with error feedback, and for torch's PowerSGD hook, which has its own,
beside fp32; in runs of a minute or so:

    python -m benchmarks.papers.dettmers mnist_few_bits
    python -m benchmarks.papers.dettmers cifar10_few_bits

Each finished run is kept, with --kept in a folder of yours; started again, only what is missing is run.
"""

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness import Bench, half_width
from benchmarks.papers.training import FEEDBACK, POWER_SGD, POWER_SGD_START, Experiment, runs_of

TYPES = ("fp32", "dynamic-tree", "linear", "mantissa", "static-tree")
FEW_BITS = ("fp32", f"nf4{FEEDBACK}", f"one-bit{FEEDBACK}", *(f"{POWER_SGD}{rank}" for rank in (1, 2, 4)))
MNIST = Experiment(
    data="mnist", network="mnist-mlp", optimizer="rmsprop", lr=0.0005, momentum=0.0, weight_decay=0.0, rank_batch=128,
    epochs=6, num_images=60_000, divide_after=(0.7,),
)  # fmt: skip
CIFAR10 = Experiment(
    data="cifar10", network="cifar-conv", lr=0.006, weight_decay=0.001, rank_batch=64, epochs=6, num_images=20_000,
    divide_after=(0.6, 0.85), warm_up=1,
)  # fmt: skip
SPLIT = replace(MNIST, epochs=2, num_images=20_000)
EXPERIMENTS: dict[str, tuple[Experiment, int, tuple[str, ...]]] = {
    "mnist": (MNIST, 5, TYPES),
    "cifar10": (CIFAR10, 4, TYPES[:2]),
    "mnist_split_2": (replace(SPLIT, ranks=2, model_ranks=2, rank_batch=128), 5, TYPES),
    "mnist_split_4": (replace(SPLIT, ranks=4, model_ranks=4, rank_batch=64), 5, TYPES),
    "cifar10_split_2": (
        replace(CIFAR10, model_ranks=2, lr=0.004, epochs=5, evaluate_every=5, num_images=5_000),
        *(3, TYPES[:2]),
    ),
    "mnist_few_bits": (replace(MNIST, epochs=3), 4, FEW_BITS),
    "cifar10_few_bits": (replace(CIFAR10, network="small-cnn", lr=0.05, weight_decay=0.0005, epochs=3), 4, FEW_BITS),
}
"""What is trained, by how many seeds, and the types that are compared."""


def table_of(runs: list[dict[str, Any]], types: tuple[str, ...]) -> dict[str, Any]:
    """Each type's errors, means, confidence intervals and errors over fp32's, of the seeds that all types have."""
    from scipy import stats

    by_type = {codec: {run["seed"]: run for run in runs if run["codec"] == codec} for codec in types}
    seeds = sorted(set.intersection(*map(set, by_type.values())))
    num = len(seeds)
    last = {codec: [of[seed]["errors"][-1] for seed in seeds] for codec, of in by_type.items()}
    best = {codec: [min(of[seed]["errors"]) for seed in seeds] for codec, of in by_type.items()}
    fp32, table = statistics.mean(last["fp32"]), dict[str, Any]()
    for codec, errors in last.items():
        mean = statistics.mean(errors)
        half_95 = half_width(errors) if num > 1 else 0.0
        wider = float(stats.t.ppf(0.995, num - 1) / stats.t.ppf(0.975, num - 1)) if num > 1 else 0.0
        table[codec] = {
            "test error after the last epoch, %": [round(100 * error, 2) for error in errors],
            "mean, %": round(100 * mean, 3),
            "95 % confidence, +- %": round(100 * half_95, 3),
            "99 % confidence, +- %": round(100 * half_95 * wider, 3),
            "best over the epochs, mean, %": round(100 * statistics.mean(best[codec]), 3),
            "over fp32": round(mean / fp32, 4),
            "accuracy over fp32's": round((1 - mean) / (1 - fp32), 5),
        }
        if codec != "fp32" and num > 1:  # a seed's weights, order and dropout are the same for all types
            more = [error - other for error, other in zip(errors, last["fp32"], strict=True)]
            table[codec]["over fp32, paired by seed"] = {
                "95 % confidence, +-": round(half_width(more) / fp32, 4),
                "p": float(f"{stats.ttest_rel(errors, last['fp32']).pvalue:.2g}"),
            }
        sent = statistics.mean(by_type[codec][seed]["bytes a step"] for seed in seeds)
        table[codec]["bytes that rank 0 sends a step"] = round(sent)
    tests = {}
    for what, groups in {"last epoch": last, "best epoch": best}.items():
        if num > 1:
            found = stats.f_oneway(*groups.values())
            between, within = len(groups) - 1, (num - 1) * len(groups)
            tests[what] = f"F({between}, {within}) = {found.statistic:.2f}, p = {found.pvalue:.2g}"
    return {"seeds": seeds, "types": table, "one-way analysis of variance of the test errors": tests}


def main() -> None:
    bench = Bench(__doc__, names=EXPERIMENTS, types=("",), seeds=0, kept=Path)
    for name in bench.names[: bench.pick(None, 1)]:
        of, num_seeds, types = EXPERIMENTS[name]
        bench.data({"mnist": "mnist.npz", "cifar10": "cifar10_jpg.tar.gz"}[of.data])
        of = replace(of, epochs=bench.pick(of.epochs, 1), num_images=bench.pick(of.num_images, 1024))
        of = replace(of, evaluate_every=bench.pick(of.evaluate_every, 1))
        seeds = range(bench.options.seeds or bench.pick(num_seeds, 1))
        chosen = [one for one in bench.options.types if one] or bench.pick(types, types[:2])
        jobs = {f"{name}-{codec.replace(' ', '')}-{seed}": (codec, seed) for seed in seeds for codec in chosen}
        with bench.kept() as kept:
            runs = runs_of(of, jobs, kept)
        result = table_of(runs, tuple(one for one in types if one in {run["codec"] for run in runs}))
        way = "butterfly over" if of.model_ranks == 1 else "layers split among"
        if any(codec.startswith(POWER_SGD) for codec in types):
            way = f"butterfly, or DDP with the PowerSGD hook after {POWER_SGD_START} steps as they are, over"
        what = (
            f"{of.network}, {of.num_images:,} training pictures, {way} {of.ranks} ranks of {of.rank_batch} pictures a "
            f"step, {of.optimizer} lr {of.lr:g} momentum {of.momentum:g} weight decay {of.weight_decay:g}, "
            f"{f'rising over {of.warm_up} epoch(s), ' * (of.warm_up > 0)}divided by ten "
            f"after {', '.join(f'{share:.0%}' for share in of.divide_after)} of {of.epochs} epochs"
        )
        seconds = round(sum(run["seconds"] for run in runs))
        bench.keep(f"dettmers_{name}", {"what": what, **result, "seconds, all runs": seconds})


if __name__ == "__main__":
    main()
