"""What kernels need of the device itself, as LLVM: loads and stores by address, and instructions that numba lacks."""

from typing import Any

from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic

from augpipe.gpu_ops.cuda.functions import function
from augpipe.gpu_ops.cuda.subroutine import as_intrinsic

GLOBAL_MEMORY = 1
"""NVPTX's number for its address space."""

INT = ir.IntType(32)

WARP = 32
WHOLE_WARP = 0xFFFFFFFF


def _pointer(builder: Any, address: Any, item_type: Any) -> Any:
    return builder.inttoptr(address, ir.PointerType(item_type, GLOBAL_MEMORY))


def _load(item: Any, result: Any = None, num: int = 1, *, invariant: bool = True) -> Any:
    """A function (address) -> `item`, or `num` of them side by side, at a multiple of their size in all.

    Args:
        result: what one item is widened to; the item itself if left out.
        invariant: whether the memory does not change while the kernel runs, so that it may be read through the cache
            for such memory.
    """

    @intrinsic
    def loader(typingctx: Any, address: Any) -> Any:
        returned = (result or item) if num == 1 else types.UniTuple(item, num)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            one = context.get_data_type(item)
            value = builder.load(_pointer(builder, args[0], one if num == 1 else ir.VectorType(one, num)))
            value.align = num * item.bitwidth // 8
            if invariant:
                value.set_metadata("invariant.load", builder.module.add_metadata([]))
            if num > 1:
                items = [builder.extract_element(value, ir.Constant(INT, i)) for i in range(num)]
                return context.make_tuple(builder, returned, items)
            return value if returned == item else builder.zext(value, context.get_data_type(returned))

        return returned(types.int64), codegen

    return loader


def _store(item: Any, num: int = 1) -> Any:
    """A procedure (address, `num` values), which lie side by side, at a multiple of their size in all.

    Integers of 8 and 16 bits are cut from an uint32.
    """
    taken = types.uint32 if item.bitwidth < 32 else item

    def storer(typingctx: Any, address: Any, *values: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            item_type = context.get_data_type(item)
            if num == 1:
                value = args[1] if item == taken else builder.trunc(args[1], item_type)
            else:
                value = ir.Constant(ir.VectorType(item_type, num), ir.Undefined)
                for i in range(num):
                    value = builder.insert_element(value, args[1 + i], ir.Constant(INT, i))
            builder.store(value, _pointer(builder, args[0], value.type)).align = num * item.bitwidth // 8
            return context.get_dummy_value()

        return types.void(types.int64, *[taken] * num), codegen

    return as_intrinsic(storer, ["address", *(f"value_{i}" for i in range(num))])


load_u8, load_u16 = _load(types.uint8, types.uint32), _load(types.uint16, types.uint32)
load_u32, load_i32, load_i64 = _load(types.uint32), _load(types.int32), _load(types.int64)
load_f32 = _load(types.float32)
store_u8, store_u16, store_u32 = _store(types.uint8), _store(types.uint16), _store(types.uint32)
store_f32, store_f32_pair, store_i64 = _store(types.float32), _store(types.float32, 2), _store(types.int64)

load_changing_f32, load_changing_i32 = _load(types.float32, invariant=False), _load(types.int32, invariant=False)
load_changing_u8 = _load(types.uint8, types.uint32, invariant=False)
load_changing_u16 = _load(types.uint16, types.uint32, invariant=False)
load_changing_four_f32 = _load(types.float32, num=4, invariant=False)
load_two_i32, load_four_i32 = _load(types.int32, num=2), _load(types.int32, num=4)
store_i32, store_two_i32, store_four_f32 = _store(types.int32), _store(types.int32, 2), _store(types.float32, 4)


def _instruction(assembly: str, constraints: str, result: Any, *arguments: Any) -> Any:
    """A function of the `arguments`' types that is one PTX instruction without side effects."""

    def call(typingctx: Any, *given: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.FunctionType(context.get_data_type(result), [context.get_data_type(item) for item in arguments])
            return builder.asm(kind, assembly, constraints, args, side_effect=False)

        return result(*arguments), codegen

    return as_intrinsic(call, [f"argument_{i}" for i in range(len(arguments))])


float32_bits = _instruction("mov.b32 $0, $1;", "=r,f", types.uint32, types.float32)
float16_bits = _instruction(
    "{.reg .b16 half; cvt.rn.f16.f32 half, $1; cvt.u32.u16 $0, half;}", "=r,f", types.uint32, types.float32
)
float16_pair_bits = _instruction(
    "{.reg .b16 low, high; cvt.rn.f16.f32 low, $1; cvt.rn.f16.f32 high, $2; mov.b32 $0, {low, high};}",
    "=r,f,f",
    types.uint32,
    types.float32,
    types.float32,
)
float32_of_float16 = _instruction(
    "{.reg .b16 half; cvt.u16.u32 half, $1; cvt.f32.f16 $0, half;}", "=f,r", types.float32, types.uint32
)
floor_index = _instruction("cvt.rmi.s32.f32 $0, $1;", "=r,f", types.int32, types.float32)
kept = _instruction("mov.b32 $0, $1;", "=r,r", types.int32, types.int32)
reciprocal = _instruction("rcp.approx.ftz.f32 $0, $1;", "=f,f", types.float32, types.float32)
saturated = _instruction("fma.rn.sat.f32 $0, $1, $2, $3;", "=f,f,f,f", types.float32, *[types.float32] * 3)
raised_red, raised_green, raised_blue = (
    _instruction(f"prmt.b32 $0, $1, $2, {0x7540 + byte};", "=f,r,r", types.float32, types.uint32, types.uint32)
    for byte in range(3)
)
sum_of_product = _instruction("fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", types.float32, *[types.float32] * 3)
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
