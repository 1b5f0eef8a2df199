"""What is named and read back from states that are stored without noise, by who adapts to it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit.attacks import (
    Alignment,
    InverterFit,
    MappedChannel,
    StateInverter,
    StateRelease,
    align_pairs,
    align_population,
    attack_inversion,
    linked_releases,
    retrieve,
)
from tacit.hidden_states.defences.stored import Stored, StoredGame
from tacit.hidden_states.defences.values import read_defence
from tacit.models import LanguageModel, docstring_corpus, load, sample_prefixes
from tacit.models.texts.corpus import hold_out
from tacit_lab.studies.hidden.results import write_result
from tacit_lab.studies.places import RESULTS

Row = dict[str, Any]
FULL = {"public": 10_000, "store": 4000, "part": 1000}
FAST = {"public": 600, "store": 400, "part": 300}
DEFENCES = ("pca(64)", "projection(64)", "product(16)")
# prompts run together by the attacker, who need not batch as the store does
TOGETHER = 37


def main() -> int:
    """Write one row an attack, each as soon as it is measured, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="few prompts and steps, in a minute")
    parser.add_argument("--model", default="tacit/small", help="a folder or a name")
    parser.add_argument("--layer", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=None, help="200 unless told")
    parser.add_argument("--minutes", type=float, default=0.3, help="of training, each inverter")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    given = parser.parse_args()
    Study(given).run()
    return 0


class Study:
    """The rows of the table, measured one by one and kept as they are."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.sizes = given, FAST if given.fast else FULL
        self.model: LanguageModel = load(given.model)
        learned, unseen = hold_out(docstring_corpus())
        self.stream, self.unseen = self.model.stream(learned), self.model.stream(unseen)
        self.count = given.prompts or (20 if given.fast else 200)
        self.about = {"model": given.model, "layer": given.layer, "prompts": self.count,
                      "width": self.model.width, "minutes": given.minutes,
                      **self.sizes}  # fmt: skip
        self.path = given.out / f"inversion-defences{'-fast' if given.fast else ''}.json"
        self.rows: list[Row] = []
        if self.path.is_file():
            content = json.loads(self.path.read_text("utf-8"))
            rows = content.pop("rows")
            self.rows = rows if content == self.about else []

    def run(self) -> None:
        """Measure what is not there yet: who names prompts of the store, then who reads them."""
        self._named(16)
        self._read(16)
        if not self.given.fast:
            self._named(8)

    def _prompts(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        public = sample_prefixes(self.stream, count=self.sizes["public"], length=length, rng=0)
        return public, sample_prefixes(
            self.unseen, count=self.sizes["store"], length=length, rng=1, exclude=public
        )

    def _states(self, prompts: torch.Tensor, together: int = 256) -> np.ndarray[Any, Any]:
        parts = [self.model.states(part, self.given.layer) for part in prompts.split(together)]
        return torch.cat(parts).double().numpy()

    def _done(self, **key: Any) -> bool:
        return any(all(row.get(name) == value for name, value in key.items()) for row in self.rows)

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        write_result(self.path, {**self.about, "rows": self.rows}, "rows")
        print({name: value for name, value in row.items() if name != "recovery"}, flush=True)

    def _named(self, length: int) -> None:
        """Which prompt of the store is behind what was stored, every prompt of it a candidate."""
        if self._done(length=length, knows="nothing, two stored forms are compared"):
            return
        public, prompts = self._prompts(length)
        known, states = self._states(public), self._states(prompts)
        candidates = self._states(prompts, TOGETHER)
        for word in ("clean", *DEFENCES, "rotation"):
            stored = None if word == "clean" else self._learnt(word, known)
            held = states if stored is None else stored.store(states)
            use = {"kl": 0.0, "agreement": 1.0} if stored is None else self._use(stored, prompts)
            for game, among in self._games(stored, known, held):
                if self._done(length=length, release=word, knows=game.name, among=among):
                    continue
                found = retrieve(
                    game.of_states(candidates), game.of_releases(held[: self.count]),
                    np.arange(self.count), last_tokens=prompts[:, -1].numpy(),
                )  # fmt: skip
                self._add({"task": "named", "length": length, "release": word, "knows": game.name,
                           "among": among, **use, "top1": found.top1,
                           "interval": found.top1_interval,
                           "last_token": found.last_token})  # fmt: skip
        self._linked(length, states, known)

    def _learnt(self, word: str, known: Any) -> Stored:
        defence = read_defence(word)
        assert defence is not None
        return defence.learn(known, 5)

    def _games(self, stored: Stored | None, known: Any, held: Any) -> list[tuple[StoredGame, int]]:
        """Attackers, and how much of the store each of them sees."""
        if stored is None:
            same = StoredGame("the state as it is", lambda rows: rows, lambda rows: rows)
            return [(same, 1)]
        width = self.model.width
        pairs = [count for count in (0, 32, 128, width, 2 * width) if count <= len(known)]
        found = [(game, 1) for game in stored.games(known, held[:1], pairs)]
        if len(found) == 1:
            return found
        for among in (self.sizes["part"], self.sizes["store"]):
            laid = align_population(known, held[:among])
            found.append((StoredGame.of(laid), among))
        return found

    def _linked(self, length: int, states: Any, known: Any) -> None:
        """Whether prompts that were stored twice are seen to be, by who knows nothing."""
        stored = self._learnt("rotation", known)
        numbers = linked_releases(stored.store(np.vstack([states, states[: self.count]])))
        twice = int((numbers[len(states) :] == numbers[: self.count]).sum())
        self._add({"task": "linked", "length": length, "release": "rotation",
                   "knows": "nothing, two stored forms are compared", "linked": twice,
                   "wrongly": len(states) - len(np.unique(numbers))})  # fmt: skip

    def _use(self, stored: Stored, prompts: torch.Tensor) -> dict[str, float]:
        """Mean KL and agreement when the owner rebuilds the state (protocol A)."""
        upper = self.model.continuation(prompts[: self.count], self.given.layer)
        rows = stored.rebuild(stored.store(upper.clean_states.double().numpy()))
        read = torch.from_numpy(rows).float()
        before, after = (upper.logits(each).double().log_softmax(-1)
                         for each in (upper.clean_states, read))  # fmt: skip
        same = before.argmax(-1) == after.argmax(-1)
        kl = float((before.exp() * (before - after)).sum(dim=-1).mean())
        return {"kl": max(kl, 0.0), "agreement": float(same.double().mean())}

    def _read(self, length: int) -> None:
        """Tokens read back by networks that learn from what the attacker would see."""
        public, prompts = self._prompts(length)
        known, secret = self._states(public), prompts[: self.count]
        states = self._states(prompts)
        for word in DEFENCES:
            stored = self._learnt(word, known)
            view = stored.games(known, stored.store(states[:1]), ())[0]
            self._inverted(word, view, stored.store(states), secret, public)
        stored = self._learnt("rotation", known)
        held = stored.store(states)
        clean = StoredGame("the state as it is", lambda rows: rows, lambda rows: rows)
        trained = self._inverted("clean", clean, states, secret, public)
        for pairs in (0, 32):
            view = StoredGame.of(
                align_pairs(known[:pairs], stored.store(known[:pairs]))
                if pairs
                else Alignment.blind(self.model.width)
            )
            self._inverted("rotation", view, held, secret, public)
        # all of the rotation, or a guess of all of it, turns the store back: states again
        width = self.model.width
        for laid in (align_pairs(known[:width], stored.store(known[:width])),
                     align_population(known, held)):  # fmt: skip
            view = StoredGame(laid.game, lambda rows: rows, laid.undo)
            self._inverted("rotation", view, held, secret, public, trained)

    def _inverted(
        self, word: str, view: StoredGame, held: Any, secret: Any, public: Any, trained: Any = None
    ) -> StateInverter | None:
        key = {"task": "read", "length": secret.shape[1], "release": word, "knows": view.name}
        if self._done(**key) and (trained is not None or word != "clean"):
            return None
        effort: dict[str, Any] = {"steps": 20} if self.given.fast else {
            "minutes": self.given.minutes}  # fmt: skip
        inverter = trained or StateInverter.train(
            self.model, self.given.layer, self.stream, InverterFit(kind="at-once", **effort),
            length=secret.shape[1], release=StateRelease(MappedChannel(view.of_states)),
            progress=False,
        )  # fmt: skip
        if not self._done(**key):
            found = attack_inversion(
                inverter, view.of_releases(held[: self.count]), secret, public,
                baselines=("permuted",), rng=0,
            )  # fmt: skip
            self._add({**found.to_dict(), **key, "steps": inverter.steps})
        return inverter


if __name__ == "__main__":
    sys.exit(main())
