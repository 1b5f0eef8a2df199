"""Features on disk and in memory: both orientations, every activation, and what is refused."""

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402

from tacit.hidden_states import Transcoder  # noqa: E402

SIZE, READ, WRITTEN = 7, 3, 5


def parts():
    rng = torch.Generator().manual_seed(0)
    shapes = {"encoder": (SIZE, READ), "encoder_bias": (SIZE,), "decoder": (SIZE, WRITTEN),
              "decoder_bias": (WRITTEN,)}  # fmt: skip
    return {name: torch.randn(shape, generator=rng) for name, shape in shapes.items()}


def inputs(count=6):
    return torch.randn(count, READ, generator=torch.Generator().manual_seed(1))


def test_activations_are_those_of_a_loop():
    held = parts()
    threshold = torch.linspace(0.0, 1.0, SIZE)
    coders = {
        "relu": Transcoder(**held),
        "jumprelu": Transcoder(**held, activation="jumprelu", threshold=threshold),
        "topk": Transcoder(**held, activation="topk", top_k=2),
    }
    for row in inputs():
        before = [
            max(0.0, float(held["encoder"][f] @ row + held["encoder_bias"][f])) for f in range(SIZE)
        ]
        least = sorted(before)[-2]
        expected = {
            "relu": before,
            "jumprelu": [a if a > t else 0.0 for a, t in zip(before, threshold, strict=True)],
            "topk": [a if a >= least else 0.0 for a in before],
        }
        for name, coder in coders.items():
            found = coder.encode(row[None])
            assert found[0].tolist() == pytest.approx(expected[name], abs=1e-5)
            written = sum(a * held["decoder"][f] for f, a in enumerate(expected[name]))
            assert torch.allclose(coder.decode(found)[0], written + held["decoder_bias"], atol=1e-4)


@pytest.mark.parametrize("more", [
    {}, {"activation": "topk", "top_k": 3},
    {"activation": "jumprelu", "threshold": torch.full((SIZE,), 0.25)},
])  # fmt: skip
def test_what_is_saved_is_loaded(tmp_path, more):
    coder = Transcoder(**parts(), **more, trained={"explained": 0.5})
    found = Transcoder.load(coder.save(tmp_path / "one.safetensors"))
    assert torch.equal(found.encode(inputs()), coder.encode(inputs()))
    assert torch.equal(found.decoder, coder.decoder)
    assert (found.activation, found.trained) == (coder.activation, {"explained": 0.5})


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("names", [
    ("W_enc", "b_enc", "W_dec", "b_dec"),
    ("encoder.weight", "encoder.bias", "decoder.weight", "decoder.bias"),
])  # fmt: skip
def test_files_from_elsewhere_stand_either_way(tmp_path, turned, names):
    held = parts()
    matrices = [held["encoder"], held["encoder_bias"], held["decoder"], held["decoder_bias"]]
    stored = [part.T.contiguous() if turned and part.ndim == 2 else part for part in matrices]
    path = tmp_path / "other.safetensors"
    save_file(dict(zip(names, stored, strict=True)), path)
    assert torch.equal(Transcoder.load(path).encode(inputs()), Transcoder(**held).encode(inputs()))
    assert torch.equal(Transcoder.load(path).decoder, held["decoder"])


def test_a_square_matrix_is_read_only_where_its_name_says_how_it_stands(tmp_path):
    square, bias = torch.arange(9.0).reshape(3, 3), torch.ones(3)
    save_file({"W_enc": torch.ones(3, 2), "b_enc": bias, "W_dec": square, "b_dec": bias + 1},
              tmp_path / "a.safetensors")  # fmt: skip
    with pytest.raises(ValueError, match="W_dec of a shape that tells"):
        Transcoder.load(tmp_path / "a.safetensors")
    save_file({"encoder.weight": square, "encoder.bias": bias, "decoder.weight": square + 1,
               "decoder.bias": bias + 1}, tmp_path / "b.safetensors")  # fmt: skip
    found = Transcoder.load(tmp_path / "b.safetensors")
    assert torch.equal(found.encoder, square)
    assert torch.equal(found.decoder, (square + 1).T)


def test_a_bias_taken_off_first_is_folded_in(tmp_path):
    held = {**parts(), "decoder": torch.randn(SIZE, READ), "decoder_bias": torch.randn(READ)}
    path = Transcoder(**held, reads="stream").save(tmp_path / "c.safetensors")
    found = Transcoder.load(path, centred=True)
    expected = Transcoder(**held).encode(inputs() - held["decoder_bias"])
    assert torch.allclose(found.encode(inputs()), expected, atol=1e-5)


@pytest.mark.parametrize(("change", "message"), [
    ({"encoder": torch.full((SIZE, READ), float("nan"))}, "encoder: expected finite"),
    ({"encoder": torch.full((SIZE, READ), 1e300, dtype=torch.float64)}, "encoder: expected finite"),
    ({"trained": [1]}, "trained: expected a dictionary"),
    ({"encoder_bias": torch.zeros(2)}, r"encoder_bias: expected shape \(7,\), got \(2,\)"),
    ({"decoder": torch.zeros(2, WRITTEN)}, "decoder: expected shape"),
    ({"decoder": torch.zeros(0, WRITTEN)}, "decoder: expected 2 dimensions"),
    ({"activation": "gelu"}, "activation: expected one of"),
    ({"activation": "jumprelu"}, "threshold: expected with"),
    ({"threshold": torch.zeros(SIZE)}, "threshold: expected with"),
    ({"activation": "topk", "top_k": 8}, "top_k: expected an integer <= 7"),
    ({"reads": "stream"}, "reads: expected 'mlp'"),
])  # fmt: skip
def test_bad_features_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Transcoder(**{**parts(), **change})


def test_bad_inputs_and_files_are_refused(tmp_path):
    coder = Transcoder(**parts())
    with pytest.raises(ValueError, match=r"inputs: expected shape \(n, 3\), got \(2, 4\)"):
        coder.encode(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="inputs: expected finite"):
        coder.encode(torch.full((1, 3), float("inf")))
    with pytest.raises(ValueError, match="activations: expected shape"):
        coder.decode(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="path: cannot read"):
        Transcoder.load(tmp_path / "missing.safetensors")
    (tmp_path / "pickle.safetensors").write_bytes(b"\x80\x04")
    with pytest.raises(ValueError, match="path: cannot read"):
        Transcoder.load(tmp_path / "pickle.safetensors")
    save_file({"W_enc": torch.zeros(3, 2)}, tmp_path / "part.safetensors")
    with pytest.raises(ValueError, match=r"path: expected a tensor b_enc or encoder\.bias"):
        Transcoder.load(tmp_path / "part.safetensors")
    for name in ("b_enc", "b_dec"):
        held = {"W_enc": torch.zeros(3, 2), "b_enc": torch.zeros(3), "W_dec": torch.zeros(3, 2),
                "b_dec": torch.zeros(2), name: torch.tensor(1.0)}  # fmt: skip
        save_file(held, tmp_path / "scalar.safetensors")
        with pytest.raises(ValueError, match=rf"path: expected {name} of 1 dimension.* shape \(\)"):
            Transcoder.load(tmp_path / "scalar.safetensors")
