"""What the codecs' kernels need of the device beside `memory`: memory that changes, several numbers at a time, lanes.

On the device these are LLVM, in the simulator plain Python over host memory.

- `WARP`: threads that run in step, called lanes; the simulator has fewer of them.
- `of_lane(value, distance)`: the int32 of the lane whose number differs by exclusive or with `distance`.
- `float32_of(bits)`: the float32 of an int32's bits; `bits_of(value)` the other way.
- `load_changing_f32(address)`, `load_changing_i32(address)`: of memory that this kernel or the one before it writes.
- `load_two_i32`, `load_four_i32`, `load_changing_four_f32`, `store_two_i32(address, a, b)`, `store_four_f32`: numbers
  side by side by one instruction, at a multiple of 8 or 16.
- `product(a, b)`: of two float32, rounded by itself: no addition that follows is fused with it.
- `store_i32(address, value)`: four bytes, at a multiple of 4.
- `raise_to(address, value)`, `add_to(address, value)`: an int32 in memory becomes the larger of the two, or the sum,
  atomically.
"""

from augpipe.gpu_ops.cuda.functions import IS_SIMULATED

if IS_SIMULATED:
    from augpipe.gpu_ops.simulator.host_codec_memory import *  # noqa: F403
else:
    from augpipe.gpu_ops.codec.cuda.device_memory import *  # noqa: F403
