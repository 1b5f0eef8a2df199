"""Train tacit/small again: a fixed number of steps on the docstrings of this installation."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tacit import Run
from tacit.models import docstring_corpus, train
from tacit.models.small.optimisation import perplexity
from tacit.models.small.storage import save_half
from tacit.models.small.training import HELD_OUT_TOKENS
from tacit.models.texts.corpus import hold_out

STEPS = 2200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/small"), help="new folder")
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    text = docstring_corpus()
    model = train(text, Run(steps=arguments.steps, precision="float32"))
    store(model, text, arguments.out)


def store(model, text: str, out: Path) -> None:
    """Write the model in half precision, with the perplexity that it has then."""
    weights = {name: part.clone() for name, part in model.network.state_dict().items()}
    model.network.load_state_dict({name: part.bfloat16().float() for name, part in weights.items()})
    unseen = model.stream(hold_out(text)[1])[:HELD_OUT_TOKENS]
    score = perplexity(model.network, unseen, model.context)
    recipe = {**model.recipe, "held_out_perplexity": score, "stored": "bfloat16"}
    save_half(out, model.network, model.tokenizer, recipe)
    print(json.dumps(recipe, indent=2))


if __name__ == "__main__":
    main()
