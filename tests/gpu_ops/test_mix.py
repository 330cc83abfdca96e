"""Mixing is its formula, bit for bit."""

import numpy as np

from augpipe.gpu_ops.image.mix import MIX_JOB, mix_images
from augpipe.gpu_ops.image.program_rows import as_bytes


def test_a_partner_that_weighs_all_keeps_the_sign_of_zero() -> None:
    job = np.zeros(1, MIX_JOB)
    job["places"], job["weights"], job["regions"][:, 0] = (0, 1), (0.0, 1.0), (0, 0, 2, 1)
    batch = np.array([-7, -7, -7, -7, -7, -7, -0.0, 0.0, -1.0, 1e-45, -1e-45, 2.5], np.float32)
    own, partner = batch[:6].copy(), batch[6:].copy()
    mix_images(as_bytes(job), batch, 1, 2, True)
    expected = partner + np.float32(0.0) * (own - partner)
    np.testing.assert_array_equal(batch[:6].view(np.uint32), expected.view(np.uint32))
