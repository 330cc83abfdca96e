"""The sampler of a run: which training images an epoch holds, as the `[data]` table says it."""

import difflib
import os

import numpy as np
import numpy.typing as npt

from augpipe.sampling import ClassBalanced, Repeated, Sampler, Weighted
from augpipe.sources import Subset
from augpipe.sources.protocol import Source, classes_of
from augpipe.trainer.config.tables import DataConfig
from augpipe.validation.plural import count

Floats = npt.NDArray[np.float64]


def training_sampler(config: DataConfig, source: Source) -> Sampler | None:
    """What `data.sampler` names, for the images that are trained on; None where an epoch is each of them once.

    Raises:
        ValueError: the weights do not fit the source.
    """
    if config.sampler == "class-balanced":
        return ClassBalanced(num=config.sampler_num)
    if config.sampler == "repeated":
        assert config.sampler_times is not None
        return Repeated(config.sampler_times)
    if config.sampler == "weighted":
        given = config.sampler_weights
        weights = _of_classes(given, source) if isinstance(given, dict) else _of_images(str(given), source)
        return Weighted(weights, num=config.sampler_num)
    return None


def _of_classes(weights: dict[str, float], source: Source) -> Floats:
    """(N,): each image's weight is its class's, 1 for a class that is not named, 0 for an image without a class."""
    by_class = dict.fromkeys(source.classes, 1.0)
    for name, weight in weights.items():
        if name not in by_class:
            near = difflib.get_close_matches(name, by_class, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"data.sampler_weights names {name!r}, which is none of the {count(len(by_class), 'class')} of "
                f"data.source.{hint} Name classes as the source does."
            )
        by_class[name] = weight
    labels = classes_of(source, np.arange(len(source), dtype=np.int64), "data.sampler_weights")
    return np.array([*by_class.values(), 0.0])[labels]


def _of_images(path: str, source: Source) -> Floats:
    """(N,) of a file that has a number for each image of the whole source, also for those that are held out."""
    try:
        found = np.load(path, allow_pickle=False) if path.endswith(".npy") else np.loadtxt(path, np.float64, ndmin=1)
    except FileNotFoundError as error:
        raise ValueError(
            f"data.sampler_weights={path!r} does not exist; a relative path is seen from the current folder, which is "
            f"{os.getcwd()}."
        ) from error
    except ValueError as error:
        raise ValueError(
            f"data.sampler_weights={path!r} cannot be read ({error}). Write a number a line, or an .npy file."
        ) from error
    ids = np.arange(len(source))
    while isinstance(source, Subset):
        ids, source = source.ids[ids], source.whole
    total = len(source)
    if found.shape != (total,):
        raise ValueError(
            f"data.sampler_weights={path!r} has shape {found.shape}, and data.source holds "
            f"{count(total, 'photograph')}. Write one number for each, in the source's order."
        )
    weights: Floats = found[ids]
    return weights
