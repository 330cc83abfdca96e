"""What the codecs' kernels need of the device's memory beside `device_memory`, as LLVM."""

from typing import Any

from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic

from augpipe.gpu_ops.cuda.device_memory import INT, _instruction, _load, _pointer, _store
from augpipe.gpu_ops.cuda.functions import function

WARP = 32
WHOLE_WARP = 0xFFFFFFFF

product = _instruction("mul.rn.f32 $0, $1, $2;", "=f,f,f", types.float32, types.float32, types.float32)


def _bitcast(taken: Any, result: Any) -> Any:
    """A function that takes the bits of one type for those of another."""

    @intrinsic
    def cast(typingctx: Any, given: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_data_type(result))

        return result(taken), codegen

    return cast


float32_of = _bitcast(types.int32, types.float32)
bits_of = _bitcast(types.float32, types.int32)

load_changing_f32, load_changing_i32 = _load(types.float32, invariant=False), _load(types.int32, invariant=False)
load_changing_four_f32 = _load(types.float32, num=4, invariant=False)
load_two_i32, load_four_i32 = _load(types.int32, num=2), _load(types.int32, num=4)
store_i32, store_two_i32, store_four_f32 = _store(types.int32), _store(types.int32, 2), _store(types.float32, 4)


@function("int32")
def of_lane(value, distance):
    """The value of the lane whose number differs by exclusive or with `distance`; all lanes of the warp ask."""
    return cuda.shfl_xor_sync(WHOLE_WARP, value, distance)


def _atomic(operation: str) -> Any:
    @intrinsic
    def changer(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.atomic_rmw(operation, _pointer(builder, args[0], INT), args[1], "monotonic")
            return context.get_dummy_value()

        return types.void(types.int64, types.int32), codegen

    return changer


raise_to, add_to = _atomic("max"), _atomic("add")
