"""What the codecs' kernels need of memory beside `memory`: numbers that change while a kernel runs, and bytes.

On the device these are LLVM, in the simulator plain Python over host memory.

- `float32_of(bits)`: the float32 of an int32's bits; `bits_of(value)` the other way.
- `load_changing_f32(address)`, `load_changing_i32(address)`: of memory that this kernel or the one before it writes.
- `product(a, b)`: of two float32, rounded by itself: no addition that follows is fused with it.
- `store_i32(address, value)`: four bytes, at a multiple of 4.
- `raise_to(address, value)`, `add_to(address, value)`: an int32 in memory becomes the larger of the two, or the sum,
  atomically.
"""

from augpipe.gpu_ops.cuda.simulation import IS_SIMULATED

if IS_SIMULATED:
    from augpipe.gpu_ops.cuda.host_codec_memory import (
        add_to,
        bits_of,
        float32_of,
        load_changing_f32,
        load_changing_i32,
        product,
        raise_to,
        store_i32,
    )
else:
    from augpipe.gpu_ops.cuda.device_codec_memory import (
        add_to,
        bits_of,
        float32_of,
        load_changing_f32,
        load_changing_i32,
        product,
        raise_to,
        store_i32,
    )

__all__ = [
    "add_to",
    "bits_of",
    "float32_of",
    "load_changing_f32",
    "load_changing_i32",
    "product",
    "raise_to",
    "store_i32",
]
