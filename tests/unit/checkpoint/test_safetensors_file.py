"""safetensors files read and written in NumPy, with bfloat16, against the library and against damage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors.numpy import load_file, save_file

from msllm.checkpoint.safetensors_file import decode, encode, read_header, write_file
from msllm.errors import InputError

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
ARRAYS = {
    "b.weight": np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4),
    "a": np.array(2.5, np.float32),
    "empty": np.zeros((0, 4), np.float32),
}


@pytest.fixture
def file(tmp_path) -> Path:
    write_file(tmp_path / "x.safetensors", ARRAYS.items(), {k: v.shape for k, v in ARRAYS.items()}, "float32")
    return tmp_path / "x.safetensors"


def message(path: Path) -> str:
    with pytest.raises(InputError) as error:
        read_header(path)
    return str(error.value)


def test_the_library_reads_what_we_write(file):
    found = load_file(file)
    assert found.keys() == ARRAYS.keys()
    assert all(np.array_equal(found[name], ARRAYS[name]) for name in ARRAYS)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_we_read_what_the_library_writes(tmp_path, dtype):
    stored = {name: np.array(array, dtype) for name, array in ARRAYS.items()}
    save_file(stored, tmp_path / "y.safetensors", {"made": "here"})
    header = read_header(tmp_path / "y.safetensors")
    assert header.keys() == stored.keys()
    for name, tensor in header.items():
        assert tensor.read().dtype == np.float32
        assert np.array_equal(tensor.read(), stored[name])


@pytest.mark.parametrize(("dtype", "exponent"), [("float16", 0x7C00), ("bfloat16", 0x7F80)])
def test_every_finite_number_of_16_bits_comes_back_bit_for_bit(dtype, exponent):
    bits = np.arange(1 << 16, dtype="<u2")
    bits = bits[bits & exponent != exponent]
    assert encode(decode(bits.tobytes(), dtype), dtype) == bits.tobytes()


def test_bfloat16_rounds_to_nearest_even():
    step = 2.0**-7  # distance of neighbours just above 1
    values = np.array([1 + step / 2, 1 + 3 * step / 2, 1 + step * 0.51, -1 - step * 0.49], np.float32)
    assert decode(encode(values, "bfloat16"), "bfloat16").tolist() == [1, 1 + 2 * step, 1 + step, -1]


@given(arrays(np.float32, array_shapes(max_dims=3, max_side=5), elements=FINITE))
def test_float32_comes_back_bit_for_bit(array):
    assert decode(encode(array, "float32"), "float32").tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_numbers_that_are_not_finite_are_refused(dtype):
    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match="NaN or infinity"):
            encode(np.array([0, value], np.float32), dtype)


def test_numbers_too_large_for_16_bits_are_refused():
    with pytest.raises(ValueError, match="more than float16 can hold"):
        encode(np.array([-65520.0], np.float32), "float16")
    with pytest.raises(ValueError, match="more than bfloat16 can hold"):
        encode(np.array([np.finfo(np.float32).max], np.float32), "bfloat16")


def test_a_file_cut_anywhere_or_with_bytes_added_is_noticed(file):
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        message(file)
    file.write_bytes(whole + b"x")
    assert "1 bytes more" in message(file)


def test_a_git_lfs_pointer_is_named_as_such(file):
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    assert "git lfs pull" in message(file)


def test_a_page_that_was_downloaded_in_its_place_is_no_safetensors_file(file):
    file.write_text("<!DOCTYPE html><html>Access denied</html>" * 100)
    assert "is not a safetensors file" in message(file)


def test_an_unreadable_dtype_is_named(tmp_path):
    save_file({"q": np.zeros(4, np.int8)}, tmp_path / "q.safetensors")
    assert "q has dtype I8; only F32, F16, BF16" in message(tmp_path / "q.safetensors")


@settings(deadline=None)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.recursive(
            st.none() | st.integers(-9, 99) | st.sampled_from(["F32", "dtype", "shape", "data_offsets"]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "w"]), inner, max_size=4)
            ),
            max_leaves=8,
        ),
    )
)
def test_no_header_gives_anything_but_tensors_or_an_input_error(tmp_path_factory, header):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path_factory.getbasetemp() / "fuzz.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    try:
        for tensor in read_header(path).values():
            tensor.read()
    except InputError:
        pass
