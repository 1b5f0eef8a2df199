"""The page: the residual-PAC tables, the hidden-state experiments, training."""

from __future__ import annotations

from tacit_lab.studies.adapters import game_page, heads_page, language_page
from tacit_lab.studies.architectures import regularisers_page, split_page
from tacit_lab.studies.features import features_page
from tacit_lab.studies.hidden import (
    defences_page,
    inversion_page,
    layers_page,
    middle_page,
    sequences_page,
)
from tacit_lab.studies.pac import page as pac_page
from tacit_lab.studies.places import PAGE
from tacit_lab.studies.poisoning import page as poisoning_page
from tacit_lab.studies.quotient import quotient_page
from tacit_lab.studies.specifications import objectives_page, specifications_page
from tacit_lab.studies.training import accuracy_page

OPENING = """# Reproductions

`make experiments NAME=pac-mnist` (or `pac-cifar10`, `pac-agnews`, `pac-means`, `empty-middle`,
`hidden-layers`, `inversion`, `quotient`, `features`, `split-memory`, `regularisers`,
`indistinguishable-cifar10`, `poisoning`, `adapters-canary-game`, `adapters-frozen-features`,
`adapters-language`, `specifications-identification`, `specifications-objectives`) runs one of these
and writes `experiments/results/NAME.json`, most of them a figure too; `make experiments
NAME=reproductions` renders this page from what is there. No number on it is typed by hand. `--fast`
is a smoke test and publishes nothing.

Solid lines are noise that is certified, or success that is proven. Filled points are
measurements. Hollow points of the residual-PAC figures and crosses are printed in a paper.
"""


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
        *poisoning_page.sections(),
        *game_page.sections(),
        *heads_page.sections(),
        *language_page.sections(),
        *specifications_page.sections(),
        *objectives_page.sections(),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"
