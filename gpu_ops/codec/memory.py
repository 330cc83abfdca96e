"""What the codecs' loops read and write, by address: payloads start at any byte, and nothing overlaps anything else."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from augpipe.gpu_ops.memory import _tag

VALUES, PAYLOAD, TABLE = "values", "payload", "table"
"""Scopes of `memory.SCOPES`."""


def load_at(scope: str, item: types.Number) -> Any:
    """A function (address, index) -> item, for kernels; the address need not be a multiple of the item's size."""

    @intrinsic
    def loader(typingctx: Any, address: Any, position: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            base = builder.inttoptr(args[0], context.get_data_type(item).as_pointer())
            place = builder.sext(args[1], ir.IntType(64)) if args[1].type.width < 64 else args[1]
            value = builder.load(builder.gep(base, [place]))
            _tag(value, builder.module, scope, 1)
            return value

        return item(types.uintp, position), codegen

    return loader


def store_at(scope: str, item: types.Number) -> Any:
    """A procedure (address, index, value of type `item`) for kernels; aligned as little as `load_at`."""

    @intrinsic
    def storer(typingctx: Any, address: Any, position: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            base = builder.inttoptr(args[0], context.get_data_type(item).as_pointer())
            written = builder.store(args[2], builder.gep(base, [args[1]]))
            _tag(written, builder.module, scope, 1)
            return context.get_dummy_value()

        return types.void(types.uintp, types.intp, item), codegen

    return storer


load_value, store_value = load_at(VALUES, types.float32), store_at(VALUES, types.float32)
load_value_bits = load_at(VALUES, types.int32)
load_byte, store_byte = load_at(PAYLOAD, types.uint8), store_at(PAYLOAD, types.uint8)
load_half, store_half = load_at(PAYLOAD, types.uint16), store_at(PAYLOAD, types.uint16)
load_float, store_float = load_at(PAYLOAD, types.float32), store_at(PAYLOAD, types.float32)
load_entry, load_level = load_at(TABLE, types.int32), load_at(TABLE, types.float32)
store_count = store_at(PAYLOAD, types.int64)
