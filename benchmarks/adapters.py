"""Clipped per-example gradients of low-rank adapters against their peers, in one run.

    python -m benchmarks.adapters [--lengths 64,256,1024] [--batch 8] [--rounds 5] [--json FILE]

A GPT-2-like model with `peft` adapters on every linear layer, A frozen; a step is a forward pass, a
backward pass and the clipped sum of the batch's gradients, by the hooks of `tacit adapter fit` and
without noise. A whole step of a loop of one's own is what `benchmarks.own_loop` measures. The peers
are a plain step, which sums without clipping, and Opacus' GradSampleModule and ghost clipping.
Their rounds alternate, and a ratio is that of medians of CPU time. Memory is the peak of a process
of its own above its size before the first step (Linux). Every peer's clipped sum is compared with
ours.

Under checkpoints that are not reentrant a layer's forward hook fires twice: Opacus then counts two
uses, keeps ``grad_sample = None`` without a word, and ghost clipping refuses the layer as tied.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import importlib.util
import json
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

from tacit.gradients import DPLoRAFA, LinearHooks

CLIP = 0.5
VOCABULARY = 512
CHECKPOINTS = {"none": None, "reentrant": True, "not reentrant": False}
Step = Callable[[], dict[str, Tensor] | None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", default="64,256,1024")
    parser.add_argument("--checkpoints", default=",".join(CHECKPOINTS))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    console = Console(width=110)
    kinds = dict(KINDS)
    if importlib.util.find_spec("opacus") is None:
        console.print("Opacus is left out: pip install 'tacit-privacy[opacus]'")
        kinds = {"plain": plain, "tacit": tacit}
    else:
        # once, and not in every child
        importlib.import_module("opacus")
    console.print(f"B = {options.batch}, rank {options.rank}", highlight=False)
    settings = [
        (int(length), checkpoint)
        for length in options.lengths.split(",")
        for checkpoint in options.checkpoints.split(",")
    ]
    # before anything has run here, for a child starts with what its parent has in memory
    memory = [
        {kind: peak_of(options, kinds[kind], length, checkpoint) for kind in kinds}
        for length, checkpoint in settings
    ]
    rows = []
    for (length, checkpoint), peaks in zip(settings, memory, strict=True):
        row = compare(options, kinds, length, checkpoint)
        rows.append(row | {"megabytes": peaks})
        console.print(table(rows[-1]), highlight=False)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def build(
    options: argparse.Namespace, length: int, checkpoint: str
) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    """The adapted model, and what gives its losses on a batch."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=length, n_embd=options.width, n_layer=options.layers,
        n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    lora = LoraConfig(
        r=options.rank, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True
    )
    model = get_peft_model(GPT2LMHeadModel(config), lora)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_B" in name)
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.02)
    if CHECKPOINTS[checkpoint] is not None:
        model.enable_input_require_grads()
        inner = model.base_model.model
        inner.gradient_checkpointing_enable({"use_reentrant": CHECKPOINTS[checkpoint]})
    model.train()
    tokens = torch.randint(0, VOCABULARY, (options.batch, length))

    def losses(running: nn.Module) -> Tensor:
        logits = running(input_ids=tokens).logits[:, :-1]
        each = functional.cross_entropy(logits.mT, tokens[:, 1:], reduction="none")
        return each.mean(dim=1)

    return model, losses


def plain(model: nn.Module, losses: Callable[[nn.Module], Tensor]) -> Step:
    def step() -> None:
        model.zero_grad()
        losses(model).sum().backward()

    return step


def tacit(model: nn.Module, losses: Callable[[nn.Module], Tensor]) -> Step:
    layers = {
        name: module for name, module in model.named_modules() if name.endswith("lora_B.default")
    }
    hooks = LinearHooks(layers, model=model)
    method = DPLoRAFA(rank=1, clip=CLIP)

    def step() -> dict[str, Tensor]:
        with hooks:
            hooks.backward(losses(model))
        return hooks.sums(method.factors(hooks.squared_norms))

    return step


def grad_sample(model: nn.Module, losses: Callable[[nn.Module], Tensor]) -> Step:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    wrapped = GradSampleModule(model, loss_reduction="sum", strict=False)
    optimizer = DPOptimizer(
        torch.optim.SGD(trained(model).values(), lr=0.1), noise_multiplier=0.0, max_grad_norm=CLIP,
        expected_batch_size=None, loss_reduction="sum",
    )  # fmt: skip

    def step() -> dict[str, Tensor]:
        optimizer.zero_grad()
        losses(wrapped).sum().backward()
        if any(one.grad_sample is None for one in trained(model).values()):
            raise RuntimeError("leaves grad_sample = None, without a word")
        optimizer.clip_and_accumulate()
        return {name: one.summed_grad for name, one in trained(model).items()}

    return step


def ghost(model: nn.Module, losses: Callable[[nn.Module], Tensor]) -> Step:
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

    wrapped = GradSampleModuleFastGradientClipping(
        model, loss_reduction="sum", strict=False, max_grad_norm=CLIP
    )
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(trained(model).values(), lr=0.1), noise_multiplier=0.0, max_grad_norm=CLIP,
        expected_batch_size=None, loss_reduction="sum",
    )  # fmt: skip

    def step() -> dict[str, Tensor]:
        optimizer.zero_grad()
        DPTensorFastGradientClipping(wrapped, optimizer, losses(wrapped), "sum").backward()
        return {name: one.grad for name, one in trained(model).items()}

    return step


KINDS = {"plain": plain, "tacit": tacit, "GradSampleModule": grad_sample, "ghost clipping": ghost}


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: one for name, one in model.named_parameters() if one.requires_grad}


def attempt(step: Step) -> tuple[dict[str, Tensor] | None, str | None]:
    """A first step, and why a peer cannot take it."""
    try:
        return step(), None
    except (RuntimeError, NotImplementedError, ValueError, AttributeError) as error:
        return None, str(error).partition("\n")[0]


def compare(
    options: argparse.Namespace, kinds: dict[str, Callable[..., Step]], length: int, checkpoint: str
) -> dict[str, object]:
    """Time every kind of step, alternating, after a first one that compares their sums."""
    model, losses = build(options, length, checkpoint)
    steps: dict[str, Step] = {}
    refusals: dict[str, str] = {}
    sums: dict[str, Tensor] = {}
    for kind, make in kinds.items():
        step = make(copy.deepcopy(model), losses)
        found, refusal = attempt(step)
        if refusal is not None:
            refusals[kind] = refusal
            continue
        steps[kind] = step
        if found is not None:
            sums[kind] = torch.cat([one.flatten() for one in found.values()])
    times: dict[str, list[float]] = {kind: [] for kind in steps}
    for _ in range(options.rounds):
        for kind, step in steps.items():
            start = time.process_time()
            step()
            times[kind].append(time.process_time() - start)
    ours = sums["tacit"]
    return {
        "length": length, "checkpoints": checkpoint, "refusals": refusals, "times": times,
        "seconds": {kind: statistics.median(found) for kind, found in times.items()},
        "differences": {
            kind: float((found - ours).norm() / ours.norm()) for kind, found in sums.items()
        },
    }  # fmt: skip


def peak_of(
    options: argparse.Namespace, make: Callable[..., Step], length: int, checkpoint: str
) -> float | None:
    """Peak memory of two steps of one kind, in MB above what the process had before them."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=peak, args=(sender, options, make, length, checkpoint))
    child.start()
    sender.close()
    found: float | None = receiver.recv()
    child.join()
    return found


def peak(sender, options, make, length, checkpoint) -> None:
    model, losses = build(options, length, checkpoint)
    step = make(model, losses)
    before = status("VmRSS")
    # the peak so far is forgotten
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    refused = attempt(step)[1] or attempt(step)[1]
    sender.send(None if refused else status("VmHWM") - before)


def status(field: str) -> float:
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    return float(text.partition(f"{field}:")[2].split()[0]) * 1.024e-3


def table(row: dict) -> str:
    """A setting's kinds, each beside ours."""
    seconds, memory = row["seconds"], row["megabytes"]
    lines = [f"\nT = {row['length']}, checkpoints: {row['checkpoints']}"]
    for kind in memory:
        if kind in row["refusals"]:
            lines.append(f"{kind:18} no gradients: {row['refusals'][kind]}")
            continue
        beside = "" if kind == "tacit" else f"tacit {seconds['tacit'] / seconds[kind]:5.2f} ×"
        extra = "" if memory[kind] is None else f"{memory[kind]:8.0f} MB"
        if extra and kind != "tacit" and memory["tacit"] is not None:
            extra += f"  tacit {memory['tacit'] / memory[kind]:5.2f} ×"
        same = (
            f"sums differ by {row['differences'][kind]:.0e}" if kind in row["differences"] else ""
        )
        lines.append(f"{kind:18}{seconds[kind]:8.3f} s  {beside:14}{extra:28}{same}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
