"""ONNX files of anybody: they act as they should, or are refused in one line."""

import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mcat.agents.policies.foreign import untrusted
from mcat.agents.policies.foreign.onnx_policy import RememberingOnnxPolicy, load_onnx
from mcat.agents.policies.names import find_policy, open_policy
from mcat.envs.tasks import Task
from mcat.errors import DataError, MissingInputError, UsageError
from tests.agents.policies.foreign.made import doubling, model, node, write

OBS = np.array([[1, 2, 9], [0, -1, 9]], np.float32)
WANTED = [[6, 2.5], [-2, 0.5]]  # 2 (1 + 2) = 6, 0.5 (1 + 2) + 1 = 2.5 ...


@pytest.mark.parametrize("rows", ["n", 1])
def test_it_acts_on_many_rows_and_on_one(rows, tmp_path):
    policy = load_onnx(write(tmp_path / "p.onnx", doubling(rows)))
    assert policy(OBS).tolist() == WANTED
    assert policy(OBS[1]).tolist() == WANTED[1]
    assert (policy.observation_size, policy.action_size) == (3, 2)
    assert policy.bounds is None
    with pytest.raises(UsageError, match="observations must"):
        policy(np.zeros((2, 4)))
    with pytest.raises(DataError, match="nan"):
        policy(np.full(3, np.nan))


@pytest.mark.parametrize(("shape", "rows"), [(["n", 1], "n"), ([1, 1, 1], 1)])
def test_a_memory_is_zero_at_the_start_and_then_what_came_out(shape, rows, tmp_path):
    """The action is the sum of all observations so far."""
    constants = {}
    nodes = [
        node("Add", ["x", "h_in"], ["h_out"]),
        node("Identity", ["h_out"], ["actions"]),
    ]
    if rows == 1:  # one row, as recurrent networks are often exported
        constants = {"flat": np.array([1, 1]), "back": np.array(shape)}
        nodes = [
            node("Reshape", ["h_in", "flat"], ["h"]),
            node("Add", ["x", "h"], ["actions"]),
            node("Reshape", ["actions", "back"], ["h_out"]),
        ]
    sums = model(
        nodes, {"x": [rows, 1], "h_in": shape}, {"actions": [rows, 1], "h_out": shape}, constants
    )
    policy = load_onnx(write(tmp_path / "p.onnx", sums))
    assert isinstance(policy, RememberingOnnxPolicy)
    with pytest.raises(UsageError, match="start_episode"):
        policy(np.ones((1, 1)))
    for _ in range(2):
        acting = policy.start_episode()
        assert acting(np.array([[1.0], [5.0]])).tolist() == [[1], [5]]
        assert acting(np.array([[2.0], [0.5]])).tolist() == [[3], [5.5]]
        with pytest.raises(UsageError, match="3 observations of 2 episodes"):
            acting(np.zeros((3, 1)))


def test_of_several_outputs_the_action_is_meant(tmp_path):
    def two(name):
        nodes = [node("Neg", ["x"], [name]), node("Abs", ["x"], ["value"])]
        return model(nodes, {"x": ["n", 2]}, {"value": ["n", 2], name: ["n", 2]})

    policy = load_onnx(write(tmp_path / "p.onnx", two("actions")))
    assert policy(np.ones(2)).tolist() == [-1, -1]
    with pytest.raises(DataError, match=r"2 outputs \(value, mu\)"):
        load_onnx(write(tmp_path / "p.onnx", two("mu")))


def changed(change):
    proto = doubling()
    change(proto)
    return proto


def outside(proto):
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")


def only_named(proto):
    proto.graph.initializer[0].external_data.add(key="location", value="weights.bin")


def outside_in_constant(proto):
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [1], [0.0])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="*/_ORT_MEM_ADDR_/*")
    proto.graph.node.insert(0, node("Constant", [], ["k"], value=tensor))


def huge(proto):
    proto.graph.initializer[0].dims[:] = [10**6, 10**6]


def negative(proto):
    proto.graph.initializer[0].dims[:] = [-3, 2]


def loop(proto):
    body = helper.make_graph([node("Identity", ["c"], ["c2"])], "body", [], [])
    proto.graph.node.append(node("Loop", ["", ""], ["z"], body=body))


def if_in_known(proto):
    body = helper.make_graph([node("Identity", ["c"], ["c2"])], "body", [], [])
    proto.graph.node[0].attribute.append(helper.make_attribute("then_branch", body))


def function(proto):
    proto.functions.append(
        helper.make_function("own", "F", ["a"], ["b"], [node("Neg", ["a"], ["b"])],
                             [helper.make_opsetid("", 17)])
    )  # fmt: skip


def sparse(proto):
    proto.graph.sparse_initializer.add()


def allocating(proto):
    proto.graph.node.append(node("ConstantOfShape", ["w"], ["z"]))


OUTER = model(  # 8 million numbers a side, of which the product would have 64 million million
    [
        node("MatMul", ["a", "b"], ["ab"]),
        node("ReduceMax", ["ab"], ["m"], keepdims=1),
        node("Add", ["x", "m"], ["y"]),
    ],
    {"x": ["n", 3]},
    {"y": ["n", 3]},
    {"a": np.zeros((10**4, 1), np.float32), "b": np.zeros((1, 10**4), np.float32)},
)
FOREIGN = model(
    [node("FusedGemm", ["x"], ["y"], domain="com.microsoft")],
    {"x": ["n", 3]},
    {"y": ["n", 3]},
    domain="com.microsoft",
)
CUSTOM = model([node("Backdoor", ["x"], ["y"])], {"x": ["n", 3]}, {"y": ["n", 3]})


def shaped(x, y, kind="Identity"):
    return model([node(kind, ["x"], ["y"])], {"x": x}, {"y": y})


HOSTILE = {
    "external": (changed(outside), "tensor 'w' is in another file"),
    "external by name": (changed(only_named), "tensor 'w' is in another file"),
    "external in a node": (changed(outside_in_constant), "is in another file"),
    "huge tensor": (changed(huge), "larger than the file"),
    "negative": (changed(negative), "negative size"),
    "loop": (changed(loop), "operator Loop"),
    "branch": (changed(if_in_known), "a graph of its own"),
    "function": (changed(function), "functions of its own"),
    "sparse": (changed(sparse), "sparse"),
    "allocating": (changed(allocating), "operator ConstantOfShape"),
    "outer product": (OUTER, "more than 33,554,432 numbers"),
    "huge input": (shaped([1, 10**9], [1, 10**9]), "more than 33,554,432 numbers"),
    "other domain": (FOREIGN, "domain 'com.microsoft'"),
    "custom operator": (CUSTOM, "operator Backdoor"),
    "no rows": (shaped([3], [3]), "not rows"),
    "fixed rows": (shaped([7, 3], [7, 3]), "not rows"),
    "no size": (shaped(["n", "m"], ["n", "m"]), "not rows"),
    "images": (shaped(["n", 3, 8, 8], ["n", 3, 8, 8]), "not rows"),
    "two inputs": (
        model([node("Add", ["x", "z"], ["y"])], {"x": ["n", 2], "z": ["n", 2]}, {"y": ["n", 2]}),
        "2 inputs (x, z)",
    ),
    "empty": (b"", "no ONNX file"),
    "text": (b"not an onnx file at all", "not a readable ONNX file"),
    "cut": (doubling().SerializeToString()[:-20], "not a readable ONNX file"),
    "pickle": (b"\x80\x04\x95\x10\x00", "not a readable ONNX file"),
    "types": (
        helper.make_model(
            helper.make_graph(
                [node("Identity", ["x"], ["y"])], "g",
                [helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["n", 2])],
                [helper.make_tensor_value_info("y", TensorProto.DOUBLE, ["n", 2])],
            ), opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
        ), "not float32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_in_one_line(name, tmp_path):
    proto, message = HOSTILE[name]
    with pytest.raises(DataError) as caught:
        load_onnx(write(tmp_path / "p.onnx", proto))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert caught.value.exit_code == 65


def test_a_large_file_is_not_even_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr(untrusted, "MAX_BYTES", 100)
    with pytest.raises(DataError, match="larger than 100 bytes"):
        load_onnx(write(tmp_path / "p.onnx", doubling()))


def test_bytes_of_another_format_behind_a_good_header_are_not_read_as_such(tmp_path):
    """onnxruntime takes files with ORTM at the fifth byte for its own format, if not told."""
    proto = doubling()
    proto.producer_name = "ORTM"
    content = proto.SerializeToString()
    assert content[4:8] == b"ORTM"
    assert load_onnx(write(tmp_path / "p.onnx", content))(OBS).tolist() == WANTED


def test_damage_anywhere_is_a_policy_or_one_line(tmp_path, capfd):
    """Whatever bits flip: nothing crashes, and onnxruntime prints nothing of its own."""
    rng = np.random.default_rng(0)
    content = np.frombuffer(doubling().SerializeToString(), np.uint8)
    told = []
    for _ in range(300):
        mutant = content.copy()
        places = rng.integers(len(content), size=2)
        mutant[places] ^= rng.integers(1, 256, size=2, dtype=np.uint8)
        path = write(tmp_path / "p.onnx", mutant.tobytes())
        try:
            policy = load_onnx(path)
            policy(np.zeros(policy.observation_size))
        except DataError as error:
            told.append(str(error))
    assert 100 < len(told) < 300
    assert not any("\n" in line for line in told)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_the_packages_it_says_how_to_get_them(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, untrusted.__name__)
    with pytest.raises(MissingInputError, match=r"pip install 'mcat-rl\[onnx\]'"):
        load_onnx(write(tmp_path / "p.onnx", doubling()))


def test_actions_that_are_no_numbers_are_told(tmp_path):
    root = model([node("Sqrt", ["x"], ["y"])], {"x": ["n", 1]}, {"y": ["n", 1]})
    policy = load_onnx(write(tmp_path / "p.onnx", root))
    assert policy(np.array([4.0])).tolist() == [2]
    with pytest.raises(DataError, match="finite"):
        policy(np.array([-4.0]))


@pytest.mark.parametrize("value", ["[NaN, 1]", '"x"', "[1]", "{}", "[[1], [2]]", "[1e999, 1]"])
def test_notes_that_make_no_sense_are_no_bounds(value, tmp_path):
    proto = doubling()
    onnx.helper.set_model_props(proto, {"action_low": value, "action_high": "[1, 1]"})
    assert load_onnx(write(tmp_path / "p.onnx", proto)).bounds is None


def test_commands_find_it_by_its_file_and_refuse_what_does_not_fit(tmp_path):
    rng = np.random.default_rng(0)
    hopper = Task("hopper")
    fits = write(tmp_path / "fits.onnx", doubling(obs=11, act=2))
    with pytest.raises(UsageError, match="11 observations and 2 actions against 11 and 3"):
        find_policy(str(fits), hopper, rng)
    proto = shaped(["n", 11], ["n", 11])
    assert open_policy(write(tmp_path / "id.onnx", proto)).action_size == 11
    halved = model(
        [node("Gemm", ["x", "w"], ["y"])], {"x": ["n", 11]}, {"y": ["n", 3]},
        {"w": np.full((11, 3), 0.5, np.float32)},
    )  # fmt: skip
    write(tmp_path / "half.onnx", halved)
    policy = find_policy(str(tmp_path / "half.onnx"), hopper, rng)
    assert policy(np.ones((1, 11))).tolist() == [[5.5] * 3]
    helper.set_model_props(halved, {"action_low": "[-2, -2, -2]", "action_high": "[2, 2, 1]"})
    write(tmp_path / "wide.onnx", halved)
    with pytest.raises(UsageError, match=r"actions in \[-2, 2\], some of them less"):
        find_policy(str(tmp_path / "wide.onnx"), hopper, rng)
    with pytest.raises(MissingInputError, match="not there"):
        find_policy(str(tmp_path / "nope.onnx"), hopper, rng)
