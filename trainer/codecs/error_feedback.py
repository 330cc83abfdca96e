"""Error feedback: what encoding loses of one gradient is added to the next one (Seide et al., 2014)."""

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from augpipe.trainer.codecs.arrays import Array, empty_like, flat, is_tensor
from augpipe.trainer.codecs.base_codec import Codec


class ErrorFeedback:
    """A codec with a residual for each key, say one for each slice of a bucket that goes to another rank.

    Threads may encode at the same time, each under keys of its own. A key's residual has the size, kind and device of
    the numbers it was first used with, and takes as much memory.
    """

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self._residuals: dict[Hashable, Array] = {}

    def encode_into(self, key: Hashable, x: Array, payload: Array) -> int:
        """Encode x + residual, and keep x + residual - decoded; returns how many numbers were not finite.

        `x` is left as it is. Where the payload decodes to a number that is not finite, the residual stays what it was.
        """
        return int(self.encode_slices([key], [_copy(flat(x, "float32", "x").owner)], [payload]))

    def encode_slices(self, keys: Sequence[Hashable], xs: Sequence[Array], payloads: Sequence[Array]) -> Any:
        """`encode_into` of each key's `x`, which becomes x + residual; of CUDA tensors in one launch, unawaited."""
        residuals = [self._of(key, x) for key, x in zip(keys, xs, strict=True)]
        if xs and is_tensor(xs[0]):
            sys.modules["torch"]._foreach_add_(xs, residuals)
        else:
            for x, residual in zip(xs, residuals, strict=True):
                x += residual
        count = self.codec.encode_slices(xs, payloads)
        if is_tensor(count):
            self._keep_on_device(xs, payloads, residuals)
            return count
        before = [_copy(residual) for residual in residuals] if count else None
        self.codec.decode_slices(payloads, residuals)
        for i, (x, residual) in enumerate(zip(xs, residuals, strict=True)):
            xp: Any = sys.modules["torch"] if is_tensor(residual) else np
            with np.errstate(invalid="ignore"):  # infinity less infinity; looked at below
                xp.subtract(x, residual, out=residual)
            if before is not None:  # what was not finite tells nothing about the error: those keep what they had
                residual[...] = xp.where(xp.isfinite(residual), residual, before[i])
        return count

    def _keep_on_device(self, xs: Sequence[Any], payloads: Sequence[Array], residuals: Sequence[Any]) -> None:
        """As below, with as many launches for any number of slices; of what was found the host knows nothing yet."""
        torch: Any = sys.modules["torch"]
        before = torch.cat(residuals)
        self.codec.decode_slices(payloads, residuals)
        lacked = torch.cat(torch._foreach_sub(xs, residuals))
        torch.where(lacked.isfinite(), lacked, before, out=before)
        torch._foreach_copy_(residuals, before.split([len(residual) for residual in residuals]))

    def residual(self, key: Hashable) -> Any:
        """A copy of a key's residual; KeyError for a key that was never encoded."""
        return _copy(self._residuals[key])

    def state_dict(self) -> dict[Hashable, Any]:
        """A copy of each key's residual."""
        return {key: _copy(residual) for key, residual in list(self._residuals.items())}

    def load_state_dict(self, state: Mapping[Hashable, Array]) -> None:
        """Take on residuals, (num,) float32 each, in place of all there were; they are copied."""
        self._residuals = {
            key: _copy(flat(residual, "float32", f"residual of {key!r}").owner) for key, residual in state.items()
        }

    def scale(self, factor: float, which: Callable[[Any], bool] = lambda key: True) -> None:
        """Multiply residuals, of some keys or of all, as when the loss scale changes; 0 drops them."""
        for key in [key for key in self._residuals if which(key)]:
            if factor:
                self._residuals[key] *= factor
            else:
                del self._residuals[key]

    def _of(self, key: Hashable, x: Array) -> Array:
        given = flat(x, "float32", "x")
        if key not in self._residuals:
            residual = empty_like(given.owner, given.num, "float32")
            residual[...] = 0.0
            self._residuals[key] = residual
        kept = flat(self._residuals[key], "float32", "residual")
        if (kept.num, kept.device, is_tensor(kept.owner)) != (given.num, given.device, is_tensor(given.owner)):
            raise ValueError(
                f"x for key {key!r} has {given.num} numbers, and its residual {kept.num}, or they are of another kind "
                "or device. Use another key, or a new ErrorFeedback."
            )
        return kept.owner


def _copy(x: Array) -> Any:
    return x.clone() if is_tensor(x) else x.copy()
