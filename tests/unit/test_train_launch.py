"""What a user can mend is a line and exit code 2 under torchrun, too: no traceback of a library's."""

import pytest

from augpipe.trainer.config import make_config
from augpipe.trainer.config.data import DataConfig
from augpipe.trainer.launch import EXIT_USAGE, end_after
from augpipe.trainer.loop.data import training_recipe


def test_a_size_that_no_scale_has_room_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ValueError, match="size=300") as caught:
        training_recipe(DataConfig(source="photos", size=300))
    assert end_after(caught.value) == EXIT_USAGE
    assert capsys.readouterr().err == (
        "augpipe (rank 1): size=300 is larger than scale=256: a crop cannot exceed the resized image. "
        "Lower size, or raise scale to at least 300.\n"
    )


def test_betas_are_looked_at_before_torch_does() -> None:
    with pytest.raises(ValueError, match=r"optim\.betas\[0\]: Input should be less than 1 \(found 2\)"):
        make_config({"data": {"source": "photos"}}, ["optim.betas=[2, 0.9]"])
