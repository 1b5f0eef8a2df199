"""What learned inverters read back from the release of one state, at equal measured KL."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from tacit.attacks import (
    CodeChannel,
    InverterFit,
    Recovery,
    StateInverter,
    StateRelease,
    VerifiedInverter,
    attack_inversion,
)
from tacit.hidden_states import Codebook, CodebookFit, designs_at_budget, measure_geometry
from tacit.models import LanguageModel, docstring_corpus, load, sample_prefixes
from tacit.models.behaviours import Behaviours
from tacit.models.texts.corpus import hold_out
from tacit_lab.studies.hidden.equal import scaled_to
from tacit_lab.studies.hidden.results import write_result
from tacit_lab.studies.places import RESULTS

Row = dict[str, Any]
FULL = {"codes": 1024, "calibration": 8000, "bank": 20_000}
# λ of the behaviour codes
DECISION_COST = 4.0
FAST = {"codes": 32, "calibration": 600, "bank": 500}


def main() -> int:
    """Write one row an attack, each as soon as it is measured, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="few steps, in two minutes")
    parser.add_argument("--model", default="tacit/small", help="a folder or a name")
    parser.add_argument("--layer", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=None, help="200 unless told")
    parser.add_argument("--size", default="two-cores", help="two-cores or gpu")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=3.0, help="of training, clean states")
    parser.add_argument("--aware", type=float, default=0.5, help="minutes for each release")
    parser.add_argument("--curve", type=float, default=30.0, help="minutes of the longest training")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    given = parser.parse_args()
    study = Study(given)
    study.run()
    return 0


class Study:
    """The rows of the table, measured one by one and kept as they are."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.sizes = FAST if given.fast else FULL
        self.model: LanguageModel = load(given.model, device=given.device)
        learned, unseen = hold_out(docstring_corpus())
        self.stream, self.unseen = self.model.stream(learned), self.model.stream(unseen)
        count = given.prompts or (20 if given.fast else 200)
        self.about = {"model": given.model, "layer": given.layer, "prompts": count,
                      "size": given.size, "minutes": given.minutes, "aware": given.aware,
                      **self.sizes}  # fmt: skip
        self.count = count
        self.path = given.out / f"inversion-states{'-fast' if given.fast else ''}.json"
        self.rows: list[Row] = self._kept()
        given.checkpoints.mkdir(parents=True, exist_ok=True)

    def _kept(self) -> list[Row]:
        if not self.path.is_file():
            return []
        content = json.loads(self.path.read_text("utf-8"))
        rows: list[Row] = content.pop("rows")
        return rows if content == self.about else []

    def run(self) -> None:
        """Measure what is not there yet."""
        self._clean(16, "at-once", self.given.aware)
        self._releases(16)
        self._clean(16, "right-to-left", self.given.minutes)
        self._clean(8, "right-to-left", self.given.minutes, verify=True)
        self._clean(16, "forward", self.given.aware)
        self._clean(16, "right-to-left", self.given.aware)
        self._clean(16, "right-to-left", self.given.curve)

    def _prompts(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        public = sample_prefixes(self.stream, count=self.sizes["bank"], length=length, rng=0)
        secret = sample_prefixes(
            self.unseen, count=self.count, length=length, rng=1, exclude=public
        )
        return public, secret

    def _trained(
        self, length: int, kind: str, minutes: float, name: str, release: StateRelease | None
    ) -> StateInverter:
        effort: dict[str, Any] = {"steps": 20} if self.given.fast else {"minutes": minutes}
        return StateInverter.train(
            self.model, self.given.layer, self.stream,
            InverterFit(kind=kind, size=self.given.size, **effort,
                        checkpoint=self.given.checkpoints / f"{name}-{kind}-{length}-{minutes:g}"),
            length=length, release=release,
        )  # fmt: skip

    def _done(self, **key: Any) -> bool:
        return any(all(row.get(name) == value for name, value in key.items()) for row in self.rows)

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        write_result(self.path, {**self.about, "rows": self.rows}, "rows")
        found = row["recovery"]
        print(
            f"T = {row['length']}, {row['release']}, {row['kind']}: tokens "
            f"{found['token_accuracy']['value']:.3f}, last {found['by_position'][0]['value']:.3f}, "
            f"exact {found['exact']['value']:.3f}",
            flush=True,
        )

    def _clean(self, length: int, kind: str, minutes: float, *, verify: bool = False) -> None:
        """One inverter of clean states, and its verification by the model where asked for."""
        key = {"length": length, "release": "clean", "kind": kind, "minutes": minutes}
        checked = {**key, "kind": f"{kind}, verified"}
        if self._done(**key) and (self._done(**checked) or not verify):
            return
        public, secret = self._prompts(length)
        inverter = self._trained(length, kind, minutes, "clean", None)
        states = self.model.states(secret, self.given.layer).double().cpu().numpy()
        if not self._done(**key):
            found = attack_inversion(inverter, states, secret, public, rng=0)
            self._add({**key, "steps": inverter.steps, "loss": inverter.loss,
                       "history": inverter.history, "measured_kl": 0.0,
                       **found.to_dict()})  # fmt: skip
        if verify:
            check = VerifiedInverter(inverter, bank=public).verify(states)
            right = (check.tokens == secret.numpy()).all(axis=1)
            self._add({**checked, "measured_kl": 0.0, "queries": len(secret),
                       "verified": int(check.verified.sum()),
                       "verified_right": int((check.verified & right).sum()),
                       "tried": check.tried,
                       "recovery": Recovery.of(check.tokens, secret).to_dict()})  # fmt: skip

    def _releases(self, length: int) -> None:
        """Releases at the KL of the Euclidean codes, each with an attacker who learnt from it."""
        names = ("Euclidean codes", "behaviour codes", "isotropic", "Mahalanobis-optimal")
        if all(self._done(length=length, release=name) for name in names):
            return
        public, secret = self._prompts(length)
        laws, level = self._laws(public, secret)
        for name in names:
            for kind, aware in (("at-once", True), ("at-once, clean-trained", False)):
                if self._done(length=length, release=name, kind=kind):
                    continue
                release, kl = laws[name]
                trained = self._trained(
                    length, "at-once", self.given.aware,
                    name.replace(" ", "-") if aware else "clean", release if aware else None,
                )  # fmt: skip
                if not aware:
                    trained = trained.attacking(release)
                drawn = self._drawn(release, secret)
                found = attack_inversion(
                    trained, drawn, secret, public, baselines=("permuted", "nearest"), rng=0
                )
                self._add({"length": length, "release": name, "kind": kind, "measured_kl": kl,
                           "level": level, "minutes": self.given.aware, "steps": trained.steps,
                           **found.to_dict()})  # fmt: skip

    def _drawn(self, release: StateRelease, prompts: torch.Tensor) -> Any:
        states, behaviours = self._observed(prompts)
        return release.draw(states, behaviours, rng=3)

    def _observed(self, prompts: torch.Tensor) -> tuple[torch.Tensor, Behaviours]:
        parts = list(self.model.passes(prompts, [self.given.layer]))
        states = torch.cat([held[self.given.layer] for held, _ in parts])
        return states, Behaviours(torch.cat([logits for _, logits in parts]).log_softmax(-1))

    def _laws(
        self, public: torch.Tensor, secret: torch.Tensor
    ) -> tuple[dict[str, tuple[StateRelease, float]], float]:
        """Return every release with the KL measured of it, and the KL that noise is scaled to."""
        fitted = public[: self.sizes["calibration"]]
        states, behaviours = self._observed(fitted)
        upper = self.model.continuation(secret, self.given.layer)
        size = self.sizes["codes"]
        plain = Codebook.fit(states, CodebookFit(size=size), rng=0, progress=False)
        how = CodebookFit(size=size, metric="behaviour", decision_cost=DECISION_COST)
        guarding = Codebook.fit(states, how, behaviours=behaviours, rng=0, progress=False)
        codes = {
            "Euclidean codes": StateRelease(
                CodeChannel(lambda rows, _: plain.assign(rows)), plain.codewords.cpu()
            ),
            "behaviour codes": StateRelease(
                CodeChannel(
                    lambda rows, told: guarding.assign(rows, behaviours=told), predicts=True
                ),
                guarding.codewords.cpu(),
            ),
        }
        laws = {name: (law, self._kl(upper, law, secret)) for name, law in codes.items()}
        level = laws["Euclidean codes"][1]
        geometry = measure_geometry(self.model, self.given.layer, public[:1000], rng=0)
        designs = designs_at_budget(geometry, 1.0)
        for name in ("isotropic", "mahalanobis-optimal"):
            covariance = designs[name].covariance.to_dense()

            def law(scale: float, covariance: Any = covariance) -> StateRelease:
                return StateRelease(scale * covariance)

            scale = scaled_to(lambda value, law=law: self._kl(upper, law(value), secret), level)
            title = "isotropic" if name == "isotropic" else "Mahalanobis-optimal"
            laws[title] = (law(scale), self._kl(upper, law(scale), secret))
        return laws, level

    def _kl(self, upper: Any, release: StateRelease, secret: torch.Tensor) -> float:
        """Mean KL of the model's prediction from that after the release (protocol A)."""
        read = release.vectors_of(self._drawn(release, secret)).to(self.model.device)
        before, after = (upper.logits(each).double().log_softmax(-1)
                         for each in (upper.clean_states, read))  # fmt: skip
        return float((before.exp() * (before - after)).sum(dim=-1).mean())


if __name__ == "__main__":
    sys.exit(main())
