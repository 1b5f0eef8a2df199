"""Five queries about people, by Tacit and by whichever peer installs, at equal (ε, δ).

``python -m benchmarks.people_peers`` makes an environment for each peer in a temporary folder
(``--keep FOLDER`` for one that stays), installs it from the package index, and asks it the same
five questions of the same table, each by itself at (1, 10⁻⁶), ten times: 20,000 visits of 2,000
customers in four cities, ten each and fifty of a few. Told is the root mean square of the errors
against the table itself, clipping included, the processor seconds of one answer, and what a peer
refuses. What does not install is told with its reason.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CITIES = ("Bern", "Oslo", "Rome", "Wien")
QUERIES = ("persons", "rows by city", "sum", "mean by city", "median")
EPSILON, DELTA, HIGH = 1.0, 1e-6, 200_000.0
# The most that one person counts, in rows: declared to all alike.
ROWS, TIMES = 20, 10
PEERS = {
    "OpenDP": "opendp[polars]",
    "PipelineDP": "pipeline-dp",
    "SmartNoise": "smartnoise-sql",
    "Tumult": "tmlt.analytics",
    "Qrlew": "pyqrlew",
}
Answers = list[float]
Asker = Callable[[str], Answers]


def table() -> dict[str, list[Any]]:
    import numpy as np

    source = np.random.default_rng(0)
    # about ten visits a person, fifty for a few
    sizes = source.lognormal(0.0, 0.6, 2_000)
    who = source.choice(2_000, 20_000, p=sizes / sizes.sum())
    income = source.lognormal(10.8, 0.5, 2_000).clip(0.0, HIGH)
    return {
        "customer": who.tolist(),
        "city": source.choice(CITIES, 20_000, p=[0.5, 0.3, 0.15, 0.05]).tolist(),
        "income": income[who].tolist(),
    }


def truth(rows: dict[str, list[Any]]) -> dict[str, Answers]:
    import numpy as np

    city, income = np.array(rows["city"]), np.array(rows["income"])
    return {
        "persons": [float(len(set(rows["customer"])))],
        "rows by city": [float((city == one).sum()) for one in CITIES],
        "sum": [float(income.sum())],
        "mean by city": [float(income[city == one].mean()) for one in CITIES],
        "median": [float(np.median(income))],
    }


def tacit(rows: dict[str, list[Any]], delta: float | None = DELTA) -> Asker:
    import pandas as pd

    from tacit import Table
    from tacit.statistics import prepare_sql

    frame = pd.DataFrame(rows)
    written = {
        "persons": "COUNT(DISTINCT customer)",
        "rows by city": "COUNT(*)",
        "sum": "SUM(income)",
        "mean by city": "AVG(income)",
        "median": "MEDIAN(income)",
    }

    def ask(query: str) -> Answers:
        grouped = "by city" in query
        promise = Table(
            epsilon=EPSILON, delta=delta, person="customer", clip=ROWS,
            bounds={"income": (0.0, HIGH)} if "income" in written[query] else None,
            levels={"city": CITIES} if grouped else None,
        )  # fmt: skip
        group = " GROUP BY city" if grouped else ""
        sql = f"SELECT {written[query]} FROM visits{group}"
        return list(prepare_sql(sql, {"visits": frame}, promise).draw().values)

    return ask


def opendp(rows: dict[str, list[Any]]) -> Asker:
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    frame = pl.LazyFrame(rows)

    def ask(query: str) -> Answers:
        context = dp.Context.compositor(
            data=frame,
            privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("customer")),
            privacy_loss=dp.loss_of(epsilon=EPSILON, delta=DELTA),
            split_evenly_over=1,
            margins=[dp.polars.Margin(by=["city"], invariant="keys")],
        )
        income = pl.col("income").fill_null(0.0).fill_nan(0.0)
        plan = context.query()
        if query == "persons":
            # one row of each
            found = plan.truncate_per_group(1).select(dp.len()).release().collect()
            return [float(found.item())]
        plan = plan.truncate_per_group(ROWS)
        if query == "rows by city":
            plan = plan.group_by("city").agg(pl.len().dp.noise().alias("n"))
        elif query == "sum":
            return [float(plan.select(income.dp.sum((0.0, HIGH))).release().collect().item())]
        elif query == "median":
            points = [HIGH * step / 1000 for step in range(1001)]
            asked = plan.select(income.dp.median(points))
            return [float(asked.release().collect().item())]
        else:
            plan = plan.group_by("city").agg(
                (income.dp.sum((0.0, HIGH)) / pl.len().dp.noise()).alias("n")
            )
        found = plan.release().collect().sort("city")
        return [float(one) for one in found["n"]]

    return ask


def pipelinedp(rows: dict[str, list[Any]]) -> Asker:
    import pipeline_dp

    visits = list(zip(rows["customer"], rows["city"], rows["income"], strict=True))
    metrics = pipeline_dp.Metrics

    def ask(query: str) -> Answers:
        backend = pipeline_dp.LocalBackend()
        budget = pipeline_dp.NaiveBudgetAccountant(EPSILON, DELTA)
        engine = pipeline_dp.DPEngine(budget, backend)
        metric = {
            "persons": metrics.PRIVACY_ID_COUNT, "rows by city": metrics.COUNT,
            "sum": metrics.SUM, "mean by city": metrics.MEAN,
            "median": metrics.PERCENTILE(50),
        }[query]  # fmt: skip
        grouped = "by city" in query
        cells = len(CITIES) if grouped else 1
        params = pipeline_dp.AggregateParams(
            metrics=[metric],
            noise_kind=pipeline_dp.NoiseKind.GAUSSIAN,
            max_partitions_contributed=cells,
            max_contributions_per_partition=ROWS // cells,
            min_value=0.0,
            max_value=HIGH,
        )
        extractors = pipeline_dp.DataExtractors(
            privacy_id_extractor=lambda row: row[0],
            partition_extractor=(lambda row: row[1]) if grouped else lambda _: "all",
            value_extractor=lambda row: row[2],
        )
        found = engine.aggregate(
            visits, params, extractors, public_partitions=list(CITIES) if grouped else ["all"]
        )
        budget.compute_budgets()
        return [float(next(iter(value))) for _, value in sorted(found)]

    return ask


def smartnoise(rows: dict[str, list[Any]]) -> Asker:
    import pandas as pd
    import snsql

    frame = pd.DataFrame(rows)
    frame["customer"] = frame["customer"].astype(int)
    columns = {
        "row_privacy": False, "max_ids": ROWS, "rows": len(frame), "censor_dims": False,
        "customer": {"type": "int", "private_id": True},
        "city": {"type": "string"},
        "income": {"type": "float", "lower": 0.0, "upper": HIGH},
    }  # fmt: skip
    written = {
        "persons": "COUNT(DISTINCT customer)", "rows by city": "COUNT(*)",
        "sum": "SUM(income)", "mean by city": "AVG(income)", "median": "MEDIAN(income)",
    }  # fmt: skip

    def ask(query: str) -> Answers:
        reader = snsql.from_df(
            frame,
            metadata={"": {"PUMS": {"PUMS": columns}}},
            privacy=snsql.Privacy(epsilon=EPSILON, delta=DELTA),
        )
        if "by city" in query:
            sql = f"SELECT city, {written[query]} AS n FROM PUMS.PUMS GROUP BY city ORDER BY city"
            return [float(row[1]) for row in reader.execute(sql)[1:]]
        found = reader.execute(f"SELECT {written[query]} AS n FROM PUMS.PUMS")
        return [float(found[1][0])]

    return ask


ASKERS: dict[str, Callable[[dict[str, list[Any]]], Asker]] = {
    "Tacit": tacit,
    "Tacit without δ": lambda rows: tacit(rows, None),
    "OpenDP": opendp,
    "PipelineDP": pipelinedp,
    "SmartNoise": smartnoise,
}


def asked(name: str) -> Iterator[dict[str, Any]]:
    rows = table()
    exact, ask = truth(rows), ASKERS[name](rows)
    for query in QUERIES:
        began = time.process_time()
        try:
            found = [ask(query) for _ in range(TIMES)]
        except Exception as error:
            line = str(error).strip().splitlines() or [""]
            yield {"query": query, "refused": f"{type(error).__name__}: {line[0][:90]}"}
            continue
        spent = (time.process_time() - began) / TIMES
        gaps = [
            (one - true) / true
            for answer in found
            for one, true in zip(answer, exact[query], strict=True)
        ]
        error = math.sqrt(sum(gap * gap for gap in gaps) / len(gaps))
        yield {"query": query, "error": error, "seconds": spent}


def installed(name: str, folder: Path) -> tuple[str | None, str]:
    place = folder / name
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        packages = [PEERS[name], "numpy", "pandas", "setuptools<80"]
        done = subprocess.run(
            [python, "-m", "pip", "install", "-q", *packages],
            capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip
        if done.returncode:
            lines = [one for one in done.stderr.splitlines() if one.startswith("ERROR")]
            return None, f"does not install: {(lines or ['no reason given'])[0][:110]}"
    if name not in ASKERS:
        return None, "installs; no asker is written for it"
    return str(python), ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=list(ASKERS))
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    if given.peer is not None:
        for one in asked(given.peer):
            print(json.dumps(one), flush=True)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        for name in ("Tacit", "Tacit without δ", *PEERS):
            ours = name.startswith("Tacit")
            python, reason = (sys.executable, "") if ours else installed(name, folder)
            if python is None:
                print(f"{name}: {reason}")
                continue
            done = subprocess.run(
                [python, __file__, "--peer", name], capture_output=True, text=True, check=False
            )
            for line in filter(lambda text: text.startswith("{"), done.stdout.splitlines()):
                one = json.loads(line)
                told = one.get("refused") or f"{one['error']:.2%}, {one['seconds']:.3f} s"
                print(f"{name}, {one['query']}: {told}")
            if done.returncode:
                print(f"{name}: {(done.stderr.strip().splitlines() or ['failed'])[-1][:160]}")


if __name__ == "__main__":
    main()
