"""How many examples a property test draws: so many in every run, and ten times as many in the deep one."""

from typing import Any

from hypothesis import settings

EVERY_RUNS = 50
"""Those of tests that set no number."""


def examples(num: int, **options: Any) -> settings:
    """Settings of a test that draws `num` examples in every run."""
    default = settings.default
    assert default is not None
    return settings(max_examples=num * default.max_examples // EVERY_RUNS, **options)
