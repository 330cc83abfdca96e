"""What kernels need of the device itself, as LLVM: loads and stores by address, and instructions that numba lacks."""

from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from augpipe.gpu_ops.cuda.subroutine import as_intrinsic

GLOBAL_MEMORY = 1
"""NVPTX's number for its address space."""

FLOAT = ir.FloatType()


def _pointer(builder: Any, address: Any, item_type: Any) -> Any:
    return builder.inttoptr(address, ir.PointerType(item_type, GLOBAL_MEMORY))


def _load(item: Any, result: Any) -> Any:
    """A function (address) -> `item`, widened to `result`; the memory must not change while the kernel runs."""

    @intrinsic
    def loader(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.load(_pointer(builder, args[0], context.get_data_type(item)))
            value.align = item.bitwidth // 8
            value.set_metadata("invariant.load", builder.module.add_metadata([]))
            return value if item == result else builder.zext(value, context.get_data_type(result))

        return result(types.int64), codegen

    return loader


def _store(item: Any) -> Any:
    """A procedure (address, value), with the value cut to `item`."""

    @intrinsic
    def storer(typingctx: Any, address: Any, value: Any) -> Any:
        taken = item if item == types.float32 else types.uint32

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            item_type = context.get_data_type(item)
            value = args[1] if item == taken else builder.trunc(args[1], item_type)
            builder.store(value, _pointer(builder, args[0], item_type)).align = item.bitwidth // 8
            return context.get_dummy_value()

        return types.void(types.int64, taken), codegen

    return storer


@intrinsic
def store_f32_pair(typingctx: Any, address: Any, first: Any, second: Any) -> Any:
    """Two float32 side by side, the first at a multiple of 8."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pair_type, place = ir.VectorType(FLOAT, 2), ir.IntType(32)
        pair = builder.insert_element(ir.Constant(pair_type, ir.Undefined), args[1], place(0))
        pair = builder.insert_element(pair, args[2], place(1))
        builder.store(pair, _pointer(builder, args[0], pair_type)).align = 8
        return context.get_dummy_value()

    return types.void(types.int64, types.float32, types.float32), codegen


load_u8 = _load(types.uint8, types.uint32)
load_u32 = _load(types.uint32, types.uint32)
load_i32 = _load(types.int32, types.int32)
load_i64 = _load(types.int64, types.int64)
load_f32 = _load(types.float32, types.float32)
store_u8, store_u16, store_u32 = _store(types.uint8), _store(types.uint16), _store(types.uint32)
store_f32 = _store(types.float32)


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
floor_index = _instruction("cvt.rmi.s32.f32 $0, $1;", "=r,f", types.int32, types.float32)
kept = _instruction("mov.b32 $0, $1;", "=r,r", types.int32, types.int32)
reciprocal = _instruction("rcp.approx.ftz.f32 $0, $1;", "=f,f", types.float32, types.float32)
saturated = _instruction("fma.rn.sat.f32 $0, $1, $2, $3;", "=f,f,f,f", types.float32, *[types.float32] * 3)
raised_red, raised_green, raised_blue = (
    _instruction(f"prmt.b32 $0, $1, $2, {0x7540 + byte};", "=f,r,r", types.float32, types.uint32, types.uint32)
    for byte in range(3)
)
