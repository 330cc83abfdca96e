"""Where images come from: the protocol of a source, and sources made of others."""

from typing import TYPE_CHECKING

from augpipe.sources.combined import Concat, hold_out
from augpipe.sources.subset import Subset
from augpipe.validation.suggest import missing

__all__ = ["Concat", "Subset", "hold_out"]

_PATH = 'the path itself: Loader("photos/", recipe, batch_size=64), or augpipe.datasets.open.open_source("photos/")'
_ANSWERS = {
    **dict.fromkeys(("imagefolder", "datasetfolder", "foldersource", "folder", "opensource", "filelistsource"), _PATH),
    **dict.fromkeys(("shardsource", "tarsource", "webdataset", "parquetsource", "csvsource"), _PATH),
    **dict.fromkeys(("concatdataset", "chaindataset"), "sources.Concat([first, second])"),
    "arraysource": "augpipe.datasets.formats.arrays.ArraySource(images, labels)",
}
"""Other names of sources, as `suggest.plain` gives them -> what to write here."""


if not TYPE_CHECKING:  # a type checker says itself which names there are not

    def __getattr__(name):
        raise missing(__name__, name, __all__, _ANSWERS)


def __dir__() -> list[str]:
    return __all__
