"""Saving in the background: who waits for what, what is known after that, and what is there at any moment."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from augpipe.trainer.checkpoint import Checkpoint, DamagedError, Saver, checkpoints_folder
from augpipe.trainer.checkpoint.checkpoints_folder import (
    finished,
    finished_path,
    newest_whole,
    remove_unfinished,
    unfinished_path,
)
from augpipe.trainer.checkpoint.manifest import verify
from augpipe.trainer.checkpoint.save import Copied
from augpipe.trainer.loop import run
from tests.distributed.train_runs import checkpoints, config, write_photos

GIVES_UP_S = 10.0
"""Whoever should not wait for a writer that is held waits so long, and is found out."""


@pytest.fixture
def alone() -> Iterator[Any]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.fixture
def going(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Writers are held until it is set; then the one of step 2 finds the disk full."""
    goes, write = Event(), Copied.write

    def held(self: Copied, folder: Path) -> dict[str, Any]:
        goes.wait(GIVES_UP_S)
        if folder.name == "step-000000002.tmp":
            raise OSError(errno.ENOSPC, "No space left on device", str(folder))
        return write(self, folder)

    monkeypatch.setattr(Copied, "write", held)
    yield goes
    goes.set()


def saver(folder: Path, group: Any, *, asynchronous: bool = True, keep: int = 9) -> Saver:
    return Saver(folder, group, keep=keep, asynchronous=asynchronous, about={})


def test_the_next_save_waits_for_the_one_before_and_knows_how_it_went(alone: Any, going: Event, tmp_path: Path) -> None:
    made = saver(tmp_path, alone)
    made.save(1, {}, {"a": torch.ones(3)})
    assert made.last_step is None and made.num_failed == 0
    going.set()
    made.save(2, {}, {"a": torch.ones(3)})
    assert made.last_step == 1
    made.save(3, {}, {"a": torch.ones(3)})
    assert made.num_failed == 1 and made.last_step == 1
    made.wait()
    assert made.num_failed == 1 and made.last_step == 3


def test_a_failure_is_counted_once_and_leaves_nothing(alone: Any, going: Event, tmp_path: Path) -> None:
    made = saver(tmp_path, alone)
    made.save(2, {}, {"a": torch.ones(3)})
    going.set()
    for _ in range(2):
        made.wait()
        made.poll()
        assert made.num_failed == 1 and made.last_step is None
        assert not unfinished_path(tmp_path, 2).exists()


def test_whoever_wants_no_thread_has_saved_when_it_returns(alone: Any, going: Event, tmp_path: Path) -> None:
    made = saver(tmp_path, alone, asynchronous=False)
    going.set()
    made.save(1, {}, {"a": torch.ones(3)})
    assert made.last_step == 1 and finished_path(tmp_path, 1).is_dir()


def test_polling_waits_for_nobody(alone: Any, going: Event, tmp_path: Path) -> None:
    made = saver(tmp_path, alone)
    made.save(1, {}, {"a": torch.ones(3)})
    made.poll()
    assert made.last_step is None
    going.set()
    assert made._pending is not None
    made._pending[1].result(timeout=60)
    made.poll()
    assert made.last_step == 1


def test_the_newest_are_kept(alone: Any, tmp_path: Path) -> None:
    made = saver(tmp_path, alone, asynchronous=False, keep=2)
    for step in (3, 5, 12, 7):
        made.save(step, {}, {"a": torch.ones(3)})
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step-{step:09}" for step in (5, 7, 12)]


def test_a_damaged_later_one_costs_no_good_one(alone: Any, tmp_path: Path) -> None:
    """A run that has refused it goes on from the one before; what it writes then is kept."""
    made = saver(tmp_path, alone, asynchronous=False, keep=1)
    made.save(100, {}, {"a": torch.ones(3)})
    os.truncate(finished_path(tmp_path, 100) / "rank0.safetensors", 20)
    made.save(60, {}, {"a": torch.ones(3)})
    assert newest_whole(tmp_path, lambda _text: None) == finished_path(tmp_path, 60)


def test_what_is_no_longer_as_it_was_named_is_refused(alone: Any, tmp_path: Path) -> None:
    """A copy under a later step's name, and one that may not be read; links go with what they lead to left alone."""
    made = saver(tmp_path, alone, asynchronous=False, keep=1)
    made.save(5, {}, {"a": torch.ones(3)})
    shutil.copytree(finished_path(tmp_path, 5), finished_path(tmp_path, 10))
    told: list[str] = []
    assert newest_whole(tmp_path, told.append) == finished_path(tmp_path, 5)
    assert "step-000000010 holds the state after step 5: it was given another name" in told[0]
    shutil.rmtree(finished_path(tmp_path, 10))
    elsewhere = tmp_path / "elsewhere"
    finished_path(tmp_path, 5).rename(elsewhere)
    finished_path(tmp_path, 5).symlink_to(elsewhere)
    made.save(6, {}, {"a": torch.ones(3)})
    assert elsewhere.is_dir() and [path.name for path in finished(tmp_path)] == ["step-000000006"]


def test_what_a_checkpoint_cannot_hold_is_a_failed_save(alone: Any, tmp_path: Path) -> None:
    """As a full disk is; complex numbers it can hold, and NaN where the run may go on with it."""
    made = saver(tmp_path, alone, asynchronous=False)
    made.save(1, {}, {"a": torch.ones(3).to_sparse()})
    made.save(2, {}, {"a": torch.tensor(float("nan"))})
    assert made.num_failed == 2 and made.last_step is None
    lenient = Saver(tmp_path, alone, keep=9, asynchronous=False, about={"may_hold_nan": True})
    lenient.save(3, {}, {"a": torch.tensor(float("nan")), "b": torch.tensor([1 + 2j, 3j])})
    assert newest_whole(tmp_path) == finished_path(tmp_path, 3)
    found = Checkpoint(finished_path(tmp_path, 3)).of_rank(0)
    assert found["a"].isnan() and found["b"].tolist() == [1 + 2j, 3j]


def test_what_goes_loses_its_name_before_its_files(
    alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint that could not be removed, or not wholly, is not taken for one."""

    def in_the_way(path: Path) -> None:
        raise OSError("in the way")

    made = saver(tmp_path, alone, asynchronous=False, keep=1)
    monkeypatch.setattr(shutil, "rmtree", in_the_way)
    for step in (1, 2):
        made.save(step, {}, {"a": torch.ones(3)})
    assert [path.name for path in finished(tmp_path)] == ["step-000000002"]
    assert unfinished_path(tmp_path, 1).is_dir() and made.last_step == 2
    said = [record.getMessage() for record in caplog.records if record.name == "augpipe.trainer"]
    assert said == ["an old checkpoint could not be removed: in the way"]


SUM = {"num_bytes": 1, "sha256": ""}


def about(**fields: Any) -> str:
    files = {"rank0.safetensors": SUM, "rank0.json": SUM}
    written = {"version": 2, "step": 1, "world_size": 1, "files": files} | fields
    own_sum = hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()
    return json.dumps(written | {"sha256": own_sum})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"step-000000001 has no manifest\.json: it was never finished"),
        ("{", r"manifest\.json cannot be read \(JSONDecodeError: "),
        ("[]", r"manifest\.json cannot be read \(TypeError: "),
        ("[" * 100_000, r"manifest\.json cannot be read \(ValueError: .* nested deeper than 100"),
        ('{"version": 2}', r"manifest\.json cannot be read \(KeyError: 'files'\)"),
        (about(version=3), r"manifest\.json is of version 3, and this augpipe reads 2$"),
        (
            about(version=1),
            r"is of version 1, and this augpipe reads 2\. It may be whole: move .* augpipe checkpoint convert",
        ),
        (about(files={}), r"manifest\.json does not list files of this folder$"),
        (about(files={"../a": SUM}), r"manifest\.json does not list files of this folder: '\.\./a'"),
        (about(files={"/etc/passwd": SUM}), r"manifest\.json does not list files of this folder: '/etc/passwd'"),
        (about(files={"..": SUM}), r"manifest\.json does not list files of this folder: '\.\.'"),
        (about(files={"a": SUM | {"num_bytes": "1"}}), r"does not list files of this folder: 'a'"),
        (about(step="1"), r"manifest\.json does not list files of this folder$"),
        (about(world_size=0), r"manifest\.json does not list files of this folder$"),
        (about(world_size=10**12), r"manifest\.json does not list rank1\.safetensors$"),
    ],
)
def test_a_list_of_files_that_is_none_is_damage(text: str | None, message: str, tmp_path: Path) -> None:
    folder = finished_path(tmp_path, 1)
    folder.mkdir()
    if text is not None:
        (folder / "manifest.json").write_text(text)
    with pytest.raises(DamagedError, match=message):
        verify(folder)


def test_a_name_is_given_to_what_is_on_the_disk(alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files first, then the folder that lists them, its name, and the folder that lists the name."""
    done: list[str] = []
    fsync, sync_folder, rename = os.fsync, checkpoints_folder.sync_folder, os.rename

    def noting_file(number: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{number}")).name)
        fsync(number)

    def noting_folder(path: str) -> None:
        done.append(f"folder {Path(path).name}")
        sync_folder(path)

    def noting_name(old: Any, new: Any) -> None:
        done.append(f"{Path(old).name} becomes {Path(new).name}")
        rename(old, new)

    made = saver(tmp_path / "run", alone, asynchronous=False)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", noting_file)
        patched.setattr(checkpoints_folder, "sync_folder", noting_folder)
        patched.setattr(os, "rename", noting_name)
        made.save(1, {}, {"a": torch.ones(3)})
    steps = ["folder step-000000001.tmp", "step-000000001.tmp becomes step-000000001", "folder run"]
    assert [what for what in done if what in steps] == steps
    files = done[: done.index(steps[0])]
    assert "rank0.safetensors" in files
    assert all(any(name in file for file in files) for name in ("rank0.json", "manifest.json"))


def test_what_there_was_is_saved_and_not_what_there_is_when_it_is_written(
    alone: Any, going: Event, tmp_path: Path
) -> None:
    made, weight, counters = saver(tmp_path, alone), torch.ones(3), {"step": 1}
    made.save(1, {"weight": weight, "counters": counters}, {"own": weight})
    weight.zero_()
    counters["step"] = 2
    going.set()
    made.wait()
    found = Checkpoint(finished_path(tmp_path, 1))
    common = found.common()
    assert common["weight"].tolist() == found.of_rank(0)["own"].tolist() == [1.0, 1.0, 1.0]
    assert common["counters"] == {"step": 1}


def test_killed_while_a_checkpoint_takes_anothers_place(
    alone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = Saver(tmp_path, alone, keep=1, asynchronous=False, about={})
    saver.save(10, {"a": torch.ones(3)}, {"b": 1})
    inner = os.rename

    def killed(old: Any, new: Any) -> None:
        if str(old).endswith(".tmp") and Path(new).name == "step-000000010":
            raise OSError("killed")
        inner(old, new)

    monkeypatch.setattr(os, "rename", killed)
    saver.save(10, {"a": torch.zeros(3)}, {"b": 2})
    remove_unfinished(tmp_path)
    assert newest_whole(tmp_path) == tmp_path / "step-000000010"
    monkeypatch.undo()
    saver.save(10, {"a": torch.zeros(3)}, {"b": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000010"]


def test_files_of_others_stay(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoints"
    for name in ("step-best.tmp", "step-best.old", "step-000000002.tmp"):
        (folder / name).mkdir(parents=True)
        (folder / name / "notes").write_text("mine")
    for name in ("step-notes.tmp", "step-000000003.tmp", "step-000000003.old"):
        (folder / name).write_text("mine")
    run(config(tmp_path / "run", write_photos(tmp_path, 8), max_steps=1))
    left = checkpoints(tmp_path / "run")
    kept = ["step-000000003.old", "step-000000003.tmp", "step-best.old", "step-best.tmp", "step-notes.tmp"]
    assert left == ["step-000000001", *kept]
    assert (folder / "step-best.old" / "notes").read_text() == "mine"
