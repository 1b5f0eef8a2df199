"""Loading a language model by name, from a folder or as a module, and checking it by numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from tacit._ground.checks import choice, did_you_mean
from tacit.models.language import LanguageModel
from tacit.models.verification import verify

SMALL = "tacit/small"
STORED = Path(__file__).parent / "small" / "stored"
CONFIGURATION = "config.json"
SECONDS_TO_ANSWER = 10.0
DTYPES = ("float32", "bfloat16", "stored")
# Errors whose words are a sentence.
SAID = (OSError, ValueError, RuntimeError, SafetensorError)


def load(
    name_or_path: Any,
    *,
    device: str = "cpu",
    tokenizer: Any = None,
    dtype: str = "float32",
) -> LanguageModel:
    """Load a causal language model of any family whose parts agree with a plain forward pass.

    Its decoder blocks and head are found by watching it run, not by its name. States at every
    layer, logits, and logits continued from a replaced state, padded prompts included, are then
    compared with plain forward passes of the model itself, on random tokens, to within 10⁻⁴ of the
    largest entry in float32 and 4% in bfloat16.

    Args:
        name_or_path: ``"tacit/small"``, which comes with this package; a Hugging Face name; a
            folder with such a model, one that ``train`` wrote included; or a ``transformers``
            model.
        device: where it computes.
        tokenizer: the tokenizer of a ``transformers`` model.
        dtype: what its parameters are held in: ``"float32"``, ``"bfloat16"``, or ``"stored"``, as
            the checkpoint or the model given has them. Serve and audit in the same.

    Returns:
        The model, frozen.

    Raises:
        ValueError: no such model, or one that does not agree with its own forward pass.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
        >>> load(LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=50, num_attention_heads=2)))
        LanguageModel('LlamaForCausalLM', layers=2, width=16, vocabulary=50, context=2048)
    """
    place = check_device(device)
    held = choice("dtype", dtype, DTYPES)
    if isinstance(name_or_path, str) and name_or_path == SMALL:
        return _pretrained(os.fspath(STORED), place, held, SMALL)
    if isinstance(name_or_path, torch.nn.Module):
        network = name_or_path.to(place)
        if held != "stored":
            _cast(network, getattr(torch, held))
        return _verified(LanguageModel(network, tokenizer))
    if not isinstance(name_or_path, (str, os.PathLike)) or not os.fspath(name_or_path):
        raise ValueError(
            f"name_or_path: expected a name, a folder or a transformers model, got {name_or_path!r}"
        )
    path = os.fspath(name_or_path)
    return _pretrained(path, place, held, path)


def check_device(device: Any) -> torch.device:
    """Return the device when PyTorch has it here."""
    try:
        place = torch.device(device)
        # one that computes: a tensor on "meta" has no numbers
        torch.zeros(1, device=place).tolist()
    except (RuntimeError, TypeError, AssertionError):
        raise ValueError(f"device: expected one that PyTorch has here, got {device!r}") from None
    return place


def _cast(network: torch.nn.Module, dtype: torch.dtype) -> None:
    """Hold the parameters in ``dtype``; rotary frequencies and masks keep their own."""
    for parameter in network.parameters():
        parameter.data = parameter.data.to(dtype)


def _verified(model: LanguageModel) -> LanguageModel:
    verify(model)
    return model


def _pretrained(folder: str, device: torch.device, dtype: str, name: str) -> LanguageModel:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import tacit.models.split_memory.network  # noqa: F401  (registers its architecture)
    from tacit.models.small.storage import quiet, read_recipe

    held = "auto" if dtype == "stored" else getattr(torch, dtype)
    here = is_here(folder)
    with quiet(), loading(folder):
        network = with_weights(AutoModelForCausalLM, folder, dtype=held, local_files_only=here)
        tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=here, trust_remote_code=False
        )
    recipe = read_recipe(folder)
    return _verified(LanguageModel(network.to(device), tokenizer, name=name, recipe=recipe))


def with_weights(made: Any, folder: str, *, unread: tuple[str, ...] = (), **settings: Any) -> Any:
    """Return a pretrained network none of whose weights its checkpoint lacks.

    Args:
        made: a class of ``transformers``.
        folder: or a name.
        unread: how names of weights begin that nothing is computed from.
        settings: of ``from_pretrained``.

    Raises:
        ValueError: weights are missing, which ``transformers`` would draw at random.
    """
    network, told = made.from_pretrained(
        folder, output_loading_info=True, trust_remote_code=False, **settings
    )
    missing = set(told["missing_keys"])
    lacking = sorted(name for name in missing if not name.startswith(unread))
    if lacking:
        raise ValueError(
            f"its checkpoint lacks {len(lacking)} of the weights of a {type(network).__name__}, "
            f"such as {lacking[0]}"
        )
    # what is not read is alike in every load, for networks are known by a digest of all weights
    for name, weight in network.named_parameters():
        if name in missing:
            weight.data.zero_()
    return network


def is_here(name: str) -> bool:
    """Return whether a folder or the cache holds the files of a name; else the hub has to know it.

    The hub is asked once, for ``transformers`` asks for half a minute where nothing answers.

    Raises:
        ValueError: it is no folder, not in the cache, and the hub does not know it or answer.
    """
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    if Path(name).is_dir():
        return True
    try:
        if isinstance(try_to_load_from_cache(name, CONFIGURATION), str):
            return True
        HfApi().model_info(name, timeout=SECONDS_TO_ANSWER)
    except HFValidationError:
        why = "it can be no name there"
    except Exception as error:
        why = f"{type(error).__name__} on asking"
    else:
        return False
    raise ValueError(
        f"name_or_path: cannot load {name!r}: there is no such folder, the cache does not hold it "
        f"and Hugging Face does not give it ({why}){did_you_mean(name, [SMALL])}"
    )


@contextmanager
def loading(name: str) -> Iterator[None]:
    """Turn what goes wrong with files, names and the network into one sentence."""
    try:
        yield
    except (ImportError, MemoryError):
        # what is missing here is no fault of the files
        raise
    except Exception as error:
        # a library that reads settings of the wrong type raises whatever it runs into
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if not isinstance(error, SAID):
            reason = f"{type(error).__name__}: {reason}"
        raise ValueError(f"name_or_path: cannot load {name!r}: {reason}") from None
