"""What the codecs' loops read and write, by address: payloads start at any byte, and nothing overlaps anything else."""

from functools import partial

from numba import types

from augpipe.gpu_ops.memory import load, store

_load, _store = partial(load, aligned=False), partial(store, aligned=False)

load_value, store_value = _load("values", types.float32), _store("values", types.float32)
load_value_bits = _load("values", types.int32)
load_byte, store_byte = _load("payload", types.uint8), _store("payload", types.uint8)
load_half, store_half = _load("payload", types.uint16), _store("payload", types.uint16)
load_float, store_float = _load("payload", types.float32), _store("payload", types.float32)
load_entry, load_level = _load("table", types.int32, types.int32), _load("table", types.float32, types.int32)
store_count = _store("payload", types.int64)
load_bits, store_bits = load("scaled", types.int32), store("scaled", types.int32)
load_slot, store_slot = load("slots", types.int32), store("slots", types.int32)
