"""Subsets and concatenations hand on what their sources know of objects and label maps."""

from typing import Any

import numpy as np
import pytest

from augpipe import Recipe, ops
from augpipe.sources import Concat, Subset, hold_out
from augpipe.sources.targets import Targets, has_targets, joined
from tests.augpipe.loader.loader_sources import MemorySource, jpegs
from tests.augpipe.loader.target_sources import (
    CLASSES,
    ObjectSource,
    loader_of,
    object_source,
    targets_by_id,
)

torch = pytest.importorskip("torch")

NUM = 11
FORMS: tuple[Any, ...] = ("list", "padded", "flat")


@pytest.fixture(scope="module")
def source() -> ObjectSource:
    return object_source(NUM)


def test_parts_of_sources_hand_targets_on() -> None:
    whole = object_source(8, maps=True)
    part, rest = Subset(whole, [6, 1, 3]), object_source(4, maps=True, first=20)
    both = Concat([part, rest])
    recipe = Recipe(ops=(ops.CenterCrop(size=30),))
    of_whole, of_rest = (targets_by_id(loader_of(one, recipe)) for one in (whole, rest))
    found = targets_by_id(loader_of(both, recipe, seed=8))
    expected = [of_whole[6], of_whole[1], of_whole[3], *(of_rest[number] for number in range(4))]
    for number, ((views, dropped), (expected_views, expected_dropped)) in enumerate(
        (found[number], expected[number]) for number in range(7)
    ):
        assert dropped == expected_dropped
        assert [view | {"image_id": 0} for view in views] == [view | {"image_id": 0} for view in expected_views]
        assert views[0]["image_id"] == number
    assert both.object_classes == CLASSES and both.keypoint_swaps == ((0, 1),) and both.has_label_maps
    train, held_out = hold_out(whole, 0.25)
    assert len(next(iter(loader_of(held_out, recipe))).targets) == 2 and has_targets(train)


def test_concatenated_sources_know_the_same(source: ObjectSource) -> None:
    other = object_source(3)
    other.object_classes = ("cat",)
    for second, text in (
        (MemorySource(jpegs(2), labels=[-1, -1]), "whether there are any True and False"),
        (object_source(3, maps=True), "label maps False and True"),
        (other, r"classes of objects \['cat', 'dog', 'owl'\] and \['cat'\]"),
    ):
        with pytest.raises(ValueError, match=text):
            Concat([source, second])
    assert not has_targets(Concat([MemorySource(jpegs(2)), MemorySource(jpegs(2))]))
    assert not has_targets(Subset(MemorySource(jpegs(2)), [0]))
    with pytest.raises(AttributeError, match="has no targets"):
        Subset(MemorySource(jpegs(2)), [0]).object_classes  # noqa: B018


def test_sources_that_know_other_fields_are_joined_with_none_in_their_place() -> None:
    first, second = object_source(3), object_source(3)
    for one in second.objects:
        del one.fields["tag"]
        one.fields["note"] = [7] * len(one.labels)
    whole = Concat([first, second]).targets_of(np.array([5, 0, 4, 2, 1, 3]))
    assert whole is not None
    counts = [len(second.objects[2].labels), len(first.objects[0].labels), len(second.objects[1].labels)]
    assert whole.counts.tolist()[:3] == counts and isinstance(whole.fields["id"], np.ndarray)
    assert whole.fields["tag"][: counts[0]] == [None] * counts[0] and whole.fields["note"][0] == 7
    assert whole.fields["tag"][counts[0]] == "0:0" and whole.fields["note"][counts[0]] is None


def test_images_without_objects_need_not_say_what_is_known_of_objects() -> None:
    """Asked one image at a time, as by `augpipe prepare`, a source may know nothing more of an empty one."""
    one = Targets(counts=np.array([1]), labels=np.array([1]), boxes=np.ones((1, 4)), fields={"area": np.array([4.0])})
    nothing = Targets(counts=np.array([0]), labels=np.empty(0))
    found = joined([(np.array([0]), nothing), (np.array([1]), one), (np.array([2]), nothing)], 3)
    assert found.counts.tolist() == [0, 1, 0] and found.labels is not None and found.labels.tolist() == [1]
    assert found.boxes is not None and found.boxes.tolist() == [[1.0, 1.0, 1.0, 1.0]]
    assert isinstance(found.fields["area"], np.ndarray) and found.fields["area"].tolist() == [4.0]
    assert joined([(np.array([0]), nothing)], 1).boxes is None
