"""Canaries in a training run: which round has them, what is certified, measured and refused."""

import re

import numpy as np
import pytest
import torch
from scipy import stats

from tacit import Run
from tacit.attacks import coins
from tacit.training import Beside, TrainingRecipe
from tacit.training.release import GUESS
from tacit_lab.memorisation import Canaries, MemorisationPlan, Sequences, prepare_memorisation
from tacit_lab.memorisation.canaries import CanarySchedule
from tacit_lab.memorisation.exposure import cut, losses, sequence_loss
from tacit_lab.memorisation.workflow import SUREST, CanaryTask, Memorisation
from tests.lab.memorisation.letters import model, network, texts

QUICK = {"canaries": 6, "copies": 2, "batch": 6, "samples": 4, "delta": 1e-5, "epsilon": 4.0}


def adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-3)


def prepared(language=None, **options):
    """A model and its prepared training from flat settings."""
    language = model() if language is None else language
    given = {"optimizer": adam, "passes": 1, **QUICK, **options}

    def some(*names):
        return {name: given.pop(name) for name in names if name in given}

    return language, prepare_memorisation(
        TrainingRecipe(model=language, **some("optimizer")),
        Sequences(
            learned=texts(12),
            unseen=texts(4, seed=1),
            **some("batch", "protect", "reduction"),
        ),
        Beside(**some("epsilon", "delta")),
        Run(progress=False, **some("passes", "checkpoint")),
        plan=MemorisationPlan(
            **some("canaries", "copies", "samples", "least", "following", "audit")
        ),
        **given,
    )


@pytest.mark.parametrize(("count", "canaries", "copies"), [(12, 6, 2), (13, 3, 5), (7, 6, 3)])
def test_every_example_comes_once_a_pass_and_a_canary_in_one_round(count, canaries, copies):
    schedule = CanarySchedule(
        texts=count, canaries=canaries, copies=copies, batch=6, passes=2, order=1
    )
    groups = schedule.groups(texts=True)
    total = count + canaries * copies
    for turn in range(2):
        rounds = [schedule.examples(turn * schedule.a_pass + i) for i in range(schedule.a_pass)]
        assert sorted(np.concatenate(rounds).tolist()) == list(range(total))
        assert all(len(chosen) <= 6 for chosen in rounds)
        whose = [set(groups[chosen].tolist()) for chosen in rounds]
        assert sum(map(len, whose)) == canaries + count
    with pytest.raises(ValueError, match="batch: expected room for the"):
        CanarySchedule(texts=4, canaries=6, copies=7, batch=6, passes=1, order=0)


def test_what_a_coin_left_out_is_in_no_gradient_and_all_copies_share_a_reference():
    drawn = Canaries.draw(6, model().encode, rng=0)
    inside = np.array([True, False] * 3)
    schedule = CanarySchedule(texts=12, canaries=6, copies=2, batch=6, passes=1, order=0)
    task = CanaryTask.of(drawn, inside, texts(12), texts(4), schedule, texts=False)
    assert task.groups.tolist() == [-1] * 12 + [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert task.present.tolist() == [True] * 12 + [True, True, False, False] * 3
    assert torch.equal(task.inputs[12], task.inputs[13])


def test_a_release_certifies_measures_and_tells_the_bound_it_computed():
    language, run = prepared(rng=3)
    before = {name: one.clone() for name, one in language.network.state_dict().items()}
    release = run.draw()
    assert any(not torch.equal(before[k], v) for k, v in language.network.state_dict().items())
    assert release.details.references[:2] == ("without canary 0", "without canary 1")
    assert len(release.details.references) == 6 + 12
    assert release.details.participations == 1
    assert release.details.rounds == 4
    tasks = {attack.task: attack for attack in release.attacks}
    assert tasks[GUESS].trials == 6
    assert tasks[SUREST].trials == 2
    use = {one.name: one.measured for one in release.use}
    assert use["perplexity of unseen sequences"].value > 1.0
    assert {"(35, 5)-exact memorisation of learned sequences", "exposure of canaries learned"} <= {
        *use
    }
    out = use["(2, 4)-exposure of canaries left out"]
    bound = stats.norm.cdf(stats.norm.ppf(out.high) + np.sqrt(release.details.squared.max()))
    said = next(note for note in release.remarks if "Φ(Φ⁻¹(P0)" in note)
    told = float(re.search(r"\) = ([\d.]+)%, in the mean", said)[1]) / 100
    assert bound <= told <= bound + 1.1e-3
    assert "with the noise of this run either way" in said
    assert any("Audit of this one run" in note for note in release.remarks)


def test_canaries_alone_are_references_where_nothing_else_is_protected():
    release = prepared(protect="canaries", audit=False)[1].draw()
    assert len(release.details.references) == 6
    assert release.attacks == ()


def test_a_run_goes_on_with_its_own_canaries_and_refuses_others(tmp_path):
    folder = tmp_path / "run"
    _, run = prepared(checkpoint=folder)
    assert not folder.exists()
    first = run.draw()
    _, again = prepared(checkpoint=folder)
    taken = again.draw()
    assert taken.digests == first.digests
    # six coins may all fall on one side
    measured = [
        {one.name: one.measured.value for one in release.use if "exposure of canaries" in one.name}
        for release in (first, taken)
    ]
    assert measured[0] == measured[1] != {}
    with pytest.raises(ValueError, match=r"another participations|other sequences or canaries"):
        prepared(checkpoint=folder, passes=2)
    (folder / "canaries.json").unlink()
    with pytest.raises(ValueError, match=r"canaries.json is missing"):
        prepared(checkpoint=folder)[1].draw()


def test_losses_are_those_of_the_model_and_padding_counts_nothing():
    tiny, rows = network(), texts(3)
    targets = rows.clone()
    targets[1, 20:] = -100
    found = losses(tiny, rows, targets)
    with torch.no_grad():
        logs = tiny(input_ids=rows).logits.double().log_softmax(dim=2)
        totals = sequence_loss("sum")(tiny, rows, targets)
    for place, length in enumerate((40, 20, 40)):
        each = [-float(logs[place, t - 1, rows[place, t]]) for t in range(1, length)]
        assert found[place] == pytest.approx(np.mean(each), rel=1e-5)
        assert float(totals[place]) == pytest.approx(np.sum(each), rel=1e-5)


def test_learned_and_unseen_sequences_are_disjoint():
    learned, unseen = cut(torch.arange(1000), 7, count=50)
    assert not set(learned.ravel().tolist()) & set(unseen.ravel().tolist())
    assert (len(learned), len(unseen)) == (50, 14)
    with pytest.raises(ValueError, match="texts: expected at least 2 sequences"):
        cut(torch.arange(13), 7)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"canaries": 1}, "canaries: expected"),
        ({"copies": 0}, "copies: expected"),
        ({"copies": 9}, "batch: expected room"),
        ({"batch": 13}, "learned: expected at least the 13"),
        ({"least": 7}, "least: expected"),
        ({"following": 40}, "following: expected"),
        ({"samples": 1}, "samples: expected"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"protect": "some"}, "protect: expected"),
        ({"reduction": "most"}, "reduction: expected"),
        ({"optimizer": None}, "optimizer: expected"),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_spent(options, said):
    with pytest.raises(ValueError, match=said):
        prepared(**options)


def test_coins_and_secrets_of_a_run_without_a_seed_are_its_own():
    assert not np.array_equal(coins(200), coins(200))


def test_a_perplexity_beyond_all_floats_is_the_largest():
    language = model()
    with torch.no_grad():
        language.network.lm_head.weight.mul_(1e5)
    plan = MemorisationPlan(copies=1, least=4, samples=2, following=2)
    drawn = Canaries.draw(2, language.encode, rng=0)
    found = Memorisation.of(language.network, drawn, texts(2), texts(2, seed=1), plan, rng=0)
    assert found.perplexity.high == np.exp(700.0)


def test_frozen_parameters_stay_frozen():
    language = model()
    language.network.requires_grad_(True)
    kept = next(iter(language.network.parameters())).requires_grad_(False)
    before = kept.detach().clone()
    prepared(language)[1].draw()
    assert torch.equal(before, kept)
    assert not kept.requires_grad


def test_a_checkpoint_of_another_base_model_is_refused(tmp_path):
    language = model()
    prepared(language, checkpoint=tmp_path)[1].draw()
    with pytest.raises(ValueError, match="another about"):
        prepared(language, checkpoint=tmp_path)[1].draw()
