"""The ops that a recipe is made of."""

from typing import TYPE_CHECKING

from augpipe.ops.bends import *
from augpipe.ops.blur import *
from augpipe.ops.colour import *
from augpipe.ops.crops import *
from augpipe.ops.custom import *
from augpipe.ops.degradations import *
from augpipe.ops.dropouts import *
from augpipe.ops.filters import *
from augpipe.ops.geometry import *
from augpipe.ops.groups import *
from augpipe.ops.keep_objects import *
from augpipe.ops.lens import *
from augpipe.ops.levels import *
from augpipe.ops.mixing import *
from augpipe.ops.mosaic import *
from augpipe.ops.one_crop import *
from augpipe.ops.op import Op as Op
from augpipe.ops.output_frame import *
from augpipe.ops.perspective import *
from augpipe.ops.resizes import *
from augpipe.ops.shear import *
from augpipe.ops.tone import *
from augpipe.ops.weather import *

if not TYPE_CHECKING:  # a type checker follows the imports above, and says itself which names there are not
    __all__ = sorted(name for name, found in globals().items() if isinstance(found, type(Op)))

    def __getattr__(name):
        from augpipe.ops.other_names import ANSWERS
        from augpipe.validation.suggest import missing

        raise missing(__name__, name, __all__, ANSWERS)

    def __dir__():
        return __all__
