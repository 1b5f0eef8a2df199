"""Tiny models of each family, records for them, and a fast way to train them."""

import torch

from tacit import Run
from tacit.adapters import (
    AdaptedLayers,
    AdapterFolder,
    DPLoRAFA,
    GivenNoise,
    PoissonSteps,
    TrainingRecords,
    audit_adapter,
    prepare_adapter,
)
from tacit.adapters.auditing import CanaryAudit
from tacit.releases import Table

SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
         "max_position_embeddings": 32, "intermediate_size": 48}  # fmt: skip
# With every record in every step the account is a closed form.
FAST = {"multiplier": 2.0, "delta": 1e-3, "steps": 2, "optimizer": "sgd", "rate": 0.1}


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32}
    marks = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, **sizes, **marks))


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES))


def masked_bert():
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    return BertForMaskedLM(BertConfig(**SIZES))


def classifying_bert():
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(**SIZES, num_labels=3))


def network(width=6, classes=3):
    torch.manual_seed(0)
    first, last = torch.nn.Linear(width, 8), torch.nn.Linear(8, classes)
    return torch.nn.Sequential(first, torch.nn.Tanh(), last)


def supervised(count=12, width=6, classes=3):
    source = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, width, generator=source)
    return inputs, torch.randint(classes, (count,), generator=source)


def tokens(count=8, length=10):
    source = torch.Generator().manual_seed(2)
    ids = torch.randint(64, (count, length), generator=source)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def data_for(model):
    name = type(model).__name__
    rows = tokens()
    if name.endswith("SequenceClassification"):
        return {**rows, "labels": torch.arange(8) % 3}
    if name.endswith("MaskedLM"):
        labels = rows["input_ids"].clone()
        labels[:, ::2] = -100
        return {**rows, "labels": labels}
    return rows


LOW_RANK = DPLoRAFA(rank=2)


def asked(model, data, given):
    """Flat settings as the arguments of a fine-tuning run, and its named ones."""

    def some(*names):
        return {name: given.pop(name) for name in names if name in given}

    promise = None
    if "multiplier" in given:
        promise = GivenNoise(**some("multiplier", "delta", "adjacency"))
    elif "epsilon" in given:
        promise = Table(**some("epsilon", "delta", "adjacency"))
    run = Run(progress=False, **some("steps", "precision", "checkpoint"))
    records = TrainingRecords(data=data, **some("held_out", "task", "loss"))
    layers = AdaptedLayers(model=model, **some("targets", "projections"))
    sampling = some("batch", "sampling_rate", "micro_batch", "optimizer", "rate", "momentum")
    named = {"steps": PoissonSteps(**sampling), **some("rng")}
    if "save" in given:
        named["save"] = AdapterFolder(path=given.pop("save"), **some("unprotected"))
    return layers, records, promise, run, named


def prepared(model, data, method=LOW_RANK, **given):
    """A prepared run from flat settings."""
    layers, records, promise, run, named = asked(model, data, given)
    assert not given, given
    return prepare_adapter(layers, records, method, promise, run, **named)


def trained(model, data, method=LOW_RANK, *, ledger=None, secret=None, **given):
    """The release of a run from flat settings."""
    return prepared(model, data, method, **given).draw(ledger=ledger, secret=secret)


def audited(model, data, method=LOW_RANK, **given):
    """The release of an audited run from flat settings."""
    audit = {name: given.pop(name) for name in ("canaries", "keep") if name in given}
    layers, records, promise, run, named = asked(model, data, given)
    assert not given, given
    return audit_adapter(layers, records, method, promise, run, audit=CanaryAudit(**audit), **named)


def released():
    """The release of a small adapter."""
    return trained(network(), supervised(), held_out=supervised(4), **FAST)


FAMILIES = {"gpt2": (gpt2, ["c_attn"]), "llama": (llama, ["q_proj", "down_proj"]),
            "bert": (masked_bert, ["query", "value"]),
            "classifier": (classifying_bert, ["query", "classifier"])}  # fmt: skip
