"""Families of transformers with dropout on: an example has the gradient of its own masks."""

import pytest
import torch
from torch.nn import functional

from tacit.gradients.model import ModelGradients

SMALL = {
    "vocab_size": 60, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "max_position_embeddings": 32,
}  # fmt: skip
PICTURES = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": 16, "patch_size": 8,
}  # fmt: skip
CODED = {
    "vocab_size": 60, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
}  # fmt: skip
HEARD = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3),
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 8,
}  # fmt: skip
# What each reads, for four examples.
WORDS = {"input_ids": (6,)}
BOTH = {"input_ids": (6,), "decoder_input_ids": (5,)}
SEEN = {"pixel_values": (3, 16, 16)}
# Each by its class, its configuration and what it reads; all but a few at length only.
FAMILIES = {
    "Bart": ("BartForConditionalGeneration", {**CODED, "encoder_layerdrop": 0.3}, BOTH),
    "T5": ("T5ForConditionalGeneration", {"vocab_size": 60, "d_model": 16, "d_kv": 8, "d_ff": 32,
           "num_layers": 2, "num_heads": 2}, BOTH),
    "Whisper": ("WhisperForConditionalGeneration",
                {**CODED, "num_mel_bins": 8, "max_source_positions": 10, "dropout": 0.1,
                 "max_target_positions": 12, "pad_token_id": 0, "decoder_start_token_id": 1},
                {"input_features": (8, 20), "decoder_input_ids": (5,)}),
    "Wav2Vec2": ("Wav2Vec2ForSequenceClassification", {**HEARD, "apply_spec_augment": False},
                 {"input_values": (400,)}),
    "CLIPText": ("CLIPTextModelWithProjection", {**SMALL, "projection_dim": 8, "eos_token_id": 1,
                 "attention_dropout": 0.2}, WORDS),
    "CLIPVision": ("CLIPVisionModelWithProjection", {**PICTURES, "projection_dim": 8,
                   "attention_dropout": 0.2}, SEEN),
    "ViTMAE": ("ViTMAEForPreTraining", {**PICTURES, "decoder_hidden_size": 16,
               "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2,
               "decoder_intermediate_size": 32}, SEEN),
    "Segformer": ("SegformerForImageClassification", {"num_encoder_blocks": 2, "depths": [1, 1],
                  "sr_ratios": [2, 1], "hidden_sizes": [8, 16], "patch_sizes": [3, 3],
                  "strides": [2, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
                  "drop_path_rate": 0.3}, SEEN),
    "Beit": ("BeitForImageClassification", {**PICTURES, "drop_path_rate": 0.3,
             "layer_scale_init_value": 0.1, "use_relative_position_bias": True}, SEEN),
    "Detr": ("DetrForObjectDetection", {**CODED, "encoder_layers": 1, "decoder_layers": 1,
             "num_queries": 4, "use_timm_backbone": False}, {"pixel_values": (3, 32, 32)}),
    "XLNet": ("XLNetForSequenceClassification", {"vocab_size": 60, "d_model": 16, "n_layer": 2,
              "n_head": 2, "d_inner": 32}, WORDS),
    "Electra": ("ElectraForSequenceClassification", {**SMALL, "embedding_size": 8}, WORDS),
    "Bloom": ("BloomForCausalLM", {"vocab_size": 60, "hidden_size": 16, "n_layer": 2,
              "n_head": 2, "hidden_dropout": 0.2}, WORDS),
    "Dinov2": ("Dinov2ForImageClassification", {**PICTURES, "drop_path_rate": 0.3,
               "mlp_ratio": 2}, SEEN),
    "Longformer": ("LongformerForSequenceClassification",
                   {**SMALL, "attention_window": 4, "pad_token_id": 1}, WORDS),
}  # fmt: skip
ALWAYS = ("Beit",)


def made(family, **changed):
    """A random model of a family in training, and what it reads."""
    transformers = pytest.importorskip("transformers")
    name, settings, read = FAMILIES[family]
    if family == "Detr":
        shown = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
        shown |= {"layer_type": "basic", "out_features": ["stage2"]}
        settings = {**settings, "backbone_config": transformers.ResNetConfig(**shown)}
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{**settings, **changed})
    rows = {
        key: torch.randint(3, 60, (4, *shape)) if "ids" in key else torch.randn(4, *shape)
        for key, shape in read.items()
    }
    return getattr(transformers, name)(config).train(), rows


def losses_of(model, rows):
    """A loss of every output's numbers, the same draws each time."""
    torch.manual_seed(7)
    outputs = model(**rows)
    held = next(one for one in outputs.values() if one.ndim > 1 and len(one) == 4)
    return functional.log_softmax(held.flatten(1), dim=1)[:, 1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "family", [one if one in ALWAYS else pytest.param(one, marks=pytest.mark.thorough)
               for one in FAMILIES]
)  # fmt: skip
def test_examples_have_the_gradients_of_their_own_masks(family):
    model, rows = made(family)
    parameters = {name: one for name, one in model.named_parameters() if one.requires_grad}
    gradients = ModelGradients(model, parameters)
    gradients.attach()
    losses_of(model, rows)
    gradients.backward(losses_of(model, rows))
    with gradients.paused():
        losses = losses_of(model, rows)
        states = torch.get_rng_state()
        for index in (0, 3):
            plain = torch.autograd.grad(
                losses[index], list(parameters.values()), retain_graph=True, allow_unused=True
            )
            length = torch.stack([one.norm() for one in plain if one is not None]).norm()
            picked = torch.eye(4, dtype=torch.float64)[index]
            for (name, one), true in zip(parameters.items(), plain, strict=True):
                true = torch.zeros_like(one) if true is None else true
                held = gradients.found.get(name)
                mine = torch.zeros_like(one) if held is None else held.sums(picked)
                assert float((mine - true).norm()) <= 1e-5 * float(length), name
    # what it drew
    torch.manual_seed(7)
    assert family == "Longformer" or not torch.equal(states, torch.get_rng_state())
    gradients.detach()


def test_masks_that_numpy_draws_are_refused_by_name():
    """Wav2vec 2.0 masks spans of its features where a module is run again: SpecAugment."""
    model, rows = made("Wav2Vec2", apply_spec_augment=True, mask_time_prob=0.5, mask_time_length=2)
    gradients = ModelGradients(model, dict(model.named_parameters()))
    gradients.attach()
    losses = losses_of(model, rows)
    with pytest.raises(ValueError, match=r"draws of NumPy or Python in wav2vec2, .*spec_embed"):
        gradients.backward(losses)
    gradients.detach()
