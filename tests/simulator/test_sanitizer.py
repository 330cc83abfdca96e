"""What `make gpu-check` gives compute-sanitizer launches every kernel of images."""

import pytest

from augpipe.gpu_ops.image.cuda import launch
from benchmarks.gpu import sanitizer

KINDS = [kind for kind in sanitizer.TOOLS["memcheck"] if kind != "codecs"]


@pytest.fixture(autouse=True)
def _none_launched_yet() -> None:
    for of in (
        *(launch._compiled_fused, launch._compiled_filter, launch._compiled_finish),
        *(launch._compiled_mix, launch._compiled_labels, launch._compiled_pack),
    ):
        of.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
def test_the_sanitizer_is_given_every_kernel(kind: str) -> None:
    """Each workload ends with an error where it has not launched all of its kernels."""
    sanitizer.look_at(kind)


def test_a_kernel_that_was_not_launched_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer, "DTYPES", sanitizer.DTYPES[:1])
    with pytest.raises(AssertionError, match="fused: 2 of 8 kernels were launched"):
        sanitizer.look_at("fused")
