"""DALI's GPU operator with the real renderer, whose kernels run in the simulator."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from nvidia.dali import fn

from augpipe import Augment
from augpipe.cuda.cuda_render import DeviceRenderer
from augpipe.cuda.device_name import require_device
from augpipe.dali.device_op import DeviceAugment
from augpipe.dali.samples import SampleNumbers
from augpipe.planning.output_format import OutputFormat
from augpipe.recipes import deep_image
from tests.augpipe.dali.dali_graphs import PHOTOS, pipeline_of, results_of


def test_it_gives_the_images_of_augment() -> None:
    recipe = deep_image(4, (24, 30))
    form = OutputFormat(dtype="float32", layout="NHWC", framework="torch")
    renderer = DeviceRenderer(require_device("cuda"), recipe, form)
    operator = DeviceAugment(recipe, 3, SampleNumbers(has_ids=True, epoch=2), renderer, nullcontext)

    def define() -> Any:
        images = fn.external_source(source=lambda: PHOTOS[:2])
        ids = fn.external_source(source=lambda: [np.int64(7), np.int64(8)])
        noted = fn.python_function(ids, function=operator.note, batch_processing=True)
        return fn.dl_tensor_python_function(images, noted, function=operator, batch_processing=True)

    (found,) = results_of(pipeline_of(define, exec_pipelined=False), 1)
    assert len(found) == 2
    wanted = Augment(recipe, 3, layout="NHWC")(PHOTOS[:2], sample_ids=[7, 8], epoch=2)
    np.testing.assert_allclose(np.stack(found), wanted, rtol=0, atol=1e-4)
