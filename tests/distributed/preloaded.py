"""What the server of forked processes has done before the first of them: the imports, and the first use of a kernel.

numba sets itself up at the first kernel, which takes a second where the kernels themselves are read from the cache.
"""

import numpy as np
import torch._dynamo  # every optimizer imports it

import augpipe.trainer.launch
import augpipe.trainer.loop
import tests.distributed.prepare_runs
import tests.distributed.rank_cases  # noqa: F401
from augpipe.trainer.codecs import codec

codec("dynamic-tree").encode(np.ones(9, np.float32))
