"""What the codecs' kernels need of the device's memory beside `device_memory`, as LLVM."""

from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from augpipe.gpu_ops.cuda.device_memory import GLOBAL_MEMORY, _instruction

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


def _load(item: Any, item_type: Any) -> Any:
    @intrinsic
    def loader(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.load(_pointer(builder, args[0], item_type))
            value.align = 4
            return value

        return item(types.int64), codegen

    return loader


load_changing_f32, load_changing_i32 = _load(types.float32, FLOAT), _load(types.int32, INT)


@intrinsic
def store_i32(typingctx: Any, address: Any, value: Any) -> Any:
    """An int32, at a multiple of 4."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], _pointer(builder, args[0], INT)).align = 4
        return context.get_dummy_value()

    return types.void(types.int64, types.int32), codegen


def _atomic(operation: str) -> Any:
    @intrinsic
    def changer(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.atomic_rmw(operation, _pointer(builder, args[0], INT), args[1], "monotonic")
            return context.get_dummy_value()

        return types.void(types.int64, types.int32), codegen

    return changer


raise_to, add_to = _atomic("max"), _atomic("add")
