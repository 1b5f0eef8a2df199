"""What a learned network reads back from the releases of all positions."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tacit.attacks import InverterFit, SequenceInverter, StateRelease, attack_inversion
from tacit.attacks.inversion.learned.released import trajectories_of
from tacit.hidden_states import StateMechanism, state_release
from tacit.models import LanguageModel, docstring_corpus, load, sample_prefixes
from tacit.models.texts.corpus import hold_out
from tacit_lab.studies.hidden.equal import scaled_to
from tacit_lab.studies.hidden.results import write_result
from tacit_lab.studies.places import RESULTS

Row = dict[str, Any]
LENGTH, CHARACTERS, BUDGETS, COMPARED = 16, 3_000_000, (0.3, 1.0, 3.0), 1.0
DESIGNS = ("mahalanobis-optimal", "inverse-fisher-diagonal", "inverse-fisher")
# λ of the behaviour codes
DECISION_COST = 4.0
FULL = {"public": 6000, "codes": 1024}
FAST = {"public": 600, "codes": 32}


def main() -> int:
    """Write one row an attack, each as soon as it is measured, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="few steps, in two minutes")
    parser.add_argument("--model", default="tacit/small", help="a folder or a name")
    parser.add_argument("--layer", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=None, help="200 unless told")
    parser.add_argument("--size", default="two-cores", help="two-cores or gpu")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=3.0, help="of training, clean and K = 1")
    parser.add_argument("--aware", type=float, default=1.0, help="minutes for each other release")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    Study(parser.parse_args()).run()
    return 0


class Study:
    """The rows of the table, measured one by one and kept as they are."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.sizes = FAST if given.fast else FULL
        self.model: LanguageModel = load(given.model, device=given.device)
        learned, unseen = hold_out(docstring_corpus())
        self.stream = self.model.stream(learned)
        self.public = sample_prefixes(
            self.model.stream(learned[:CHARACTERS]), count=self.sizes["public"], length=LENGTH,
            rng=0,
        )  # fmt: skip
        count = given.prompts or (20 if given.fast else 200)
        self.secret = sample_prefixes(
            self.model.stream(unseen), count=count, length=LENGTH, rng=1, exclude=self.public
        )
        self.about = {"model": given.model, "layer": given.layer, "length": LENGTH,
                      "prompts": count, "size": given.size, "minutes": given.minutes,
                      "aware": given.aware, **self.sizes}  # fmt: skip
        self.path = given.out / f"inversion-sequences{'-fast' if given.fast else ''}.json"
        self.rows = self._kept()
        self.upper = self.model.continuation(self.secret, given.layer)
        given.checkpoints.mkdir(parents=True, exist_ok=True)

    def _kept(self) -> list[Row]:
        if not self.path.is_file():
            return []
        content = json.loads(self.path.read_text("utf-8"))
        rows: list[Row] = content.pop("rows")
        return rows if content == self.about else []

    def run(self) -> None:
        """Measure what is not there yet."""
        budgets = BUDGETS[1:2] if self.given.fast else BUDGETS
        clean = self._attacked("clean", StateRelease(), self.given.minutes)
        laws = {budget: self._law("isotropic", budget) for budget in budgets}
        level = self._kl(laws[COMPARED])
        for budget, law in laws.items():
            minutes = self.given.minutes if budget == COMPARED else self.given.aware
            self._attacked("isotropic", law, minutes, clean, kl_budget=budget)
        for name in DESIGNS[:1] if self.given.fast else DESIGNS:
            law = self._scaled(self._law(name, COMPARED), level)
            self._attacked(name, law, self.given.aware, clean, kl_budget=COMPARED)
        codes = self._law("codes", COMPARED)
        self._attacked("codes", codes, self.given.aware, clean)
        self._attacked("behaviour-codes", self._law("behaviour-codes", COMPARED),
                       self.given.aware, clean)  # fmt: skip
        beside = self._scaled(laws[COMPARED], self._kl(codes))
        self._attacked("isotropic at the KL of codes", beside, self.given.aware, clean)

    def _law(self, mechanism: str, budget: float) -> StateRelease:
        return state_release(
            self.model, self.given.layer, self.public,
            StateMechanism(mechanism=mechanism, kl_budget=budget, codewords=self.sizes["codes"],
                           decision_cost=DECISION_COST, positions="all"),
        )  # fmt: skip

    def _scaled(self, law: StateRelease, level: float) -> StateRelease:
        """Return the noise scaled to a measured KL."""
        assert law.covariance is not None
        dense = law.covariance.to_dense()
        scale = scaled_to(lambda value: self._kl(StateRelease(value * dense)), level)
        return StateRelease(scale * dense)

    def _attacked(
        self,
        name: str,
        law: StateRelease,
        minutes: float,
        clean: SequenceInverter | None = None,
        **key: Any,
    ) -> SequenceInverter | None:
        """Rows of the network that learnt from releases, and of the one from clean states."""
        facts = {"release": name, **key, "minutes": minutes}
        trained = None
        if not self._done(**facts, aware=True) or name == "clean":
            label = "-".join(str(part) for part in (name, *key.values())).replace(" ", "-")
            effort: Row = {"steps": 20} if self.given.fast else {"minutes": minutes}
            trained = SequenceInverter.train(
                self.model, self.given.layer, self.stream,
                InverterFit(size=self.given.size, **effort,
                            checkpoint=self.given.checkpoints / f"{label}-sequence-{minutes:g}"),
                length=LENGTH, release=law,
            )  # fmt: skip
        for aware, inverter in ((True, trained), (False, clean)):
            if inverter is None or self._done(**facts, aware=aware):
                continue
            drawn = self._drawn(law)
            names = ("permuted", "nearest") if aware else ("permuted",)
            found = attack_inversion(
                inverter.attacking(law), drawn, self.secret, self.public, baselines=names, rng=0
            )
            self._add({**facts, "aware": aware, "kind": inverter.network.shape.kind,
                       "steps": inverter.steps, "loss": inverter.loss,
                       "measured_kl": 0.0 if name == "clean" else self._kl(law),
                       **found.to_dict()})  # fmt: skip
        return trained

    def _done(self, **key: Any) -> bool:
        return any(all(row.get(name) == value for name, value in key.items()) for row in self.rows)

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        write_result(self.path, {**self.about, "rows": self.rows}, "rows")
        found = row["recovery"]
        kind = "aware" if row["aware"] else "clean-trained"
        print(
            f"{row['release']} {row.get('kl_budget', '')} {kind}: KL {row['measured_kl']:.2f}, "
            f"{row['steps']} steps, tokens {found['token_accuracy']['value']:.3f}, last "
            f"{found['by_position'][0]['value']:.3f}, exact {found['exact']['value']:.3f}",
            flush=True,
        )

    def _drawn(self, law: StateRelease) -> Any:
        states, behaviours = trajectories_of(
            self.model, self.given.layer, self.secret, law.channel.predicts
        )
        drawn = law.draw(states.flatten(0, 1), behaviours, rng=3)
        return drawn.reshape(*self.secret.shape, *drawn.shape[1:])

    def _kl(self, law: StateRelease) -> float:
        """Mean KL of the prediction from that after the last state's release (protocol A)."""
        drawn = self._drawn(law)[:, -1]
        read = law.vectors_of(drawn).to(self.model.device)
        before, after = (self.upper.logits(each).double().log_softmax(-1)
                         for each in (self.upper.clean_states, read))  # fmt: skip
        return float((before.exp() * (before - after)).sum(dim=-1).mean())


if __name__ == "__main__":
    sys.exit(main())
