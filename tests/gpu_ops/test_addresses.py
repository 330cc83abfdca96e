"""Addresses of arrays that kernels make: numba frees an array after its last use, and an address is not one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import augpipe.gpu_ops

ROOM = Path(augpipe.gpu_ops.__file__).parent


def taken_outside_of_loops(function: ast.FunctionDef) -> Iterator[int]:
    """The lines that take the address of an array of the function's own, except in loops, which keep it to their end.

    What a function is given is kept by who called it.
    """
    given = {argument.arg for argument in function.args.args}
    loops = [inner for inner in ast.walk(function) if isinstance(inner, ast.For | ast.While)]
    in_loops = {id(inner) for loop in loops for inner in ast.walk(loop)}
    for node in ast.walk(function):
        is_taken = isinstance(node, ast.Attribute) and ast.unparse(node).endswith(".ctypes.data")
        if is_taken and id(node) not in in_loops and ast.unparse(node).split(".")[0] not in given:
            yield node.lineno


def test_arrays_are_kept_while_their_addresses_are_used() -> None:
    kernels = [
        (path, function)
        for path in sorted(ROOM.rglob("*.py"))
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        and any(ast.unparse(decorator).startswith(("subroutine", "kernel(")) for decorator in function.decorator_list)
    ]
    assert len(kernels) > 100
    found = [f"{path.relative_to(ROOM)}:{line}" for path, one in kernels for line in taken_outside_of_loops(one)]
    assert found == []
