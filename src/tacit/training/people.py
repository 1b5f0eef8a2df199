"""A person as the unit of privacy: whose each record is, and how persons are drawn."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tacit._ground.values import Count, value
from tacit.accounting import PrivacyProfile, subsampled_group
from tacit.guarantees.adjacency import Adjacency
from tacit.training.sampling import AnySampling, Poisson, SampledSteps

Indices = npt.NDArray[np.int64]


@value
class PersonUnit:
    """What a certificate about persons follows from.

    Args:
        drawn: as `People` has it.
        most: records of one person that are used; None for all.
    """

    drawn: Literal["people", "records"]
    most: Count | None = None

    def _together(self) -> None:
        if self.drawn == "records" and self.most is None:
            raise ValueError("most: expected a number of records where records are drawn, got none")

    def check(self, sampling: AnySampling, adjacency: Adjacency) -> None:
        """Refuse what has no account of several records that come or go together.

        Raises:
            ValueError: records are drawn in another way than by coins, or one is replaced.
        """
        if self.drawn == "people":
            return
        if not isinstance(sampling, Poisson) or adjacency is not Adjacency.ADD_REMOVE:
            raise ValueError(
                "person: expected drawn='people', or Poisson sampling and persons that are added "
                f"or removed, got {type(sampling).__name__}, {adjacency.sentence('person')}"
            )

    def profile(
        self, noise_multiplier: float, sampling: AnySampling, steps: SampledSteps
    ) -> PrivacyProfile:
        """Return the profile of one person with all of its records, rounded up."""
        if self.drawn == "people":
            return sampling.profile(noise_multiplier, steps)
        assert self.most is not None
        schedule = steps.schedule
        # k records of one person, each by a coin of its own
        return subsampled_group(schedule.sampling_rate, noise_multiplier, schedule.steps, self.most)


@value
class People:
    """A person, with all of its records, is what cannot be told; not one record alone.

    Args:
        of: (n,) whose each record of the loader is: names or numbers.
        most: Records of one person that are used, the first in the loader's order; all of them
            when left out.
        drawn: people: persons are drawn, with all of their records, and the sum of these is
            clipped to C. records: every record is drawn and clipped by itself, and k = most of one
            person's are accounted together, which costs more noise.

    Source: Charles et al. (2024), "Fine-tuning large language models with user-level differential
        privacy".
    """

    of: Any
    most: Count | None = None
    drawn: Literal["people", "records"] = "people"

    def _together(self) -> None:
        if self.drawn == "records" and self.most is None:
            raise ValueError("most: expected a number of records where records are drawn, got none")

    @property
    def unit(self) -> PersonUnit:
        """What the certificate follows from: all but who has which record."""
        return PersonUnit(drawn=self.drawn, most=self.most)

    def groups(self, count: int) -> list[Indices]:
        """Return the places of every person's records, of which at most so many are used.

        Raises:
            ValueError: another number of records, or a record of nobody.
        """
        # of a list each as it is: beside words NaN would be a word, and 1 the same as "1"
        listed = isinstance(self.of, (list, tuple))
        names = np.asarray(self.of, dtype=object if listed else None)
        if names.shape != (count,):
            raise ValueError(f"of: expected whose each of {count} records is, got {names.shape}")
        try:
            # two records of nobody may be one person's: NaN alone differs from itself
            missing = np.ma.is_masked(self.of) or bool((names != names).any())
            _, firsts, owners = np.unique(names, return_index=True, return_inverse=True)
        except TypeError:
            missing = True
        if missing:
            raise ValueError(
                "of: expected a name or a number for every record, got some that are missing or "
                "of several kinds"
            )
        # persons in the loader's order: a replaced one moves no other, whatever it is called
        owners = np.argsort(np.argsort(firsts))[owners]
        order = np.argsort(owners, kind="stable")
        ends = np.cumsum(np.bincount(owners))[:-1]
        return [one[: self.most] for one in np.split(order, ends)]
