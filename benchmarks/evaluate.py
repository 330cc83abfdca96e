"""Dense testing at three scales with flips beside the network's bare forward passes, and the loader alone.

    python benchmarks/evaluate.py [--no-save]

The sample dataset, and `small-cnn` of 96 pixels trained for one epoch on a tenth of it, with its 24 filters in the
first layer and with 72. "bare" shows the network the same batches, made beforehand; "loader" makes them and shows them
to nobody. All three use every core.
"""

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path

from common import in_turn, ratio, save, summary

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

VIEWS = Views(scales=(96, 112, 128), flip=True, dense=True)
NUM_IMAGES = {24: 1000, 72: 300}
"""By filters of the first layer."""
MEMORY_MB, ROUNDS, GOAL = 1024, 3, 0.9


def measure(width: int, num: int) -> dict[str, object]:
    """Rates over the bare one, and milliseconds an image."""
    with tempfile.TemporaryDirectory() as folder:
        photos, out = Path(folder) / "photos", Path(folder) / "run"
        generate(photos, num=num, classes=10, seed=0)
        data = {"source": str(photos), "eval_fraction": 0.9, "size": 96, "batch_size": 16}
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

            def evaluate() -> int:
                return len(predict(trained, source, VIEWS, memory_mb=MEMORY_MB, network=network).log_probs)

            held = list(made())
            seconds = in_turn(
                {
                    "evaluate": evaluate,
                    "bare": lambda: sum(len(network.answer(batch)) for batch in held),
                    "loader": lambda: sum(map(len, made())),
                },
                ROUNDS,
            )
    rates = {f"{what}, images a second over bare": ratio(seconds, "bare", what) for what in ("evaluate", "loader")}
    for what, value in rates.items():
        print(f"{width} filters, {what}: {value:.2f}", flush=True)
    return {"images": num, **rates, "ms an image": summary(seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    found = {f"{width} filters": measure(width, num) for width, num in NUM_IMAGES.items()}
    print(f"the goal for evaluate is {GOAL}")
    if not options.no_save:
        save("evaluate", {"goal": GOAL, "results": found})


if __name__ == "__main__":
    main()
