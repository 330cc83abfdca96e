"""The figures of parity are of the importers as they are, and the comparison finds what differs."""

import numpy as np
import pytest

from augpipe.recipes.importers import measured
from benchmarks.parity.measure import (
    ENVIRONMENTS,
    alike,
    asked,
    compared,
    form_of,
    imported,
    nearest,
    ops_digest,
    row_of,
)
from benchmarks.parity.probes import names, probes, read, shown_in, slacks

RANDOM = np.random.default_rng(5)


@pytest.mark.slow
@pytest.mark.parametrize("library", ENVIRONMENTS)
def test_each_case_was_measured_as_it_is_imported_now(library: str) -> None:
    kept = {case.call: case for case in measured.figures().cases if case.library == library}
    changed = []
    for case in asked(library):
        row = row_of(library, case, case.fixed)
        found = kept.pop(case.fixed, None)
        if found is None or (found.form, found.ops) != (form_of(library, case), ops_digest(library, case)):
            changed.append(case.fixed)
        elif case.drawn:
            drawn = row_of(library, case, case.drawn)
            assert set(drawn.forms) & set(row.forms), case.drawn
            assert found.p is not None or found.mean is None  # or outcomes are of several sizes
    assert not changed, "run `make parity`: an import makes something else of these, or they were never measured"
    assert not kept, "run `make parity`: these are no longer in cases.toml"


def test_each_library_was_measured_in_its_version() -> None:
    libraries = measured.figures().libraries
    assert set(libraries) == set(ENVIRONMENTS) and all(one.date and one.num_tests for one in libraries.values())
    assert libraries["albumentations-1"].versions["albumentations"] == "1.3.1"
    assert libraries["albumentations-2"].versions["albumentations"] == "2.0.8"
    assert measured.figures().to_json() == measured.PATH.read_text(encoding="utf-8")


def numbers(scale: float, n: int = 4000) -> np.ndarray:
    return scale * RANDOM.random(n)


def told(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    return alike(a, b, np.sort(np.concatenate([a, b])), 0.75)


def test_the_same_distribution_is_not_called_another_one() -> None:
    assert told(numbers(100.0), numbers(100.0))["p"] > 1e-4
    assert told(numbers(100.0), numbers(100.0) + 0.4)["p"] > 1e-4  # rounding
    assert told(np.rint(numbers(4.0)) * 20, np.rint(numbers(4.0)) * 20 + 0.5)["p"] > 1e-4


def test_two_levels_that_are_subtracted_may_each_be_off_by_one() -> None:
    slack = dict(zip(names(), slacks(), strict=True))
    few, twice = RANDOM.choice(np.array([-50.0, 0.0, 50.0]), 4000), RANDOM.choice(np.array([-50.0, 0.0, 50.0]), 8000)

    def p(name: str, shift: float) -> float:
        moved = np.sort(np.concatenate([few, twice + shift]))
        return alike(few, twice + shift, moved, slack[name])["p"]

    assert p("R at 0.5, 0.5", 1.0) > 1e-4 and p("R at 0.5, 0.5", 2.0) < 1e-9
    assert p("R - G at 0.5, 0.5", 2.0) > 1e-4 and p("R - G at 0.5, 0.5", 3.0) < 1e-9
    assert slack["R - G"] == slack["R left - right"] == slack["R deviation"] == 0.15


def test_another_distribution_is_called_so() -> None:
    assert told(numbers(100.0), numbers(115.0))["p"] < 1e-9
    assert told(numbers(100.0), numbers(100.0) + 12.0)["p"] < 1e-9
    few = np.array([0.0, 50.0, 100.0])
    found = told(RANDOM.choice(few, 4000), RANDOM.choice(few, 4000, p=[0.4, 0.3, 0.3]))
    assert found["p"] < 1e-6 and found["apart"] == pytest.approx(0.067, abs=0.03)


def test_pixels_are_compared_in_levels_with_the_nearest_outcome_or_by_their_spread() -> None:
    image = probes()[1]
    flipped = image[:, ::-1].astype(np.float32)
    found = imported("torchvision", "T.RandomHorizontalFlip(p=1)")
    assert compared("", found, [flipped[None]], [image]) == (0.0, 0.0)
    assert compared("", found, [flipped[None] + 2.0], [image]) == (2.0, 2.0)
    assert compared("", found, [flipped[None, 1:]], [image]) == (255.0, 255.0)
    either = imported("torchvision", "T.RandomHorizontalFlip(p=0.5)")
    assert compared("nearest", either, [np.stack([flipped, image])], [image]) == (0.0, 0.0)
    assert nearest(flipped, np.stack([image, flipped]).astype(np.float32)) == 1
    noise = imported("kornia", "K.RandomGaussianNoise(0.0, 0.05, p=1.0)")
    theirs = image + RANDOM.normal(0.0, 255 * 0.05, image.shape).astype(np.float32)
    assert (
        compared("spread", noise, [theirs[None]], [image])[0]
        < 1.0
        < compared("spread", noise, [flipped[None]], [image])[0]
    )


def test_numbers_that_are_read_tell_where_the_image_went() -> None:
    images = np.stack(probes()).astype(np.float32)
    still, turned = read(images), read(images[:, ::-1])
    assert still.shape == (2, len(names())) and not np.isnan(still).any()
    moved = [name for name, apart in zip(names(), np.abs(still - turned)[0], strict=True) if apart > 5.0]
    assert "G top - bottom" in moved and "R left - right" not in moved


def test_small_images_are_middles() -> None:
    (image,) = probes()[:1]
    large = np.tile(image, (3, 2, 1))
    assert shown_in("nearest of many", [large])[0] is large
    (middle,) = shown_in("small nearest of many", [large])
    assert (middle == large[48:144, 16:112]).all()
