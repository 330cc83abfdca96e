"""The manifest: the same bytes for the same values, and what is refused."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from augpipe.datasets.shards.manifest import Histogram, Manifest, ShardInfo, locate
from tests.datasets.shards.shard_sets import build, manifest_of

SHA = "0123456789abcdef" * 4
GOLDEN = f"""{{
  "format": "augpipe shards",
  "version": 2,
  "versions": {{}},
  "num_samples": 4,
  "num_rejected": 0,
  "scales": [
    {{
      "name": "256",
      "shards": [
        {{
          "name": "000000.tar",
          "num_samples": 4,
          "num_bytes": 99,
          "sha256": "{SHA}",
          "index_sha256": "{SHA}",
          "index_bytes": 7,
          "head_bytes": 5,
          "head_sha256": "{SHA}"
        }}
      ]
    }}
  ],
  "classes": [
    "cat",
    "größe"
  ],
  "class_counts": [
    2,
    1
  ],
  "mean": [
    0.1,
    0.25,
    0.5
  ],
  "std": null,
  "histograms": {{}},
  "settings": {{
    "quality": 90,
    "scales": [
      256
    ]
  }}
}}
"""
"""What other programs may read: a change of it is a new version of the format."""


def shard(number: int = 0, num_samples: int = 4) -> ShardInfo:
    return ShardInfo(
        name=f"{number:06}.tar",
        num_samples=num_samples,
        num_bytes=99,
        sha256=SHA,
        index_sha256=SHA,
        index_bytes=7,
        head_bytes=5,
        head_sha256=SHA,
    )


def small(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {"classes": ("cat", "größe"), "class_counts": (2, 1)}
    return manifest_of({"256": [shard()]}, **{**fields, **changes})


def test_its_bytes_are_these() -> None:
    made = small(mean=(0.1, 0.25, 0.5), settings={"scales": [256], "quality": 90})
    assert made.to_json().decode() == GOLDEN


def test_its_bytes_do_not_depend_on_the_order_of_settings() -> None:
    one = small(settings={"a": {"x": 1, "y": 2}, "b": 2}, versions={"p": "1", "q": "2"})
    other = small(settings={"b": 2, "a": {"y": 2, "x": 1}}, versions={"q": "2", "p": "1"})
    assert one.to_json() == other.to_json()


def test_it_is_read_back_as_it_was(tmp_path: Path) -> None:
    made = small(
        mean=(0.1, 0.2, 0.3),
        std=(0.3, 0.2, 0.1),
        num_rejected=3,
        histograms={"height": Histogram(edges=(0.0, 256.0, 512.0), counts=(1, 3))},
        settings={"quality": 90, "nested": {"list": [1, 2.5, None, "x"]}},
        versions={"augpipe": "0.1.0"},
    )
    made.save(tmp_path)
    assert Manifest.load(tmp_path) == made
    assert os.listdir(tmp_path) == ["manifest.json"]
    assert json.loads((tmp_path / "manifest.json").read_text())["classes"] == ["cat", "größe"]


def test_scales_are_found_by_name() -> None:
    made = manifest_of({"512": [shard()], "1024": [shard()], "256": [shard()]}, class_counts=(2, 1))
    assert made.scale().name == "1024"  # the largest number, not the last name
    assert made.scale(256).name == made.scale("256").name == "256"
    with pytest.raises(ValueError, match="scale=300 is not there. The scales: 512, 1024, 256."):
        made.scale(300)
    assert manifest_of({"1024": [shard()], "full": [shard()]}, class_counts=(2, 1)).scale().name == "full"


def set_to(*path: Any) -> Callable[[Any], None]:
    """A change of the JSON: the last of `path` becomes the value at the place that the others lead to."""
    *places, last, value = path

    def change(data: Any) -> None:
        for place in places:
            data = data[place]
        data[last] = value

    return change


def empty_shards() -> list[Any]:
    return [shard(1, 0).model_dump(), shard(1, 0).model_dump()]


FIRST = ("scales", 0, "shards", 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_to("format", "something else"), r"format: Input should be 'augpipe shards' \(found 'something else'\)"),
        (set_to("version", 3), "version: Input should be 2"),
        (set_to("surprise", 1), "surprise: Extra inputs are not permitted"),
        (set_to("scales", []), "scales: Tuple should have at least 1 item"),
        (set_to("scales", 0, "name", ".."), r"scales\[0\].name: String should match pattern"),
        (set_to("scales", 0, "name", "/etc"), r"scales\[0\].name: String should match pattern"),
        (set_to("scales", 0, "shards", []), r"scales\[0\].shards: Tuple should have at least 1 item"),
        (set_to(*FIRST, "name", "../000000.tar"), r"scales\[0\].shards\[0\].name: String should match pattern"),
        (set_to(*FIRST, "name", "000000.tar\n"), "name: String should match pattern"),
        (set_to(*FIRST, "sha256", "0" * 63), "sha256: String should match pattern"),
        (set_to(*FIRST, "sha256", SHA.upper()), "sha256: String should match pattern"),
        (set_to(*FIRST, "num_samples", -1), "num_samples: Input should be greater than or equal to 0"),
        (set_to(*FIRST, "num_samples", 10**30), "num_samples: Input should be less than"),
        (set_to(*FIRST, "num_samples", 5), "the shards of scale 256 hold 5 samples, and num_samples is 4."),
        (set_to(*FIRST, "num_samples", "4"), "num_samples: Input should be a valid integer"),
        (set_to(*FIRST, "num_bytes", 1e300), "num_bytes: Input should be a valid integer"),
        (set_to("class_counts", [4]), "2 classes have 1 class_counts"),
        (set_to("class_counts", [4, 1]), "class_counts of 5 samples, and there are 4"),
        (set_to("mean", [0.1, 0.2]), "mean"),
        (set_to("mean", ["a", 0.2, 0.3]), r"mean\[0\]: Input should be a valid number"),
        (set_to("histograms", {"height": {"edges": [0, 1], "counts": [1, 2]}}), "2 edges and 2 counts"),
        (set_to("histograms", {"height": {"edges": [1, 1], "counts": [1]}}), "the edges must rise"),
        (lambda data: data.pop("num_samples"), "num_samples: Field required"),
        (lambda data: data["scales"].append(data["scales"][0]), "scales are 256, 256: each may be there once"),
        (lambda data: data["scales"][0]["shards"].extend(empty_shards()), "scale 256 names a shard twice"),
    ],
)
def test_a_manifest_that_lies_is_refused(tmp_path: Path, change: Callable[[Any], None], message: str) -> None:
    data = json.loads(small().to_json())
    change(data)
    (tmp_path / "manifest.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match=rf"manifest\.json cannot be used: .*{message}") as caught:
        Manifest.load(tmp_path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_an_earlier_version_is_told_how_to_be_made_anew(tmp_path: Path) -> None:
    data = json.loads(small().to_json())
    data["version"] = 1
    del data["scales"][0]["shards"][0]["head_bytes"]
    (tmp_path / "manifest.json").write_text(json.dumps(data))
    remedy = r"Make the data set again from its source: augpipe prepare SOURCE OUT --scales 256$"
    with pytest.raises(ValueError, match=rf"manifest\.json is of version 1, and this augpipe .* version 2\. {remedy}"):
        Manifest.load(tmp_path)
    assert locate(str(tmp_path)) is not None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b"null",
        b'{"format": "augpipe shards", "mean": [NaN, NaN, NaN]}',
        b"\0" * 999,
    ],
)
def test_what_is_no_json_of_ours_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(text)
    with pytest.raises(ValueError, match="manifest.json cannot be used: "):
        Manifest.load(tmp_path)


@pytest.mark.timeout(20)
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(ValueError, match="is not a regular file"):
        Manifest.load(tmp_path)
    assert locate(str(tmp_path)) is None


@pytest.mark.slow
def test_an_absurdly_long_one_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "manifest.json", "wb") as file:
        file.truncate(2**40)  # sparse
    with pytest.raises(ValueError, match="has more than 268435456 bytes: it is not our manifest"):
        Manifest.load(tmp_path)


def test_data_sets_and_their_scales_are_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = build(tmp_path / "out", sides=(32, 40))
    assert locate(str(out)) == (str(out), None)
    assert locate(f"{out}/") == (f"{out}/", None)
    assert locate(f"{out}/32") == locate(f"{out}/32/") == (str(out), "32")
    assert locate(str(tmp_path)) is None and locate(str(tmp_path / "missing")) is None
    (out / "notes").mkdir()
    assert locate(f"{out}/notes") is None
    monkeypatch.chdir(out / "40")
    assert locate(".") == (str(out), "40")


@pytest.mark.parametrize("text", ['{"name": "a web app"}', "", '{"images": [{"format": "png"}]}'])
def test_manifests_of_other_programs_are_none_of_ours(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert locate(str(tmp_path)) is None
