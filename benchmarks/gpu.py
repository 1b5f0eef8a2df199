"""What a private step takes on a GPU, beside a plain one and Opacus', in one run.

A Llama shape of a billion random parameters with adapters of rank 16, 256 records of 512 tokens a
step in bfloat16, and GPT-2's shape trained whole: tokens a second and the largest memory of each.
``--write`` keeps them in benchmarks/results/gpu.json with the machine. Without CUDA one sentence
says so, and nothing is measured; ``--tiny --device cpu`` tries the program itself.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tacit.gradients import DPSGD, GivenNoise
from tacit.training import LoopSettings, make_private

KEPT = Path(__file__).parent / "results" / "gpu.json"
VOCABULARY, TINY = 32_000, {"hidden": 32, "layers": 2, "records": 6, "length": 8, "micro": 3}
SHAPES = {
    # 1.1 · 10⁹ parameters
    "llama-1b-lora": {"hidden": 2048, "layers": 22, "records": 256, "length": 512, "micro": 16},
    # 124 · 10⁶ parameters
    "gpt2-full": {"hidden": 768, "layers": 12, "records": 256, "length": 512, "micro": 16},
}
# The first step of each is not counted.
STEPS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", default=",".join(SHAPES))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("No GPU: PyTorch finds no CUDA device here, and nothing was measured.")
        return
    warnings.filterwarnings("ignore")
    device, found = torch.device(options.device), {}
    for name in options.models.split(","):
        shape = TINY if options.tiny else SHAPES[name]
        for kind in options.kinds.split(","):
            found[f"{name}, {kind}"] = told = measured(name, kind, shape, device)
            print(f"{name:15} {kind:14} {told}")
    if options.write:
        KEPT.parent.mkdir(exist_ok=True)
        where = torch.cuda.get_device_name() if device.type == "cuda" else "a processor"
        kept = {"where": where, "torch": torch.__version__, "figures": found}
        KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def measured(name: str, kind: str, shape: dict[str, int], device: torch.device) -> dict[str, Any]:
    """Return tokens a second and GB at most of one kind of step; why there is none, where so."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        step, seconds = KINDS[kind](name, shape, device), []
        for _ in range(STEPS + 1):
            _wait(device)
            began = time.perf_counter()
            step()
            _wait(device)
            seconds.append(time.perf_counter() - began)
    except (RuntimeError, ValueError, NotImplementedError, ImportError) as error:
        return {"left out": f"{type(error).__name__}: {error}"[:200]}
    tokens = shape["records"] * shape["length"] / min(seconds[1:])
    most = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else None
    return {"tokens a second": round(tokens), "GB at most": most, "seconds": min(seconds[1:])}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def made(name: str, shape: dict[str, int], device: torch.device) -> tuple[nn.Module, Any, Tensor]:
    """Return a model with random weights, its optimizer, and tokens of one step."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    hidden, layers, heads = shape["hidden"], shape["layers"], max(shape["hidden"] // 64, 1)
    common = {"vocab_size": VOCABULARY, "attn_implementation": "sdpa"}
    with torch.device(device):
        if name == "llama-1b-lora":
            from peft import LoraConfig, get_peft_model

            model: Any = LlamaForCausalLM(
                LlamaConfig(
                    hidden_size=hidden, intermediate_size=11 * hidden // 4,
                    num_hidden_layers=layers, num_attention_heads=heads, **common,
                )
            ).to(torch.bfloat16)  # fmt: skip
            model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"]))
            # factors move in float32, as a step of bfloat16 would round them away
            for one in model.parameters():
                one.data = one.data.float() if one.requires_grad else one.data
        else:
            model = GPT2LMHeadModel(
                GPT2Config(
                    n_embd=hidden, n_layer=layers, n_head=heads, n_positions=shape["length"],
                    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **common,
                )
            )  # fmt: skip
    free = [one for one in model.parameters() if one.requires_grad]
    tokens = torch.randint(VOCABULARY, (shape["records"], shape["length"] + 1), device=device)
    return model, torch.optim.AdamW(free, lr=1e-4), tokens


def losses_of(model: Any, tokens: Tensor) -> Tensor:
    """Return the mean loss of every record, its passes in bfloat16."""
    # a row of places for each record, as hooks of Opacus' need them
    places = torch.arange(tokens.shape[1] - 1, device=tokens.device).expand(len(tokens), -1)
    with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
        logits = model(input_ids=tokens[:, :-1], position_ids=places, use_cache=False).logits
    flat = functional.cross_entropy(
        logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
    )
    return flat.view(len(tokens), -1).mean(1)


def plain(name: str, shape: dict[str, int], device: torch.device) -> Callable[[], None]:
    """A step without privacy, of as many records at a time."""
    model, optimizer, tokens = made(name, shape, device)

    def step() -> None:
        optimizer.zero_grad()
        for part in tokens.split(shape["micro"]):
            (losses_of(model, part).sum() / len(tokens)).backward()
        optimizer.step()

    return step


def ours(name: str, shape: dict[str, int], device: torch.device) -> Callable[[], None]:
    """The same step, private: all records are drawn in each."""
    model, optimizer, tokens = made(name, shape, device)
    loader = DataLoader(TensorDataset(tokens), batch_size=len(tokens))
    private = make_private(
        model, optimizer, loader, DPSGD(), GivenNoise(multiplier=1.0, delta=1e-5),
        epochs=STEPS + 1, settings=LoopSettings(micro_batch=shape["micro"]),
    )  # fmt: skip

    def step() -> None:
        for (part,) in private.loader:
            private.backward(losses_of(model, part))
            optimizer.step()

    return step


def opacus(name: str, shape: dict[str, int], device: torch.device) -> Callable[[], None]:
    """A step of Opacus' hooks, of as many records at a time."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model, optimizer, tokens = made(name, shape, device)
    model.train()
    watched: Any = GradSampleModule(model, strict=False)
    private: Any = DPOptimizer(
        optimizer, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=len(tokens)
    )

    def step() -> None:
        parts = tokens.split(shape["micro"])
        for place, part in enumerate(parts):
            private.signal_skip_step(do_skip=place + 1 < len(parts))
            losses_of(watched, part).mean().backward()
            private.step()
            private.zero_grad()

    return step


KINDS = {"plain": plain, "ours": ours, "Opacus": opacus}

if __name__ == "__main__":
    main()
