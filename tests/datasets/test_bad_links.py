"""Hostile files: links out of the file and strange types are refused, no other file is opened."""

from __future__ import annotations

import ctypes
import os

import h5py
import numpy as np
import pytest

from tests.datasets.foreign_files import (
    ROWS,
    SECRET,
    refusal,
    reseal,
    write_foreign,
)


class OpenWatch:
    """Counts how often a file is opened, by any process (inotify)."""

    IN_OPEN = 0x20

    def __init__(self, *paths):
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = libc.inotify_init1(os.O_NONBLOCK)
        for path in paths:
            assert libc.inotify_add_watch(self.descriptor, os.fsencode(path), self.IN_OPEN) > 0

    def opened(self):
        try:
            return bool(os.read(self.descriptor, 4096))
        except BlockingIOError:
            return False


def external_storage(file, secret):
    file.create_dataset("rewards", (2,), "f4", external=[(str(secret), 0, 8)])


def external_link(file, secret):
    file["rewards"] = h5py.ExternalLink(f"{secret}.h5", "/rewards")


def external_link_in_the_middle(file, secret):
    file["infos"] = h5py.ExternalLink(f"{secret}.h5", "/")
    file["rewards"] = np.zeros(ROWS, np.float32)


def soft_link(file, secret):
    file["rewards"] = h5py.SoftLink("/actions")


def soft_link_through_external(file, secret):
    file["metadata"] = h5py.ExternalLink(f"{secret}.h5", "/")
    file["rewards"] = h5py.SoftLink("/metadata/rewards")


def soft_loop(file, secret):
    file["rewards"] = h5py.SoftLink("/rewards")


def dangling_link(file, secret):
    file["rewards"] = h5py.SoftLink("/nowhere")


def virtual(file, secret):
    layout = h5py.VirtualLayout((ROWS,), "f4")
    layout[:] = h5py.VirtualSource(f"{secret}.h5", "rewards", (ROWS,))
    file.create_virtual_dataset("rewards", layout)


def virtual_of_itself(file, secret):
    layout = h5py.VirtualLayout((ROWS,), "f4")
    layout[:] = h5py.VirtualSource(".", "terminals", (ROWS,))
    file.create_virtual_dataset("rewards", layout)


def same_object_twice(file, secret):
    file["rewards"] = file["timeouts"]


def hard_link_cycle(file, secret):
    file["rewards"] = file["/"]


def group(file, secret):
    file.create_group("rewards")["rewards"] = np.zeros(ROWS)


def named_type(file, secret):
    file["rewards"] = np.dtype("f4")


def reference(file, secret):
    data = np.array([file["actions"].ref] * ROWS, dtype=h5py.ref_dtype)
    file.create_dataset("rewards", data=data, dtype=h5py.ref_dtype)


def region_reference(file, secret):
    data = np.array([file["actions"].regionref[:1]] * ROWS, dtype=h5py.regionref_dtype)
    file.create_dataset("rewards", data=data, dtype=h5py.regionref_dtype)


def variable_length(file, secret):
    file.create_dataset("rewards", (ROWS,), h5py.vlen_dtype(np.float32))


def strings(file, secret):
    file.create_dataset("rewards", data=["x"] * ROWS)


def opaque(file, secret):
    file["rewards"] = np.zeros(ROWS, dtype="V8")


def compound(file, secret):
    file["rewards"] = np.zeros(ROWS, dtype=[("a", "f4"), ("b", "f4")])


def enumeration(file, secret):
    file.create_dataset("rewards", (ROWS,), h5py.enum_dtype({"A": 1}, basetype="i4"))


def half_floats(file, secret):
    file["rewards"] = np.zeros(ROWS, dtype="f2")


def fletcher(file, secret):
    file.create_dataset("rewards", data=np.zeros(ROWS, "f4"), fletcher32=True)


def scale_offset(file, secret):
    file.create_dataset("rewards", data=np.zeros(ROWS, "i8"), scaleoffset=0)


def plugin_filter(file, secret):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((ROWS,))
    plist.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)  # zstd, from a plug-in
    space = h5py.h5s.create_simple((ROWS,))
    h5py.h5d.create(file.id, b"rewards", h5py.h5t.NATIVE_FLOAT, space, plist)


def unknown_name(file, secret):
    file["rewards"] = np.zeros(ROWS, np.float32)
    file["evil\n\x1b[31m"] = np.zeros(3)


def never_written(file, secret):
    file.create_dataset("rewards", (ROWS,), "f4")


def long_metadata(file, secret):
    file["rewards"] = np.zeros(ROWS, np.float32)
    file.attrs["mcat"] = "variable-length text"


def metadata_reference(file, secret):
    file["rewards"] = np.zeros(ROWS, np.float32)
    file.attrs["mcat"] = file["actions"].ref


def scalar(file, secret):
    file["rewards"] = np.float32(1)


TRICKS = [
    external_storage, external_link, external_link_in_the_middle, soft_link,
    soft_link_through_external, soft_loop, dangling_link, virtual, virtual_of_itself,
    same_object_twice, hard_link_cycle, group, named_type, reference, region_reference,
    variable_length, strings, opaque, compound, enumeration, half_floats, fletcher, scale_offset,
    plugin_filter, unknown_name, never_written, long_metadata, metadata_reference, scalar,
]  # fmt: skip


# Each must be found by its own check, not by luck by a later one.
REASONS = {
    external_storage: "from another file",
    virtual: "from another file",
    virtual_of_itself: "from another file",
    external_link: "is a link",
    external_link_in_the_middle: "is a link",
    soft_link: "is a link",
    soft_loop: "is a link",
    same_object_twice: "of its own",
    hard_link_cycle: "of its own",
    plugin_filter: "filters [32015]",
    reference: "has type",
    never_written: "never written",
}


def make_trick(tmp_path, trick, userblock):
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    with h5py.File(f"{secret}.h5", "w") as file:
        file["rewards"] = np.frombuffer(SECRET * 6, dtype=np.float32)
    path = tmp_path / "a.h5"
    with write_foreign(path, userblock=userblock, skip=["rewards"]) as file:
        trick(file, secret)
    if userblock:
        reseal(path)
    return path, secret


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_are_refused_and_no_other_file_is_opened(tmp_path, trick):
    path, secret = make_trick(tmp_path, trick, userblock=512)
    watch = OpenWatch(secret, f"{secret}.h5")
    text = refusal(path)
    assert not watch.opened()
    assert REASONS.get(trick, "") in text
    assert "secret" not in text.replace(str(path), "")
    secret.read_bytes()
    assert watch.opened()  # the watch does see an open


@pytest.mark.parametrize("trick", [external_storage, external_link, virtual, soft_loop])
def test_tricks_are_refused_in_the_child_too(tmp_path, trick):
    path, secret = make_trick(tmp_path, trick, userblock=0)
    watch = OpenWatch(secret, f"{secret}.h5")
    refusal(path)
    assert not watch.opened()
