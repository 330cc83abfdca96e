"""What kernels are made of, in addition to leaves: loads, stores, and instructions that numba lacks.

On the device these are LLVM (`ld.global.nc` and so on), in the simulator plain Python over host memory. Nothing is
bounds-checked: kernels clamp.

- `load_<type>(address)`; the memory must not change while the kernel runs. `store_<type>(address, value)`, and
  `store_<type>_pair(address, first, second)`: one write of both, at a multiple of their common size.
- `load_two_i32`, `load_four_i32`, `store_two_i32`, `store_four_f32`: the same for several numbers side by side.
- `load_changing_f32`, and `i32`, `u8`, `u16`, `four_f32`: the same of memory that this kernel or the one before it
  writes.
- `raise_to(address, value)`, `add_to(address, value)`: an int32 in memory becomes the larger of the two, or the sum,
  atomically.
- `WARP`: threads that run in step, called lanes; the simulator has fewer of them.
- `of_lane(value, distance)`: the int32 of the lane whose number differs by exclusive or with `distance`.
- `float32_of(bits)`: the float32 of an int32's bits; `bits_of(value)` the other way.
- `product(a, b)`: of two float32, rounded by itself: no addition that follows is fused with it.
- `sum_of_product(a, b, c)`: a * b + c of three float32, rounded once.
- `float32_bits(value)`, and `float16_bits(value)`: those of the nearest float16, halves to even; uint32 both.
- `float32_of_float16(bits)`: the number that a float16's bits, an uint32, stand for.
- `floor_index(value)`: the largest int32 not above a float32.
- `kept(value)`: an int32 as it is, which the compiler cannot look behind: so it does not work it out again.
- `raised_red(pixel, raised)` and so on: 2^23 + a channel of RGBX, float32, given the bits of 2^23; the
  difference of two is exact.
- `reciprocal(value)`: 1 / value, at most one unit in the last place off.
- `saturated(value, factor, shift)`: value * factor + shift within 0..1.
"""

from augpipe.gpu_ops.cuda.functions import IS_SIMULATED

if IS_SIMULATED:
    from augpipe.gpu_ops.simulator.host_memory import *  # noqa: F403
else:
    from augpipe.gpu_ops.cuda.device_memory import *  # noqa: F403
