"""What the server of forked processes has done before the first of them: the imports, and the first use of a kernel.

numba sets itself up at the first kernel, which takes a second where the kernels themselves are read from the cache.
"""

from importlib import import_module

import numpy as np

from augpipe.trainer.codecs import codec

IMPORTED = (
    "augpipe.trainer.launch",
    "augpipe.trainer.loop",
    "tests.distributed.prepare_runs",
    "torch._dynamo",  # which every optimizer imports
)

for module in IMPORTED:
    import_module(module)
codec("dynamic-tree").encode(np.ones(9, np.float32))
