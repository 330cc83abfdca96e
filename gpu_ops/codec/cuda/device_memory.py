"""What the codecs' kernels need of the device's memory beside `device_memory`, as LLVM."""

from typing import Any

from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic

from augpipe.gpu_ops.cuda.device_memory import GLOBAL_MEMORY, _instruction
from augpipe.gpu_ops.cuda.functions import function
from augpipe.gpu_ops.cuda.subroutine import as_intrinsic

WARP = 32
WHOLE_WARP = 0xFFFFFFFF

product = _instruction("mul.rn.f32 $0, $1, $2;", "=f,f,f", types.float32, types.float32, types.float32)

INT, FLOAT = ir.IntType(32), ir.FloatType()


def _pointer(builder: Any, address: Any, item_type: Any) -> Any:
    return builder.inttoptr(address, ir.PointerType(item_type, GLOBAL_MEMORY))


@intrinsic
def float32_of(typingctx: Any, bits: Any) -> Any:
    """The float32 with these bits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], FLOAT)

    return types.float32(types.int32), codegen


@intrinsic
def bits_of(typingctx: Any, value: Any) -> Any:
    """The bits of a float32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], INT)

    return types.int32(types.float32), codegen


def _load(item: Any, num: int = 1, *, invariant: bool = False) -> Any:
    """A function (address) -> `num` items side by side, at a multiple of their size in all.

    Args:
        invariant: whether the memory does not change while the kernel runs, so that it may be read through the cache
            for such memory.
    """

    @intrinsic
    def loader(typingctx: Any, address: Any) -> Any:
        result = item if num == 1 else types.UniTuple(item, num)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            one = context.get_data_type(item)
            value = builder.load(_pointer(builder, args[0], one if num == 1 else ir.VectorType(one, num)))
            value.align = num * item.bitwidth // 8
            if invariant:
                value.set_metadata("invariant.load", builder.module.add_metadata([]))
            if num == 1:
                return value
            items = [builder.extract_element(value, ir.Constant(INT, i)) for i in range(num)]
            return context.make_tuple(builder, result, items)

        return result(types.int64), codegen

    return loader


def _store(item: Any, num: int = 1) -> Any:
    """A procedure (address, `num` items), which lie side by side, at a multiple of their size in all."""

    def storer(typingctx: Any, address: Any, *values: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = args[1]
            if num > 1:
                value = ir.Constant(ir.VectorType(context.get_data_type(item), num), ir.Undefined)
                for i in range(num):
                    value = builder.insert_element(value, args[1 + i], ir.Constant(INT, i))
            builder.store(value, _pointer(builder, args[0], value.type)).align = num * item.bitwidth // 8
            return context.get_dummy_value()

        return types.void(types.int64, *[item] * num), codegen

    return as_intrinsic(storer, ["address", *(f"value_{i}" for i in range(num))])


load_changing_f32, load_changing_i32 = _load(types.float32), _load(types.int32)
load_changing_four_f32 = _load(types.float32, 4)
load_two_i32, load_four_i32 = _load(types.int32, 2, invariant=True), _load(types.int32, 4, invariant=True)
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
