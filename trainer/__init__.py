"""The companion trainer's room: sync strategies, codecs, parallelism, models and the loop."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from augpipe.trainer.codecs.registry import codec as codec
    from augpipe.trainer.models import build as model
    from augpipe.trainer.strategies import strategy as strategy
    from augpipe.trainer.strategies.hook import butterfly_hook as butterfly_hook

_PLACES = {
    "codec": ("augpipe.trainer.codecs.registry", "codec"),
    "butterfly_hook": ("augpipe.trainer.strategies.hook", "butterfly_hook"),
    "strategy": ("augpipe.trainer.strategies", "strategy"),
    "model": ("augpipe.trainer.models", "build"),
}
"""Where each name lives; it is looked for there when it is first asked for, since some of these load torch."""

__all__ = ["butterfly_hook", "codec", "model", "strategy"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    found = getattr(import_module(module), attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
