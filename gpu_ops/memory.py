"""Loads and stores by address that LLVM may reorder, so that loops which gather pixels are vectorised on the CPU.

LLVM does not vectorise a gather whose source might overlap what the loop writes, and numba has no `noalias`. Each of
these names a scope, and memory of two scopes is promised never to overlap. Nothing is bounds-checked: callers clamp.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

SCOPES = (
    "pixels",
    "fetched",
    "batch",
    "source_x",
    "source_y",
    "first_x",
    "first_y",
    "weight_x",
    "weight_y",
    "index_x",
    "index_y",
    "sum_x",
    "sum_y",
    "inverse",
    "inside_x",
    "inside_y",
    "red",
    "green",
    "blue",
    "unpacked",
    "values",
    "payload",
    "table",
    "scaled",
    "slots",
    "lines",
    "nodes",
    "node_lines",
)
"""What a kernel touches: the image, the batch, pixels fetched from the image and the other scratch rows between the
kernel's steps, and the image as a decoder gave it; what a codec encodes, into what, the table that it looks up, and
what it keeps until it does; nodes of a displacement and what lines of them make of pixels."""

__all__ = [
    "SCOPES",
    "borrowed",
    "cpu_has_avx512",
    "cpu_has_byte_tables",
    "has_avx512",
    "load",
    "load_bytes",
    "prefer_wide_vectors",
    "prefetch",
    "prefetch_for_writing",
    "store",
]


def _scope_list(module: ir.Module, names: tuple[str, ...]) -> Any:
    domain = module.add_metadata(["augpipe"])
    return module.add_metadata([module.add_metadata([f"augpipe.{name}", domain]) for name in names])


def _tag(instruction: Any, module: ir.Module, scope: str, item_bytes: int) -> None:
    instruction.align = item_bytes
    instruction.set_metadata("alias.scope", _scope_list(module, (scope,)))
    instruction.set_metadata("noalias", _scope_list(module, tuple(name for name in SCOPES if name != scope)))


def load(scope: str, item: types.Number, index: types.Integer = types.intp, *, aligned: bool = True) -> Any:
    """A function (address, index) -> item, for kernels; a 32-bit signed `index` lets LLVM use a 32-bit gather.

    Where it is not `aligned`, the address need not be a multiple of the item's size.
    """
    assert scope in SCOPES

    @intrinsic
    def loader(typingctx: Any, address: Any, position: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            item_type = context.get_data_type(item)
            base = builder.inttoptr(args[0], item_type.as_pointer())
            position = builder.sext(args[1], ir.IntType(64)) if index.bitwidth < 64 else args[1]
            value = builder.load(builder.gep(base, [position]))
            _tag(value, builder.module, scope, item.bitwidth // 8 if aligned else 1)
            return value

        return item(types.uintp, index), codegen

    return loader


def load_bytes(scope: str, item: types.Integer) -> Any:
    """A function (address, bytes from there) -> item, for kernels; it need not be aligned."""
    assert scope in SCOPES

    @intrinsic
    def loader(typingctx: Any, address: Any, offset: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            first = builder.gep(builder.inttoptr(args[0], ir.IntType(8).as_pointer()), [args[1]])
            value = builder.load(builder.bitcast(first, context.get_data_type(item).as_pointer()))
            _tag(value, builder.module, scope, 1)
            return value

        return item(types.uintp, types.intp), codegen

    return loader


def store(scope: str, item: types.Number | None = None, *, aligned: bool = True) -> Any:
    """A procedure (address, index, value) for kernels; without `item`, the value's own type is what is written."""
    assert scope in SCOPES

    @intrinsic
    def storer(typingctx: Any, address: Any, position: Any, value: Any) -> Any:
        taken = value if item is None else item

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            base = builder.inttoptr(args[0], args[2].type.as_pointer())
            written = builder.store(args[2], builder.gep(base, [args[1]]))
            _tag(written, builder.module, scope, taken.bitwidth // 8 if aligned else 1)
            return context.get_dummy_value()

        return types.void(types.uintp, types.intp, taken), codegen

    return storer


@intrinsic
def prefer_wide_vectors(typingctx: Any) -> Any:
    """Called once in a kernel, lets LLVM use 512-bit vectors in it where the CPU has them; by itself it takes 256."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # llvmlite lists the attributes it knows, and string attributes are not among them
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), codegen


def cpu_has_avx512(context: Any) -> bool:
    """Whether the CPU that numba's `context` compiles for has AVX-512's instructions for words of 16 and 32 bits."""
    return "+avx512bw" in context.codegen()._tm_features.split(",")


def cpu_has_byte_tables(context: Any) -> bool:
    """Whether it has those that look up bytes in registers, too."""
    return "+avx512vbmi" in context.codegen()._tm_features.split(",")


@intrinsic
def has_avx512(typingctx: Any) -> Any:
    """`cpu_has_avx512`, known when a kernel is compiled."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(ir.IntType(1), cpu_has_avx512(context))

    return types.boolean(), codegen


def _prefetch(for_writing: bool) -> Any:
    @intrinsic
    def asker(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            i32 = ir.IntType(32)
            pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
            function_type = ir.FunctionType(ir.VoidType(), [pointer.type, i32, i32, i32])
            function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], function_type)
            builder.call(function, [pointer, i32(int(for_writing)), i32(3), i32(1)])
            return context.get_dummy_value()

        return types.void(types.uintp), codegen

    return asker


prefetch = _prefetch(for_writing=False)
"""A procedure (address): ask for a cache line; an address that nobody may read is ignored by the CPU."""

prefetch_for_writing = _prefetch(for_writing=True)
"""A procedure (address): ask for a cache line that is about to be written."""


@intrinsic
def borrowed(typingctx: Any, arrays: Any) -> Any:
    """A tuple of arrays, and tuples of them, without owners: a loop that hands them on counts no references, each of
    which takes as long as ten operations. Their owners are the caller's to keep."""

    def without_owner(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        if isinstance(kind, types.BaseTuple):
            parts = [builder.extract_value(value, nth) for nth in range(len(kind))]
            of_kinds = zip(kind.types, parts, strict=True)
            return context.make_tuple(builder, kind, [without_owner(context, builder, *part) for part in of_kinds])
        array = context.make_array(kind)(context, builder, value)
        for owner in ("meminfo", "parent"):
            setattr(array, owner, getattr(array, owner).type(None))
        return array._getvalue()

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return without_owner(context, builder, arrays, args[0])

    return arrays(arrays), codegen
