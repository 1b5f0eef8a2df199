"""Codebooks: cells, codewords, protocols and files, against slow and obvious twins."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tacit.attacks.retrieval.attack import retrieve  # noqa: E402
from tacit.hidden_states.codebooks.clustering import (  # noqa: E402
    assign_behaviours,
    cell_behaviours,
    kl_cells,
    nearest,
    seeds,
)
from tacit.hidden_states.codebooks.codebook import Codebook  # noqa: E402
from tacit.hidden_states.codebooks.training import mean_cost  # noqa: E402
from tacit.models.behaviours import Behaviours  # noqa: E402
from tests.hidden_states.prompts import divergence, prompts  # noqa: E402


def test_k_means_is_a_fixed_point_of_lloyd():
    states, _, _ = prompts()
    book = Codebook.fit(states, size=20, least_cell=1, rng=0)
    cells = book.assign(states)
    obvious = torch.cdist(states.double(), book.centres.double()).argmin(1)
    assert (cells == obvious.numpy()).all()
    means = np.stack([states[torch.from_numpy(cells == c)].mean(0) for c in range(20)])
    assert np.abs(book.codewords.numpy() - means).max() < 1e-5
    assert (book.decode(cells) == book.codewords[torch.from_numpy(cells)]).all()
    cost = ((states - book.decode(cells)) ** 2).sum(1).mean()
    first = states[torch.randperm(len(states))[:20]]
    assert cost < nearest(states, first)[1].mean()


def test_seeds_find_clusters_far_apart():
    source = torch.Generator().manual_seed(1)
    centres = 100.0 * torch.randn(30, 5, generator=source)
    rows = centres.repeat(20, 1) + torch.randn(600, 5, generator=source)
    book = Codebook.fit(rows, size=30, least_cell=1, rng=0)
    assert len(np.unique(book.assign(centres))) == 30
    assert len(seeds(rows[:7], 7, np.random.default_rng(0)).unique(dim=0)) == 7
    same = torch.ones(9, 3)
    assert len(seeds(same, 4, np.random.default_rng(0))) == 4


def test_the_fisher_metric_ignores_what_the_model_ignores():
    states, _, _ = prompts()
    fisher = np.diag([1.0, 1.0, *[0.0] * 10])
    book = Codebook.fit(states, size=16, metric="fisher", fisher=fisher, rng=0)
    moved = states.clone()
    moved[:, 2:] += 5.0
    assert (book.assign(states) == book.assign(moved)).all()
    plain = Codebook.fit(states[:, :2], size=16, rng=0)
    assert (book.assign(states) == plain.assign(states[:, :2])).all()
    diagonal = Codebook.fit(states, size=16, metric="fisher", fisher=np.diag(fisher), rng=0)
    assert (book.assign(states) == diagonal.assign(states)).all()


def test_cells_of_behaviour_lower_kl_and_are_means():
    states, _, logits = prompts()
    known = Behaviours(logits)
    advance = [].append
    costs = []
    for rounds in (0, 1, 6):
        cells, table = kl_cells(known, 24, np.random.default_rng(0), rounds=rounds, advance=advance)
        costs.append(float(divergence(logits, table)[torch.arange(len(cells)), cells].mean()))
    assert costs[0] > costs[1] >= costs[2]
    clean = torch.softmax(logits, 1)
    for code in range(24):
        inside = clean[cells == code]
        if len(inside):
            assert (table[code].exp() - inside.mean(0)).abs().max() < 1e-6
    euclidean = Codebook.fit(states, size=24, behaviours=logits, rng=0)
    by_state = torch.from_numpy(euclidean.assign(states))
    apart = divergence(logits, euclidean.table)[torch.arange(len(cells)), by_state].mean()
    assert costs[2] < 0.8 * float(apart)


def test_assignment_by_kl_is_the_obvious_one():
    _, _, logits = prompts()
    cells = torch.arange(len(logits)) % 10
    table = cell_behaviours(Behaviours(logits), cells, 10, None)
    found, least = assign_behaviours(Behaviours(logits), table)
    every = divergence(logits, table)
    assert (every.gather(1, found[:, None])[:, 0] - every.min(1).values).max() < 1e-5
    assert (least - every.min(1).values).abs().max() < 1e-5


def test_behaviours_in_half_precision_and_with_a_tail():
    _, _, logits = prompts()
    clean = torch.softmax(logits, 1)
    half = Behaviours(torch.log_softmax(logits, 1).half()).probabilities(slice(0, 1200))
    assert (half / clean - 1).abs().max() < 0.02
    top = Behaviours.top(logits, 8)
    rows = top.probabilities(slice(0, 1200))
    assert (rows.sum(1) - 1).abs().max() < 1e-5
    assert (rows.topk(8).values - clean.topk(8).values).abs().max() < 1e-6
    tail = 1 - clean.topk(8).values.sum(1)
    assert (rows.min(1).values * 32 - tail).abs().max() < 1e-5
    assert (top.argmax() == logits.argmax(1)).all()
    assert (top.select(torch.tensor([3])).probabilities(slice(0, 1)) == rows[3]).all()


def test_medoids_are_states():
    states, _, _ = prompts()
    book = Codebook.fit(states, size=20, codewords="medoid", rng=0)
    mean = Codebook.fit(states, size=20, rng=0)
    cells = torch.from_numpy(mean.assign(states))
    for code in range(20):
        inside = states[cells == code]
        gaps = ((inside - mean.codewords[code]) ** 2).sum(1)
        assert (book.codewords[code] == inside[gaps.argmin()]).all()


def test_training_lowers_kl_on_prompts_it_never_saw():
    states, upper, logits = prompts(2400)
    public, fresh = torch.arange(2000), torch.arange(2000, 2400)
    options = {
        "size": 16,
        "metric": "behaviour",
        "behaviours": logits[public],
        "rng": 0,
    }
    plain = Codebook.fit(states[public], **options)
    trained = Codebook.fit(
        states[public], codewords="trained", continuation=upper.select(public), epochs=8, **options
    )
    joint = Codebook.fit(
        states[public],
        codewords="trained",
        continuation=upper.select(public),
        epochs=8,
        joint_rounds=1,
        **options,
    )

    def kl(book, codes):
        decoded = torch.zeros_like(states)
        decoded[fresh] = book.decode(codes)
        return mean_cost(upper, Behaviours(logits), decoded, fresh)

    codes = plain.assign(behaviours=logits[fresh])
    assert (codes == trained.assign(behaviours=logits[fresh])).all()
    assert kl(trained, codes) < 0.97 * kl(plain, codes)
    tried = joint.assign(behaviours=logits[fresh], continuation=upper.select(fresh), tries=8)
    assert kl(joint, tried) < kl(trained, codes)


def test_trial_takes_the_codeword_of_least_kl():
    states, upper, logits = prompts(200)
    book = Codebook.fit(states, size=6, metric="behaviour", behaviours=logits, rng=0)
    found = book.assign(behaviours=logits, continuation=upper, tries=6)
    clean = torch.softmax(logits, 1)
    costs = []
    for code in range(6):
        moved = torch.log_softmax(upper.logits(book.codewords[code].expand(200, -1)), 1)
        costs.append(-(clean * moved).sum(1))
    costs = torch.stack(costs, 1)
    assert (costs.gather(1, torch.from_numpy(found)[:, None])[:, 0] == costs.min(1).values).all()


def test_the_argmax_codebook_keeps_the_likeliest_token():
    states, _, logits = prompts()
    book = Codebook.fit(states, metric="argmax", behaviours=logits, rng=0)
    fresh, _, other = prompts(seed=3)
    codes = book.assign(behaviours=other)
    assert (codes == other.argmax(1).numpy()).all()
    assert (book.distributions(codes).argmax(1) == other.argmax(1)).all()
    assert book.size == 40
    assert book.decode(codes).shape == fresh.shape


def test_a_predictor_reads_codes_off_states():
    states, upper, _ = prompts(3000)
    upper.context = torch.zeros_like(upper.context)
    logits = upper.logits(states)
    book = Codebook.fit(
        states[:2500],
        size=8,
        metric="behaviour",
        behaviours=logits[:2500],
        predictor_epochs=12,
        rng=0,
    )
    right = book.predict(states[2500:]) == book.assign(behaviours=logits[2500:])
    assert right.mean() > 0.75
    with pytest.raises(ValueError, match="predict"):
        book.assign(states)


@pytest.mark.parametrize("metric", ["euclidean", "fisher", "behaviour"])
def test_a_codebook_survives_the_disk(metric, tmp_path):
    states, _, logits = prompts()
    options = {"behaviours": logits, "predictor_epochs": 1, "rng": 0, "metric": metric}
    if metric == "fisher":
        options["fisher"] = np.ones(12)
    book = Codebook.fit(states, size=9, **options)
    path = book.save(tmp_path / "book.safetensors")
    again = Codebook.load(path)
    assert (again.metric, again.kind, again.calibration) == (metric, "centroid", 1200)
    assert (again.assign(states, behaviours=logits) == book.assign(states, behaviours=logits)).all()
    assert (again.predict(states) == book.predict(states)).all()
    assert (again.codewords == book.codewords).all()
    assert (again.table == book.table).all()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="path"):
        Codebook.load(path)
    with pytest.raises(ValueError, match="path"):
        Codebook.load(tmp_path / "none")
    with pytest.raises(ValueError, match="path"):
        book.save(tmp_path / "no" / "book")


def test_the_same_seed_gives_the_same_codebook():
    states, _, logits = prompts(400)
    for metric in ("euclidean", "behaviour"):
        options = {"size": 8, "metric": metric, "behaviours": logits, "predictor_epochs": 1}
        one, two = (Codebook.fit(states, rng=5, **options) for _ in range(2))
        assert (one.codewords == two.codewords).all()
        assert (one.predict(states) == two.predict(states)).all()


def test_retrieval_from_codes_attains_the_bound_and_never_passes_it():
    """Over the whole bank the best attacker names one of a cell: exactly occupied/N."""
    states, _, _ = prompts()
    book = Codebook.fit(states, size=50, rng=0)
    bank = prompts(seed=7)[0]
    codes = book.assign(bank)
    bound = book.certify(codes).success.success
    released = book.decode(codes)
    found = retrieve(released, released, np.arange(len(bank)))
    assert found.top1 == pytest.approx(bound, rel=1e-12)
    informed = retrieve(bank, released, np.arange(len(bank)))
    assert informed.top1 <= bound + 1e-12


def test_bad_input_is_refused():
    states, upper, logits = prompts(100)
    book = Codebook.fit(states, size=4, metric="behaviour", behaviours=logits, rng=0)
    cases = [
        ("states", lambda: Codebook.fit(states * torch.nan, size=4)),
        ("states", lambda: Codebook.fit([[1, 2], [3]], size=1)),
        ("size", lambda: Codebook.fit(states, size=101)),
        ("size", lambda: Codebook.fit(states, size=0)),
        ("size", lambda: Codebook.fit(states)),
        ("size", lambda: Codebook.fit(states, size=3, metric="argmax", behaviours=logits)),
        ("metric", lambda: Codebook.fit(states, size=4, metric="cosine")),
        ("codewords", lambda: Codebook.fit(states, size=4, codewords="best")),
        ("behaviours", lambda: Codebook.fit(states, size=4, metric="behaviour")),
        ("behaviours", lambda: Codebook.fit(states, size=4, behaviours=logits[:3])),
        ("behaviours", lambda: Codebook.fit(states, size=4, behaviours=logits * torch.nan)),
        ("fisher", lambda: Codebook.fit(states, size=4, metric="fisher")),
        ("fisher", lambda: Codebook.fit(states, size=4, metric="fisher", fisher=-np.ones(12))),
        ("fisher", lambda: Codebook.fit(states, size=4, metric="fisher", fisher=np.eye(3))),
        (
            "continuation",
            lambda: Codebook.fit(states, size=4, codewords="trained", behaviours=logits),
        ),
        ("epochs", lambda: Codebook.fit(states, size=4, epochs=-1)),
        ("behaviours", lambda: book.assign(states)),
        ("behaviours", lambda: book.assign(behaviours=logits[:, :3])),
        ("continuation", lambda: book.assign(behaviours=logits, tries=2)),
        (
            "continuation",
            lambda: book.assign(behaviours=logits[:5], continuation=upper, tries=2),
        ),
        ("tries", lambda: book.assign(behaviours=logits, tries=5)),
        ("predictor", lambda: book.predict(states)),
        ("codes", lambda: book.decode([4])),
        ("codes", lambda: book.decode([0.5])),
        ("codes", lambda: book.certify([0, 9])),
        ("near", lambda: book.randomised(1.0, near=4)),
        ("epsilon", lambda: book.randomised(0.0)),
        ("kept", lambda: Behaviours.top(logits, 40)),
    ]
    for name, call in cases:
        with pytest.raises(ValueError, match=name):
            call()


def test_a_language_model_trains_its_own_codewords():
    transformers = pytest.importorskip("transformers")
    from tacit.models import LanguageModel

    sizes = {"vocab_size": 30, "n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 8}
    torch.manual_seed(0)
    network = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, initializer_range=0.4))
    model = LanguageModel(network)
    tokens = torch.randint(0, 30, (600, 6))
    states, upper = model.states(tokens, 1), model.continuation(tokens, 1)
    options = {"size": 12, "metric": "behaviour", "behaviours": upper.clean_logits, "rng": 0}
    plain = Codebook.fit(states, **options)
    trained, longer = (
        Codebook.fit(states, codewords="trained", continuation=upper, **passes, **options)
        for passes in ({}, {"epochs": 12})
    )
    codes = plain.assign(behaviours=upper.clean_logits)
    rows = torch.arange(600)
    known = Behaviours(upper.clean_logits)
    before = mean_cost(upper, known, plain.decode(codes), rows)
    reached = mean_cost(upper, known, trained.decode(codes), rows)
    # few passes gain most of what many do
    gained = before - mean_cost(upper, known, longer.decode(codes), rows)
    assert reached < before - 0.8 * gained
    assert mean_cost(upper, known, states, rows) < 1e-5
    tried = plain.assign(behaviours=upper.clean_logits, continuation=upper, tries=4)
    assert mean_cost(upper, known, plain.decode(tried), rows) < before
