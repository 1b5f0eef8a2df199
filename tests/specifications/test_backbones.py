"""Backbones of every family: what they read, and their gradients against one record at a time."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tacit.gradients.watched import width  # noqa: E402
from tacit.specifications import (  # noqa: E402
    Description,
    LabelCodes,
    ReplacedRecord,
    SharedFactors,
    load_backbone,
    specify,
)
from tacit.specifications.backbones.vision import pictures  # noqa: E402
from tacit.specifications.coordinates import GradientFrame, coordinates, full_factor  # noqa: E402

SIZES = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 24, "intermediate_size": 20,
}  # fmt: skip
WORDS = [f"w{number}" for number in range(36)]
TEXTS = ["w1 w2 w3", "w4 w5", "w6 w7 w8 w9 w10", "w11"]


def gpt2():
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24}
    return transformers.GPT2Model(
        transformers.GPT2Config(vocab_size=40, bos_token_id=0, eos_token_id=0, **sizes)
    )


TEXT = {
    "gpt2": gpt2,
    "llama": lambda: transformers.LlamaModel(transformers.LlamaConfig(**SIZES)),
    "bert": lambda: transformers.BertModel(transformers.BertConfig(**SIZES)),
}
VISION = {
    "vit": lambda: transformers.ViTModel(
        transformers.ViTConfig(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=20,
            image_size=16, patch_size=4,
        )
    ),
    "resnet": lambda: transformers.ResNetModel(
        transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1])
    ),
}  # fmt: skip


@pytest.fixture(params=[*TEXT, *VISION])
def folder(request, tmp_path):
    torch.manual_seed(0)
    made = (TEXT | VISION)[request.param]()
    made.save_pretrained(tmp_path / "model")
    if request.param in TEXT:
        words = {word: place for place, word in enumerate(["<pad>", "<unk>", *WORDS])}
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=word_level(words), pad_token="<pad>", unk_token="<unk>"
        )
        tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def word_level(words):
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def records(backbone):
    if backbone.modality == "text":
        return TEXTS
    return np.random.default_rng(0).integers(0, 256, size=(4, 12, 12, 3), dtype=np.uint8)


def test_gradients_are_those_of_one_record_at_a_time(folder):
    backbone = load_backbone(str(folder))
    data = records(backbone)
    directions = torch.randn(4, backbone.embedded(data).shape[1])
    frame = GradientFrame(backbone.layers, 3, "gaussian:0")
    found = coordinates(backbone, data, directions, frame)
    matrices = frame.matrices(backbone)
    modules = dict(backbone.module.named_modules())
    whole = dict.fromkeys(backbone.layers, 0.0)
    for row in range(4):
        one = [data[row]] if isinstance(data, list) else data[[row]]
        _, batch = next(iter(backbone.batches(one)))
        weights = [modules[name].weight.requires_grad_(True) for name in backbone.layers]
        loss = backbone.features(*batch)[0] @ directions[row]
        grads = torch.autograd.grad(loss, weights)
        expected = []
        for name, grad in zip(backbone.layers, grads, strict=True):
            weights_of = modules[name]
            flat = grad.flatten(1)
            held = (
                flat
                if flat.shape[0] == width(weights_of)[0] and (type(weights_of).__name__ != "Conv1D")
                else flat.T
            )
            whole[name] = whole[name] + held.numpy() / 4
            expected.append((held @ matrices[name].T).flatten())
            weights_of.weight.requires_grad_(False)
        expected = torch.cat(expected).numpy()
        np.testing.assert_allclose(found[row], expected, atol=1e-4 * np.abs(expected).max())
    full = full_factor(backbone, data, directions, backbone.layers)
    for name in backbone.layers:
        np.testing.assert_allclose(full[name], whole[name], atol=1e-4 * np.abs(whole[name]).max())


def test_a_folder_describes_and_is_named_by_its_weights(folder):
    backbone = load_backbone(str(folder))
    release = specify(
        [0, 1, 0, 1], records(backbone), ReplacedRecord(epsilon=1.0), LabelCodes(clip=0.1),
        about=Description(classes=2), backbone=str(folder), space=SharedFactors(rank=2),
    )  # fmt: skip
    specification = release.details.specification
    space = specification.space
    assert space.backbone == backbone.digest
    assert space.layers == backbone.layers
    assert space.size == specification.vector.size
    with torch.no_grad():
        next(backbone.module.parameters()).add_(0.01)
    assert load_backbone(backbone.module).digest != space.backbone


def test_padding_is_not_read():
    texts = ["words about something", "one"]
    backbone = load_backbone("tacit/small")
    together = backbone.embedded(texts)
    alone = torch.cat([backbone.embedded([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-4)


@pytest.mark.parametrize(
    "shape",
    [(3, 28, 28), (3, 1, 28, 28), (3, 3, 32, 32), (3, 32, 32, 3), (3, 48, 40), (3, 8, 8, 1)],
)
@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.int64])
def test_pictures_of_any_size_are_read_alike(shape, kind):
    values = np.random.default_rng(0).integers(0, 256, size=shape)
    given = (values / 255).astype(kind) if kind is np.float32 else values.astype(kind)
    found = load_backbone("tacit/vision").prepare(given)[0]
    assert found.shape == (3, 3, 32, 32)
    assert 0.0 <= found.min() < found.max() <= 1.0
    bytes_of = load_backbone("tacit/vision").prepare(values.astype(np.uint8))[0]
    np.testing.assert_allclose(found, bytes_of, atol=1e-6)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((3, 5, 28, 28)), "pictures"),
        (np.zeros((3, 28)), "pictures"),
        (np.full((3, 28, 28), 2.5), r"\[0, 1\]"),
        (np.full((3, 28, 28), np.nan), r"\[0, 1\]"),
        (np.zeros((0, 28, 28)), "pictures"),
        ([np.zeros((28, 28)), np.zeros((20, 20))], "one shape"),
        (["a", "b"], "pictures"),
    ],
)
def test_other_pictures_are_refused(data, message):
    with pytest.raises(ValueError, match=f"data: .*{message}"):
        load_backbone("tacit/vision").prepare(data)


@pytest.mark.parametrize("data", ["one text", [], ["a", 3], ["a", ""], None])
def test_other_texts_are_refused(data):
    with pytest.raises(ValueError, match="data: expected"):
        load_backbone("tacit/small").prepare(data)


@pytest.mark.parametrize("name", ["", "no/such-folder-here", 3, torch.nn.ReLU()])
def test_what_is_no_backbone_is_refused(name):
    with pytest.raises(ValueError, match=r"backbone: expected|name_or_path: "):
        load_backbone(name)


@pytest.mark.parametrize(
    ("shape", "size"),
    [((9, 7), "9 × 7"), ((1, 9, 7), "9 × 7"), ((3, 9, 7), "9 × 7"), ((9, 7, 3), "9 × 7")],
)
@pytest.mark.parametrize("kind", [np.asarray, torch.tensor, list])
def test_a_specification_says_how_large_its_pictures_were(shape, size, kind):
    data = kind(np.random.default_rng(0).uniform(size=(4, *shape)))
    made = specify(np.arange(4) % 2, data, None, about=Description(classes=2))
    assert made.details.specification.inputs == size


def test_a_small_picture_is_enlarged_by_its_shape_alone():
    rows = np.zeros((2, 8, 8))
    rows[0] = 1.0
    found = pictures(rows)
    # 20 of 32, in the middle, and no picture by what another shows
    assert found.shape == (2, 3, 32, 32)
    assert float(found[0, 0, 6:26, 6:26].min()) == 1.0
    assert float(found[0].sum()) == 3 * 20 * 20
    assert float(found[1].sum()) == 0.0
    torch.testing.assert_close(pictures(rows[:1])[0], found[0])
    # from half the side on nothing is enlarged
    assert float(pictures(np.ones((1, 16, 16))).sum()) == 3 * 16 * 16
    assert float(pictures(np.ones((1, 4, 8))).sum()) == 3 * 10 * 20


def test_digits_of_eight_pixels_are_like_digits_of_twenty_in_a_frame():
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    small, labels = digits.images / 16.0, digits.target
    large = torch.nn.functional.interpolate(torch.tensor(small)[:, None], (20, 20), mode="bicubic")
    framed = torch.nn.functional.pad(large, (4, 4, 4, 4)).clamp(0, 1)[:, 0].numpy()
    one, other = (
        specify(labels[part], rows[part], None, about=Description(classes=10, kind=kind))
        for rows, part, kind in ((framed, slice(900), "model"), (small, slice(900, None), "task"))
    )
    assert one.details.specification.cosine(other.details.specification) > 0.8
