"""Weights in files: whole, finite, and nothing is run from them."""

from __future__ import annotations

import io
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from mcat.errors import CannotCreateError, DataError
from mcat.tensor_files import digest, load_safetensors, save_safetensors

TENSORS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "step": np.array(7, dtype=np.int64),
    "mask": np.array([True, False]),
    "empty": np.zeros((0, 3), dtype=np.float64),
}


def test_safetensors_round_trip(tmp_path):
    path = tmp_path / "a.safetensors"
    save_safetensors(path, TENSORS, {"task": {"robot": "ant"}, "step": 7})
    tensors, metadata = load_safetensors(path)
    assert metadata == {"task": {"robot": "ant"}, "step": 7}
    assert tensors.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert tensors[name].dtype == value.dtype
        np.testing.assert_array_equal(tensors[name], value, strict=True)
    tensors["w"][0] = 1  # not read-only
    with pytest.raises(CannotCreateError):
        save_safetensors(path, TENSORS, {})
    transposed = {"w": TENSORS["w"].T}
    save_safetensors(path, transposed, {}, overwrite=True)
    np.testing.assert_array_equal(load_safetensors(path)[0]["w"], transposed["w"])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_weights_are_neither_saved_nor_loaded(tmp_path, bad):
    from safetensors.numpy import save_file

    tensors = {"w": np.array([1.0, bad])}
    with pytest.raises(DataError, match="'w' holds NaN or infinity"):
        save_safetensors(tmp_path / "a", tensors, {})
    save_file(tensors, tmp_path / "b", {"mcat": "{}", "sha256": digest(tensors, "{}")})
    with pytest.raises(DataError, match="'w' holds NaN or infinity"):
        load_safetensors(tmp_path / "b")


def test_every_damaged_byte_of_weights_is_noticed(tmp_path):
    path = tmp_path / "a.safetensors"
    save_safetensors(path, TENSORS, {"step": 7})
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for position in range(len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            tensors, metadata = load_safetensors(path)
        except DataError:
            refused += 1
        else:  # padding of the header: nothing changed
            assert metadata == {"step": 7}
            assert digest(tensors) == digest(TENSORS)
    assert refused > 0.95 * len(good)
    for size in range(len(good)):
        path.write_bytes(good[:size])
        with pytest.raises(DataError):
            load_safetensors(path)


class Payload:
    """Leaves a mark if anything unpickles it."""

    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


def malicious_files(mark):
    """At least 30 files that run code when loaded by pickle, torch.load, numpy or YAML."""
    payloads = {
        "mkdir": Payload(os.mkdir, mark),
        "system": Payload(os.system, f"mkdir {mark}"),
        "nested": {"state_dict": [{"w": Payload(os.mkdir, mark)}]},
        "exec": Payload(exec, f"import os; os.mkdir({mark!r})"),
    }
    for name, payload in payloads.items():
        for protocol in range(6):
            yield f"{name}-{protocol}.pkl", pickle.dumps(payload, protocol)
        for legacy in (True, False):
            stream = io.BytesIO()
            torch.save(payload, stream, _use_new_zipfile_serialization=not legacy)
            yield f"{name}-torch-{legacy}.pt", stream.getvalue()
        stream = io.BytesIO()
        np.savez(stream, w=np.array([payload], dtype=object))
        yield f"{name}.npz", stream.getvalue()
        stream = io.BytesIO()
        np.save(stream, np.array([payload], dtype=object))
        yield f"{name}.npy", stream.getvalue()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:  # as stable-baselines3 stores policies
        archive.writestr("data", pickle.dumps(payloads["mkdir"]))
        archive.writestr("policy.pth", pickle.dumps(payloads["mkdir"]))
    yield "sb3.zip", stream.getvalue()
    yield "a.yaml", f"!!python/object/apply:os.mkdir [{mark}]".encode()
    # a pickle behind a header length that looks like safetensors
    payload = pickle.dumps(payloads["mkdir"])
    yield "header.safetensors", len(payload).to_bytes(8, "little") + payload
    header = b'{"__metadata__":{"mcat":"!!python/object/apply:os.mkdir"}}'
    yield "yaml.safetensors", len(header).to_bytes(8, "little") + header


def test_weights_that_would_run_code_are_refused_and_nothing_runs(tmp_path):
    mark = tmp_path / "mark"
    files = dict(malicious_files(str(mark)))
    assert len(files) >= 30
    pickle.loads(files["mkdir-4.pkl"])  # the payload does work where pickles are loaded
    assert mark.exists()
    mark.rmdir()
    for name, content in files.items():
        for suffix in ("", ".safetensors"):
            path = tmp_path / f"{name}{suffix}"
            path.write_bytes(content)
            with pytest.raises(DataError) as caught:
                load_safetensors(path)
            assert caught.value.exit_code == 65
            assert len(str(caught.value).splitlines()) == 1
    assert not mark.exists()
