"""Values that ranks tell each other: what arrives, that nothing is unpickled, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from augpipe.trainer.exchange.objects import MAX_DEPTH, parse_json
from tests.distributed.rank_processes import run_script

RANK = """
import json, sys
from datetime import timedelta
import torch.distributed as dist
rank, size, meeting_place = json.loads(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=size,
                        timeout=timedelta(seconds=60))
from augpipe.trainer.exchange import objects
unpickled = []
sys.addaudithook(lambda event, arguments: event == "pickle.find_class" and unpickled.append(arguments))
group = dist.group.WORLD
mine = {"rank": rank, "text": "\u00e4" * 1000 * rank, "numbers": [1 / 3, -0.0, 2**70, float("inf")], "none": None}
found = {"gathered": objects.gather_json(mine, group), "told": objects.broadcast_json([rank, "first"], group)}
objects.MAX_BYTES = 100
refused = []
for call, value in ((objects.gather_json, "x" * 200 * rank), (objects.broadcast_json, "x" * 200)):
    try:
        call(value, group)
    except ValueError as error:
        refused.append(str(error))
found["again"] = objects.broadcast_json("fine", group)
dist.destroy_process_group()
print(json.dumps({**found, "refused": refused, "unpickled": unpickled}))
"""


@pytest.mark.slow
def test_what_ranks_tell_each_other_arrives_on_all(tmp_path: Path) -> None:
    outputs = [json.loads(out) for out in run_script(RANK, [[rank, 3, str(tmp_path / "meet")] for rank in range(3)])]
    assert outputs[0] == outputs[1] == outputs[2]
    (found, *_) = outputs
    assert [one["rank"] for one in found["gathered"]] == [0, 1, 2]
    assert [len(one["text"]) for one in found["gathered"]] == [0, 1000, 2000]
    numbers = found["gathered"][2]["numbers"]
    assert numbers == [1 / 3, 0.0, 2**70, float("inf")] and str(numbers[1]) == "-0.0"
    assert found["told"] == [0, "first"] and found["again"] == "fine"
    assert found["refused"] == [
        "a rank has 402 bytes to tell the others, and 100 are the most.",
        "a rank has 202 bytes to tell the others, and 100 are the most.",
    ]
    assert found["unpickled"] == []


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    return opening * depth + closing * depth


@pytest.mark.parametrize(
    "text",
    [
        nested(MAX_DEPTH + 1),
        nested(200_000),
        nested(MAX_DEPTH, '[1, {"a": ', "}]").replace(": }", ": 0}", 1),
        "[" * 1_000_000,
    ],
)
def test_deep_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"nested deeper than {MAX_DEPTH}$"):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [(nested(2), [[]]), ("3", 3), ('{"a": [{"b": "[[["}]}', {"a": [{"b": "[[["}]}), (b"null", None)],
)
def test_other_json_is_taken(text: str | bytes, value: Any) -> None:
    assert parse_json(text) == value
    deepest = parse_json(nested(MAX_DEPTH))
    for _ in range(MAX_DEPTH - 1):
        (deepest,) = deepest
    assert deepest == []


@pytest.mark.parametrize("text", ["", "[1", '{"a": }', b"\xff\xfe\x00", "1" * 5000])
def test_what_is_not_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  json's own reasons
        parse_json(text)
