"""Dense testing at three scales with flips beside the network's bare forward passes, and the loader alone.

The sample dataset, and `small-cnn` of 96 pixels trained for one epoch on a tenth of it, with its 24 filters in the
first layer and with 72. "bare" shows the network the same batches, made beforehand; "loader" makes them and shows them
to nobody. All three use every core.
"""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from augpipe.batch import Batch
from augpipe.datasets.open import open_source
from augpipe.datasets.synthetic.generate import generate
from augpipe.trainer.config import make_config
from augpipe.trainer.evaluation.groups import groups_of
from augpipe.trainer.evaluation.predict import ShownNetwork, batches_of, predict
from augpipe.trainer.evaluation.trained_run import open_run
from augpipe.trainer.evaluation.views import Views
from augpipe.trainer.loop import run
from augpipe.trainer.loop.world import open_world
from benchmarks.harness import Bench, ratio, spread

VIEWS = Views(scales=(96, 112, 128), flip=True, dense=True)
NUM_IMAGES = {24: 1000, 72: 300}
"""By filters of the first layer."""
MEMORY_MB, GOAL = 1024, 0.9


def measure(bench: Bench, width: int, num: int) -> dict[str, object]:
    """Rates over the bare one, and milliseconds an image."""
    with TemporaryDirectory() as folder:
        photos, out = Path(folder) / "photos", Path(folder) / "run"
        generate(photos, num=num, classes=10, seed=0)
        data = {"source": str(photos), "eval_fraction": 0.9, "size": 96, "batch_size": bench.pick(16, 2)}
        model = {"name": "small-cnn", "options": {"width": width}}
        run(make_config({"out": str(out), "epochs": 1, "data": data, "model": model, "report": {"progress": False}}))
        with open_world("cpu", 600.0) as world:
            trained, source = open_run(out, world), open_source(photos)
            network = ShownNetwork(trained, VIEWS)
            memory = network.memory(MEMORY_MB)

            def made() -> Iterable[Batch]:
                for group in groups_of(source, trained.recipe, VIEWS, memory, skips_bad=False, left_out={}):
                    size = network.batch_size(group, memory)
                    firsts = list(range(0, len(group.sample_ids), size))
                    for _, batch in batches_of(trained, source, group, firsts, size, False, {}):
                        yield batch

            held = list(made())
            contenders = {
                "evaluate": lambda: len(
                    predict(trained, source, VIEWS, memory_mb=MEMORY_MB, network=network).log_probs
                ),
                "bare": lambda: sum(len(network.answer(batch)) for batch in held),
                "loader": lambda: sum(map(len, made())),
            }
            seconds = bench.in_turn(contenders)
    rates = {f"{what}, images a second over bare": ratio(seconds, "bare", what) for what in ("evaluate", "loader")}
    print(f"{width} filters: {rates}; the goal for evaluate is {GOAL}", flush=True)
    return {"images": num, **rates, "ms an image": {name: spread(values, 1e3) for name, values in seconds.items()}}


def main() -> None:
    bench = Bench(__doc__, rounds=3)
    chosen = bench.pick(NUM_IMAGES, {24: 40})
    found = {f"{width} filters": measure(bench, width, num) for width, num in chosen.items()}
    bench.keep("evaluate", {"goal": GOAL, "results": found})


if __name__ == "__main__":
    main()
