"""What a run did not write into its folder of checkpoints is neither removed nor renamed, nor in its way."""

from pathlib import Path

from augpipe.trainer.loop import run
from tests.distributed.train_runs import checkpoints, config, write_photos


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
