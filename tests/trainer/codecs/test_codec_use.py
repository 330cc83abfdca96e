"""Codecs in use: names, arrays and tensors, messages, threads, and that torch is not loaded for them."""

import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import augpipe.trainer
from augpipe.gpu_ops.codec import loops as codec_loops
from augpipe.gpu_ops.codec import one_bit as codec_one_bit
from augpipe.trainer.codecs import Codec, arrays, base_codec, codec, names
from augpipe.trainer.codecs.eight_bit import EightBitCodec

ROOT = Path(__file__).resolve().parents[3]
ALL = ("fp32", "bf16", "dynamic-tree", "dynamic-map", "linear", "mantissa", "static-tree", "nf4", "one-bit")


def gradients(num: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(num).astype(np.float32)


def test_every_name_gives_its_codec() -> None:
    assert sorted(names()) == sorted(ALL)
    assert augpipe.trainer.codec is codec
    for name in names():
        made = codec(name)
        assert isinstance(made, Codec) and made.name == name
        assert made.block == (None if name in ("fp32", "bf16") else 256)
        assert made == codec(name) and hash(made) == hash(codec(name))
    assert codec("linear", block=64) != codec("linear") and codec("linear") != codec("mantissa")


def test_an_unknown_name_and_block() -> None:
    with pytest.raises(ValueError, match="codec='int8' is unknown. Choose one of 'fp32', 'bf16', 'dynamic-tree'"):
        codec("int8")
    for block in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="is not a number of values: give a positive whole number, or None"):
            codec("linear", block=block)


def test_an_unknown_attribute_of_the_trainer() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'codecc'"):
        _ = augpipe.trainer.codecc
    assert {"codec", "butterfly_hook", "strategy", "model"} <= set(dir(augpipe.trainer))


def test_torch_is_not_loaded_for_arrays() -> None:
    code = (
        "import sys, numpy as np, augpipe.trainer\n"
        "assert 'augpipe.trainer.codecs' not in sys.modules\n"
        "made = augpipe.trainer.codec('dynamic-tree')\n"
        "made.decode(made.encode(np.ones(9, np.float32)))\n"
        "try: made.encode([1.0])\n"
        "except ValueError as error: print(error)\n"
        "print('torch' in sys.modules, 'numba.cuda' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "x is list: codecs take numpy arrays and torch tensors.\nFalse False\n"


@pytest.mark.parametrize("name", ALL)
def test_tensors_and_arrays_give_the_same_bytes(name: str) -> None:
    torch = pytest.importorskip("torch")
    made, x = codec(name), gradients(1000)
    tensor = torch.from_numpy(x.copy()).reshape(10, 100).requires_grad_()
    payload = made.encode(tensor)
    assert payload.dtype == torch.uint8 and payload.shape == (made.num_bytes(1000),)
    assert payload.numpy().tobytes() == made.encode(x).tobytes()
    decoded = made.decode(payload)
    assert decoded.dtype == torch.float32 and not decoded.requires_grad
    np.testing.assert_array_equal(decoded.numpy(), made.decode(payload.numpy()))
    mixed = np.empty(made.num_bytes(1000), np.uint8)  # an array's memory for a tensor's numbers
    assert made.encode_into(tensor, mixed) == 0 and mixed.tobytes() == payload.numpy().tobytes()


@pytest.mark.parametrize("name", ALL)
def test_a_slice_is_written_and_nothing_beside_it(name: str) -> None:
    made = codec(name, block=16)
    held = np.full(made.num_bytes(100) + 20, 99, np.uint8)
    made.encode_into(gradients(120)[10:110], held[10:-10])
    assert (held[:10] == 99).all() and (held[-10:] == 99).all()
    assert held[10:-10].tobytes() == made.encode(gradients(120)[10:110]).tobytes()
    out = np.full(120, 7.0, np.float32)
    made.decode_into(held[10:-10], out[10:-10])
    assert (out[:10] == 7.0).all() and (out[-10:] == 7.0).all()


@pytest.mark.parametrize("layout", ["strided", "between two numbers"])
def test_what_is_not_dense_is_copied_by_encode_alone(layout: str) -> None:
    made, whole = codec("dynamic-tree"), gradients(200)
    x = whole[::2] if layout == "strided" else np.frombuffer(b"x" + whole.tobytes(), np.float32, 100, offset=1)
    assert made.encode(x).tobytes() == made.encode(x.copy()).tobytes()
    payload = np.empty(made.num_bytes(100), np.uint8)
    message = r"of shape \(100,\) is not contiguous and aligned: .*Use \.copy\(\) first"
    with pytest.raises(ValueError, match=f"x {message}"):
        made.encode_into(x, payload)
    with pytest.raises(ValueError, match=f"out {message}"):
        made.decode_into(payload, x)
    made.encode_into(x.copy(), payload)


def test_messages_for_what_does_not_fit() -> None:
    made = codec("dynamic-tree")
    x, payload = gradients(100), np.empty(104, np.uint8)
    with pytest.raises(ValueError, match="x is float64: codecs take float32. Convert it first"):
        made.encode(x.astype(np.float64))
    with pytest.raises(ValueError, match="payload has 104 bytes: 99 numbers take 103"):
        made.encode_into(x[:99], payload)
    with pytest.raises(ValueError, match="payload has 104 bytes: 101 numbers take 105"):
        made.decode_into(payload, gradients(101))
    for length in (1, 4, 260 + 4):
        with pytest.raises(ValueError, match=f"payload has {length} bytes: no number of values has so many"):
            made.decode(np.zeros(length, np.uint8))
    with pytest.raises(ValueError, match="payload has 5 bytes: those of fp32 are a multiple of 4"):
        codec("fp32").decode(np.zeros(5, np.uint8))
    one_bit = codec("one-bit")
    whole = one_bit.encode(x)
    says_minus_one = np.full(8, 255, np.uint8)
    for cut in (whole[:-1], whole[:5], says_minus_one):
        with pytest.raises(ValueError, match="its header does not say that many numbers"):
            one_bit.decode(cut)
    with pytest.raises(ValueError, match="holds 100 numbers and out 97: sizes must agree"):
        one_bit.decode_into(whole, gradients(97))


def test_values_and_payload_on_two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here with memory that is only said to lie on a device; either way, since each is written by the other's."""
    flat = arrays.flat

    def on_a_device(x: arrays.Array, dtype: str, name: str, **options: bool) -> arrays.Memory:
        return replace(flat(x, dtype, name, **options), device=0)

    monkeypatch.setattr(base_codec, "flat", on_a_device)
    made, x, payload = codec("linear"), gradients(100), np.empty(104, np.uint8)
    for work in (made.encode_into, lambda values, payload: made.decode_into(payload, values)):
        with pytest.raises(ValueError, match="values lie on cuda:0 and the payload on the CPU: both must lie on one"):
            work(x, payload)


def test_a_codebook_is_everyones_and_read_only() -> None:
    made = codec("linear")
    assert isinstance(made, EightBitCodec)
    with pytest.raises(ValueError, match="read-only"):
        made.codebook[0] = 0.5


def test_messages_for_tensors() -> None:
    torch = pytest.importorskip("torch")
    made = codec("dynamic-tree")
    with pytest.raises(ValueError, match="x is torch.bfloat16: codecs take float32. Convert it first, as by .float()"):
        made.encode(torch.ones(4, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="x lies on meta: codecs take tensors of the CPU and of CUDA devices"):
        made.encode(torch.ones(4, device="meta"))
    with pytest.raises(ValueError, match="x of shape \\(2, 3\\) is not contiguous.*Use .contiguous\\(\\) first"):
        made.encode_into(torch.ones(3, 2).T, torch.empty(10, dtype=torch.uint8))


@pytest.mark.parametrize("name", ALL)
def test_threads_share_a_codec(name: str) -> None:
    made = codec(name)
    parts = [gradients(5000 + 17 * seed, seed) for seed in range(16)]
    expected = [made.encode(part).tobytes() for part in parts]
    payloads = [np.empty(made.num_bytes(len(part)), np.uint8) for part in parts]
    outs = [np.empty_like(part) for part in parts]

    def work(nth: int) -> None:
        for _ in range(20):
            made.encode_into(parts[nth], payloads[nth])
            made.decode_into(payloads[nth], outs[nth])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(16), timeout=60))
    assert [payload.tobytes() for payload in payloads] == expected
    for payload, out in zip(payloads, outs, strict=True):
        np.testing.assert_array_equal(out, made.decode(payload))


def test_every_loop_frees_the_gil() -> None:
    loops = [
        loop
        for module in (codec_loops, codec_one_bit)
        for loop in vars(module).values()
        if hasattr(loop, "targetoptions")
    ]
    named = {loop.__name__: loop for loop in loops if loop.__name__.startswith(("encode_", "decode_"))}
    assert len(named) == 8 and all(loop.targetoptions["nogil"] for loop in named.values())


DIGEST = """
import hashlib, numpy as np
from augpipe.trainer.codecs import codec, names
x = (np.random.default_rng(0).standard_normal(5000) * 10.0 ** np.linspace(-9, 0, 5000)).astype(np.float32)
for name in names():
    made, out = codec(name), np.linspace(-1, 1, 5000, dtype=np.float32)
    payload = made.encode(x)
    if name == "one-bit":  # sums differ in their last bit
        payload[8:168] = np.repeat(np.array([1.5, -2.5], np.float32)[None], 20, 0).reshape(-1).view(np.uint8)
    made.decode_into(payload, out, add=True)
    print(name, hashlib.sha256(payload.tobytes() + out.tobytes()).hexdigest())
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names processors of one architecture")
def test_an_old_processor_gives_the_same_bits() -> None:
    """No fused multiply-add and no wide vectors: ranks on different machines decode the same."""
    printed = []
    for processor in ({}, {"NUMBA_CPU_NAME": "nehalem", "NUMBA_CPU_FEATURES": ""}):
        done = subprocess.run(
            [sys.executable, "-c", DIGEST],
            cwd=ROOT,
            env=os.environ | processor,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0] == printed[1] and printed[0].count("\n") == len(ALL)


@pytest.mark.parametrize("name", ALL)
def test_nothing_at_all(name: str) -> None:
    made = codec(name)
    payload = made.encode(np.empty(0, np.float32))
    assert len(payload) == made.num_bytes(0) and made.decode(payload).shape == (0,)
    assert made.error_bound(np.empty(0, np.float32)).shape == (0,)
