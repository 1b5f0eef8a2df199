"""What every learnware is worth to every user, and what the user's few examples alone are worth."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from tacit_lab.studies.specifications.measures import accuracies, few_shot, mean_error, query
from tacit_lab.studies.specifications.tasks import StudyTask

# Users' draws begin here; developers' seeds are below.
USERS = 1000


def rows(
    tasks: list[StudyTask], networks: list[nn.Module], sizes: dict[str, Any], draw: int
) -> dict[str, Any]:
    """Return the accuracy of every learnware for one user of every task, and the users' own.

    Args:
        tasks: the learnwares', users ask for each of them once.
        networks: their scratch models.
        sizes: ``examples`` and ``tested`` of a user.
        draw: which draw of users.
    """
    seed = USERS + draw
    asked = [
        query(task, row, sizes["examples"], sizes["tested"], seed) for row, task in enumerate(tasks)
    ]
    return {
        "accuracies": accuracies(networks, asked).round(4).tolist(),
        "few": [few_shot(tasks[user.truth], user, seed) for user in asked] if draw == 0 else [],
    }


def summary(drawn: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean accuracy of the best learnware of every user, of all, and of the examples."""
    table = np.concatenate([np.array(held["accuracies"]) for held in drawn])
    return {
        "best": mean_error(table.max(axis=1)),
        "mean": mean_error(table.mean(axis=1)),
        "own": mean_error([row[at % len(row)] for at, row in enumerate(table)]),
        "few": mean_error([value for held in drawn for value in held["few"]]),
    }
