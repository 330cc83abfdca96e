"""An evaluation that is killed goes on where it was, and several ranks do what one does."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from augpipe import SampleError
from augpipe.cli.app import app
from augpipe.trainer.evaluation import Views, evaluate_runs, partial, predict
from augpipe.trainer.loop import Result
from tests.distributed.train_processes import as_ranks, started

NUM = 21
DENSE = Views(scales=(18, 25), dense=True)


class Answering:
    """Counts the images that a network is shown, and is interrupted behind some of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.num = 0
        self.most = NUM * 10
        answer = predict.ShownNetwork.answer

        def counted(network: predict.ShownNetwork, batch: Any) -> Any:
            if self.num + len(batch) > self.most:
                raise KeyboardInterrupt
            self.num += len(batch)
            return answer(network, batch)

        monkeypatch.setattr(predict.ShownNetwork, "answer", counted)


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Answering:
    return Answering(monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("views", [Views(), DENSE])
def test_an_evaluation_goes_on_where_it_was_killed(
    views: Views, trained: tuple[Path, Result], tmp_path: Path, answering: Answering
) -> None:
    out, _ = trained
    whole = evaluate_runs(out, views)
    assert answering.num == NUM
    for most in (9, 6):  # killed twice
        answering.num, answering.most = 0, most
        with pytest.raises(KeyboardInterrupt):
            evaluate_runs(out, views, keep=tmp_path)
        assert 0 < answering.num <= most
    done = sum(len(np.load(path)["ids"]) for path in tmp_path.iterdir())
    assert 9 < done <= 15
    answering.num, answering.most = 0, NUM
    found = evaluate_runs(out, views, keep=tmp_path)
    assert answering.num == NUM - done
    np.testing.assert_array_equal(found.log_probs, whole.log_probs)


@pytest.mark.slow
def test_answers_to_something_else_are_not_taken(
    trained: tuple[Path, Result], other: Path, photos: Path, tmp_path: Path, answering: Answering
) -> None:
    evaluate_runs(trained[0], keep=tmp_path)
    answering.num = 0
    evaluate_runs(trained[0], keep=tmp_path)
    assert answering.num == 0
    for run, views, on_error in ((trained[0], Views(flip=True), None), (other, None, None), (trained[0], None, "skip")):
        answering.num = 0
        evaluate_runs(run, views, source=photos, keep=tmp_path, on_error=on_error)
        assert answering.num == NUM


@pytest.mark.slow
def test_a_damaged_file_is_made_again(trained: tuple[Path, Result], tmp_path: Path, answering: Answering) -> None:
    whole = evaluate_runs(trained[0], keep=tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(kept.read_bytes()[:-40])
    answering.num = 0
    np.testing.assert_array_equal(evaluate_runs(trained[0], keep=tmp_path).log_probs, whole.log_probs)
    assert answering.num == NUM


@pytest.mark.slow
def test_images_that_were_left_out_stay_so(
    trained: tuple[Path, Result], damaged: Path, tmp_path: Path, answering: Answering
) -> None:
    whole = evaluate_runs(trained[0], DENSE, source=damaged, on_error="skip")
    answering.num, answering.most = 0, 10
    with pytest.raises(KeyboardInterrupt):
        evaluate_runs(trained[0], DENSE, source=damaged, on_error="skip", keep=tmp_path)
    answering.most = NUM * 10
    found = evaluate_runs(trained[0], DENSE, source=damaged, on_error="skip", keep=tmp_path)
    assert len(found.left_out) == 3 and found.left_out == whole.left_out
    np.testing.assert_array_equal(found.log_probs, whole.log_probs)


def test_what_was_kept_is_handed_on_by_one_rank(tmp_path: Path) -> None:
    rows = np.arange(6, dtype=np.float32).reshape(2, 3) - 9
    kept = partial.Partial(4, 3, tmp_path, "key", is_first=True)
    kept.add(np.array([0, 2]), rows)
    kept.save()
    ranks = [partial.Partial(4, 3, tmp_path, "key", is_first=rank == 0) for rank in range(2)]
    assert [one.done.tolist() for one in ranks] == [[True, False, True, False], [False] * 4]
    total = sum(one._log_probs for one in ranks)  # as `together` adds them up
    np.testing.assert_array_equal(total, [rows[0], [0, 0, 0], rows[1], [0, 0, 0]])


def test_a_save_now_and_then(
    trained: tuple[Path, Result], tmp_path: Path, answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    save = partial.Partial.save

    def noted(one: partial.Partial) -> None:
        saved.append(answering.num)
        save(one)

    monkeypatch.setattr(partial, "SAVE_S", 0.0)
    monkeypatch.setattr(partial.Partial, "save", noted)
    evaluate_runs(trained[0], keep=tmp_path)
    assert len(saved) > 3 and saved == sorted(saved) and len(list(tmp_path.iterdir())) == 1


def _files(folder: Path) -> tuple[Any, list[list[str]]]:
    report = json.loads((folder / "evaluation.json").read_text())
    with (folder / "predictions.csv").open() as file:
        return report, list(csv.reader(file))


@pytest.mark.slow
def test_ranks_share_the_images(trained: tuple[Path, Result], damaged: Path, tmp_path: Path) -> None:
    options = ["--source", str(damaged), "--dense", "--scales", "18,25", "--on-error", "skip", "--device", "cpu"]
    alone = CliRunner().invoke(app, ["evaluate", str(trained[0]), *options, "--out", str(tmp_path / "alone")])
    assert alone.exit_code == 0, alone.output
    command = ["-m", "augpipe", "evaluate", str(trained[0]), *options, "--out", str(tmp_path / "three")]
    with started(as_ranks(command, 3)) as processes:
        said = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert [out.count("top-1") for out, _ in said] == [1, 0, 0]
    (one, rows), (other, other_rows) = _files(tmp_path / "alone"), _files(tmp_path / "three")
    assert [row[:3] for row in rows] == [row[:3] for row in other_rows]
    assert one["left_out"] == other["left_out"] and len(one["left_out"]) == 3
    assert one["results"][0]["top1"] == other["results"][0]["top1"]
    assert not (tmp_path / "three" / "partial").exists()


def test_a_photograph_that_cannot_be_used_is_named(trained: tuple[Path, Result], damaged: Path, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="c0/003.jpg"):
        evaluate_runs(trained[0], source=damaged, on_error="raise", keep=tmp_path)


LATE = """
import os, sys, time
from pathlib import Path
from augpipe.cli.app import main
from augpipe.trainer.evaluation import partial

begin = partial.Partial.__init__


def begin_late(self, num_images, num_outputs, folder, key, **others):
    until = time.monotonic() + 5.0 * (os.environ["RANK"] == "2")
    while time.monotonic() < until and not list(Path(folder).glob("*.npz")):
        time.sleep(0.02)
    begin(self, num_images, num_outputs, folder, key, **others)


partial.Partial.__init__ = begin_late
main()
"""


@pytest.mark.slow
def test_a_rank_that_is_late_does_its_own_share(trained: tuple[Path, Result], photos: Path, tmp_path: Path) -> None:
    """What the others have made by then is not of an earlier attempt: shares would shift, and images be left out."""
    command = ["-c", LATE, "evaluate", str(trained[0]), "--source", str(photos), "--device", "cpu"]
    with started(as_ranks([*command, "--out", str(tmp_path)], 3)) as processes:
        said = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    _, rows = _files(tmp_path)
    assert len(rows) == NUM + 1 and all(float(row[3]) < 1.0 for row in rows[1:]), rows


EARLIER = """
import os
from augpipe.trainer.checkpoint import checkpoints_folder

newest = checkpoints_folder.newest_whole


def as_it_was(folder):
    found = newest(folder)
    return min(found.parent.glob("step-*")) if os.environ["RANK"] == "2" else found


checkpoints_folder.newest_whole = as_it_was
from augpipe.cli.app import main
main()
"""


@pytest.mark.slow
def test_ranks_evaluate_one_checkpoint(trained: tuple[Path, Result], photos: Path, tmp_path: Path) -> None:
    """Though the run may write another one while they begin."""
    assert len(list((trained[0] / "checkpoints").glob("step-*"))) > 1
    options = ["evaluate", str(trained[0]), "--source", str(photos), "--device", "cpu", "--out"]
    alone = CliRunner().invoke(app, [*options, str(tmp_path / "alone")])
    assert alone.exit_code == 0, alone.output
    with started(as_ranks(["-c", EARLIER, *options, str(tmp_path / "three")], 3)) as processes:
        said = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert _files(tmp_path / "three")[1] == _files(tmp_path / "alone")[1]


@pytest.mark.slow
def test_ranks_go_on_from_what_one_has_left(trained: tuple[Path, Result], tmp_path: Path, answering: Answering) -> None:
    whole = evaluate_runs(trained[0])
    answering.num, answering.most = 0, 9
    with pytest.raises(KeyboardInterrupt):
        evaluate_runs(trained[0], keep=tmp_path / "partial")
    assert 0 < answering.num <= 9
    command = ["-m", "augpipe", "evaluate", str(trained[0]), "--device", "cpu", "--out", str(tmp_path)]
    with started(as_ranks(command, 3)) as processes:
        said = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    named = [row[3] for row in _files(tmp_path)[1][1:]]
    np.testing.assert_allclose(np.float64(named), np.exp(whole.log_probs.max(axis=1)), rtol=1e-4)
