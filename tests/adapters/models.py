"""Tiny models of each family, records for them, and a fast way to train them."""

import torch

from tacit.adapters import DPLoRAFA

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
FAMILIES = {"gpt2": (gpt2, ["c_attn"]), "llama": (llama, ["q_proj", "down_proj"]),
            "bert": (masked_bert, ["query", "value"]),
            "classifier": (classifying_bert, ["query", "classifier"])}  # fmt: skip
