"""Kernels as machine code: which there are, where they lie, who compiles them, and what is done meanwhile.

`declared` names them, `cache` finds and keeps them for numba, `background` has processes of their own compile them,
`prebuilt` makes those that a wheel carries.
"""
