"""Any region of a tensor, from however many files its parts lie in."""

from __future__ import annotations

import json

import numpy as np
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from msllm.checkpoint.regions import Part, StoredTensor, read_region, stored_tensors, uncovered


@st.composite
def cut_tensors(draw):
    """(full shape, cuts of each axis, a region)."""
    shape = draw(st.lists(st.integers(1, 6), max_size=3))
    cuts = [sorted(draw(st.sets(st.integers(1, length - 1), max_size=2))) if length > 1 else [] for length in shape]
    region = []
    for length in shape:
        start = draw(st.integers(0, length - 1))
        region.append(slice(start, draw(st.integers(start + 1, length))))
    return tuple(shape), cuts, tuple(region)


@settings(max_examples=60)
@given(cut=cut_tensors(), dtype=st.sampled_from(["float32", "float16", "int32"]))
def test_a_region_is_that_of_the_full_tensor(cut, dtype, fresh_folder):
    folder = fresh_folder()
    shape, cuts, region = cut
    full = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    edges = [[0, *axis, length] for axis, length in zip(cuts, shape)]
    parts = []
    for number, index in enumerate(np.ndindex(*(len(axis) - 1 for axis in edges))):
        begin = tuple(edges[axis][i] for axis, i in enumerate(index))
        end = tuple(edges[axis][i + 1] for axis, i in enumerate(index))
        block = full[tuple(slice(a, b) for a, b in zip(begin, end))]
        safetensors.numpy.save_file({"w": np.array(block, order="C")}, str(folder / f"{number}.safetensors"))
        parts.append(Part(f"{number}.safetensors", begin, block.shape))
    tensor = StoredTensor("w", "model", dtype, shape, tuple(parts))
    found = read_region(folder, tensor, region)
    assert found.dtype == full.dtype
    np.testing.assert_array_equal(found, full[region])
    assert uncovered(tensor) == 0
    if len(parts) > 1:
        assert uncovered(StoredTensor("w", "model", dtype, shape, tuple(parts[1:]))) == np.prod(parts[0].shape)


def test_a_manifest_without_parts_has_each_tensor_in_the_file_of_its_group(tmp_path):
    tensors = {"model": {"w": ["float32", [2, 3]]}, "optimizer": {"step": ["int32", []]}}
    (tmp_path / "manifest.json").write_text(json.dumps({"tensors": tensors}))
    stored = stored_tensors(tmp_path)
    assert stored["w"].parts == (Part("model.safetensors", (0, 0), (2, 3)),)
    assert stored["step"] == StoredTensor("step", "optimizer", "int32", (), (Part("optimizer.safetensors", (), ()),))
