"""Numpy records in compiled loops: where one lies in memory, and sums of products as numpy's matrices have them."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from augpipe.gpu_ops.jit import leaf


@intrinsic
def memory_at(typingctx: Any, address: Any) -> Any:
    """The pointer of an address, for `numba.carray`: arrays of one record would be of another type than of more."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.intp), codegen


@intrinsic
def multiply_add(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), codegen


@leaf
def product(first_x, first_y, second_x, second_y):
    """The sum of two products, as BLAS has an entry of the product of two matrices: the second one is not rounded."""
    return multiply_add(first_y, second_y, first_x * second_x)


@leaf
def product_by_vector(first_x, first_y, x, y):
    """The sum of two products, as BLAS has an entry of a matrix times a vector: the first one is not rounded."""
    return multiply_add(first_x, x, first_y * y)
