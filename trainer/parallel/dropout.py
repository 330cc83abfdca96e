"""Dropout whose draws are a pure function of seed, forward pass, layer, image and feature: however layers are split."""

import zlib

import torch
from torch import Tensor, nn

from augpipe.gpu_ops.random.philox import KEY_STEP_0, KEY_STEP_1, MULTIPLIER_0, MULTIPLIER_1, NUM_ROUNDS, seed_key

STREAM = zlib.crc32(b"augpipe.dropout")
_LOW = 2**32 - 1


def random_words(images: Tensor, columns: tuple[int, int], *, layer: int, number: int, seed: int) -> Tensor:
    """(rows, stop - start) int64 words of 32 random bits, one for each image and feature.

    Philox4x32-10 with the words (block of four features, stream + layer, image, forward pass), in int64 arithmetic,
    so that every device draws alike.

    Args:
        images: (rows,) int64 numbers of the images among those of all ranks.
        columns: the first feature, and the one behind the last.
        layer: number of the dropout layer in the network.
        number: of the forward pass, 0..2^32 - 1.
        seed: 0..2^64 - 1.
    """
    first, last = columns[0] // 4, -(-columns[1] // 4)
    blocks = torch.arange(first, last, device=images.device)
    shape = (len(images), len(blocks))
    word0, word2 = blocks.expand(shape), images[:, None].expand(shape)
    word1 = torch.full(shape, (STREAM + layer) & _LOW, dtype=torch.int64, device=images.device)
    word3 = torch.full_like(word1, number & _LOW)
    key0, key1 = (int(word) for word in seed_key(seed))
    for _ in range(NUM_ROUNDS):
        high0, low0 = _product(word0, int(MULTIPLIER_0))
        high1, low1 = _product(word2, int(MULTIPLIER_1))
        word0, word1, word2, word3 = high1 ^ word1 ^ key0, low1, high0 ^ word3 ^ key1, low0
        key0, key1 = (key0 + int(KEY_STEP_0)) & _LOW, (key1 + int(KEY_STEP_1)) & _LOW
    words = torch.stack([word0, word1, word2, word3], -1).flatten(1)
    start = columns[0] - 4 * first
    return words[:, start : start + columns[1] - columns[0]]


def _product(words: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """The high and the low 32 bits of products of 32-bit words; an int64 holds no whole one."""
    low_part = (words & 0xFFFF) * multiplier
    high_part = (words >> 16) * multiplier + (low_part >> 16)
    return high_part >> 16, ((high_part & 0xFFFF) << 16) | (low_part & 0xFFFF)


class SplitDropout(nn.Dropout):
    """torch.nn.Dropout among split layers: features are dropped alike, whichever rank holds them."""

    def __init__(self, p: float, layer: int, seed: int) -> None:
        super().__init__(p)
        self.layer = layer
        self.seed = seed

    def drop(self, x: Tensor, images: Tensor, first: int, number: int) -> Tensor:
        """Drop features of `x`, (rows, features) or (rows, depth, features); in evaluation none.

        Args:
            images: (rows,) int64 numbers of the images.
            first: the number of the first feature among those of all ranks.
            number: of the forward pass.
        """
        if not self.training or self.p == 0.0:
            return x
        # a feature's numbers next to each other: so a rank's features are one range of the layer's
        rows = x.transpose(1, -1).flatten(1)
        depth = rows.shape[1] // x.shape[-1]
        columns = first * depth, first * depth + rows.shape[1]
        words = random_words(images, columns, layer=self.layer, number=number, seed=self.seed)
        kept = (words >= round(self.p * 2**32)).to(x.dtype) / (1.0 - self.p)
        return x * kept.view(x.transpose(1, -1).shape).transpose(1, -1)

    def forward(self, input: Tensor) -> Tensor:
        """What runs the layers says which images these are, by `drop`."""
        raise AssertionError("a split dropout is applied by the forward pass")
