"""The page: the residual-PAC tables, the hidden-state experiments, training."""

from __future__ import annotations

from tacit_lab.studies.adapters import curves_page, game_page, heads_page, language_page
from tacit_lab.studies.architectures import regularisers_page, split_page
from tacit_lab.studies.features import features_page
from tacit_lab.studies.hidden import (
    defences_page,
    inversion_page,
    layers_page,
    middle_page,
    sequences_page,
)
from tacit_lab.studies.loops import page as loops_page
from tacit_lab.studies.pac import page as pac_page
from tacit_lab.studies.places import PAGE
from tacit_lab.studies.poisoning import page as poisoning_page
from tacit_lab.studies.quotient import quotient_page
from tacit_lab.studies.specifications import objectives_page, specifications_page
from tacit_lab.studies.training import accuracy_page

OPENING = """# Reproductions

`make experiments NAME=pac-mnist` (or `pac-cifar10`, `pac-agnews`, `pac-means`, `empty-middle`,
`hidden-layers`, `inversion`, `quotient`, `features`, `split-memory`, `regularisers`,
`indistinguishable-cifar10`, `private-loops`, `poisoning`, `low-rank-curves`,
`adapters-canary-game`, `adapters-frozen-features`, `adapters-language`,
`specifications-identification`, `specifications-objectives`) runs one of these and writes
`experiments/results/NAME.json`, most of them a figure too; `make experiments NAME=reproductions`
renders this page from what is there. `memorisation`, `hidden-attackers`, `pave_risk`,
`statistics-by-pairs` and `store-theft` write into pages of their own. No number on it is typed by
hand. `--fast` is a smoke test and publishes nothing.

Solid lines are noise that is certified, or success that is proven. Filled points are
measurements. Hollow points of the residual-PAC figures and crosses are printed in a paper.
"""
CLOSING = """## What is not run, and why

| printed | why not |
|---|---|
| residual-pac, Table 2 (CIFAR-100) | its images are not among the data that the study reads; [which rows cannot be](#rows-that-cannot-be) stands above |
| dsi, Tables 2 and 4 (GPT-2, OPT and others on WikiText) | their weights are not at hand: exposure and exact memorisation are measured on a model that is [trained here](../how-to/training-memorisation.md) |
| dsi, Table 3 (Stable Diffusion on paintings) | neither weights nor paintings are at hand |
| dsi, three rows of Tables 5 and 6 at m = 80 | every step takes eighty gradients, and the model is trained again without each source that is left out: not run for the time it takes |
| hidden-state, Tables 3 to 14, 22 to 24, 32, 35 and 36 (projections and their margins, energies, the placement of ten models, transplants, heads taken out) | the weights of GPT-2, Gemma, Mistral and others are not at hand; `tacit hidden geometry` and `sweep` measure energies, margins and projections of any causal model that is |
| hidden-state, Tables 1, 2, 15 to 21, 25 to 31 and 34 as printed | the same weights: inverters (1, 30, 31), split memory (2), features (15 to 21), releases and their attackers (25 to 29) and objectives (34) are measured above on models of Tacit's own, not row by row |
| hidden-state, Table 33 (split memory at its printed size) | it asks for a GPU: `--scale gpu` has its settings |
"""  # noqa: E501


def render() -> None:
    """Write the page."""
    PAGE.write_text(text(), encoding="utf-8")


def text() -> str:
    """Return the page from the results that are there."""
    parts = [
        OPENING,
        *pac_page.sections(),
        *middle_page.sections(),
        *layers_page.sections(),
        *quotient_page.sections(),
        *features_page.sections(),
        *split_page.sections(),
        *regularisers_page.sections(),
        *inversion_page.sections(),
        *sequences_page.sections(),
        *defences_page.sections(),
        *accuracy_page.sections(),
        *loops_page.sections(),
        *poisoning_page.sections(),
        *curves_page.sections(),
        *game_page.sections(),
        *heads_page.sections(),
        *language_page.sections(),
        *specifications_page.sections(),
        *objectives_page.sections(),
        CLOSING,
    ]
    return "\n".join(parts).rstrip("\n") + "\n"
