"""What a mechanism is: a frozen value that is fitted, read, attacked, certified and named."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from tacit.guarantees.base import Guarantee
from tacit.hidden_states.audit.points import AttackPoint, Point, Setting
from tacit.hidden_states.audit.request import SweepRequest
from tacit.hidden_states.spelling import SpelledValue

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.hidden_states.audit.attackers import Attacker
    from tacit.hidden_states.audit.guessers import Observed
    from tacit.hidden_states.audit.laboratory import Laboratory

# log-probabilities (m, V) of the next token for some rows of the release
RowPredictions: TypeAlias = "Callable[[slice], Tensor]"


class Trial(ABC):
    """A mechanism fitted to one layer at one setting, its release of the bank drawn once.

    Attributes:
        rank: directions that receive noise, or values that the release takes.
        predicted_kl: ½ tr(FΣ) in nats, where the release is the state and noise of covariance Σ.
        epsilon_random: Rényi ε of order 2 over random pairs of the bank, where there is one.
        codes: codes that the release can take, of codes.
    """

    rank: int
    codes: int | None = None
    predicted_kl: float | None = None
    epsilon_random: float | None = None

    @abstractmethod
    def read(self, reading: str) -> Tensor | RowPredictions:
        """Return what the consumer makes of the held-out prompts, on which use is measured.

        Under protocol A the states (n, d) that the layers above go on from; under protocol B a
        function from rows to log-probabilities of the next token.
        """

    @abstractmethod
    def attack(self, attackers: Sequence[Attacker]) -> tuple[AttackPoint, ...]:
        """Return what each attacker reaches who names the prompt behind a release."""

    def observed(self) -> Observed | None:
        """Return how a release is drawn, for attackers who invert it; None where nobody can say."""
        return None

    def certify(self) -> tuple[Guarantee, ...]:
        """Return what is proven of one release about which prompt of the bank it is.

        A point's bound, nats and ε over nearest neighbours are those of these guarantees.
        """
        return ()


@dataclass(frozen=True)
class Mechanism(SpelledValue, ABC):
    """What can be released of a hidden state: a frozen value, its numbers in its name.

    A sweep asks for ``settings`` and ``readings``, calls ``fit`` once for each setting and measures
    the trial; pages ask for words. Neither knows a mechanism by its name.

    Attributes:
        family: which mechanisms are alike, in every point.
        control: what a control does, after "the control, which"; empty for what is no control.
        proof: by what its bound is proven.
        takes_attackers: whether attackers must be named, for none is exact.
    """

    family: ClassVar[str]
    control: ClassVar[str] = ""
    proof: ClassVar[str] = "a theorem"
    takes_attackers: ClassVar[bool] = False

    @property
    def continues(self) -> bool:
        """Whether it is fitted through the layers above, on calibration prompts."""
        return False

    def settings(
        self, request: SweepRequest, *, calibration: int, vocabulary: int
    ) -> tuple[Setting, ...]:
        """Return what it is fitted at: once, for a mechanism with numbers of its own.

        Args:
            request: what a sweep was asked to measure mechanisms at.
            calibration: public prompts there are.
            vocabulary: tokens there are.

        Raises:
            ValueError: what was asked for is out of range.
        """
        return (Setting(),)

    def readings(self, request: SweepRequest) -> Mapping[str, str]:
        """Return the protocol of every reading: its states under A and its table under B."""
        return {"states": "A", "table": "B"}

    @abstractmethod
    def fit(self, laboratory: Laboratory, setting: Setting, seed: int) -> Trial:
        """Fit it on calibration prompts and draw the release of the bank from a seed."""

    def words(self, point: Point) -> str:
        """Say what is released."""
        return self.name

    def stored(self, point: Point) -> str:
        """Say what is then stored, after "store"."""
        return f"only {self.words(point)}, not the state"

    def mark(self, point: Point) -> str:
        """Say in a word what stands at its bound in the figure; the best of a word is named."""
        return self.name

    def contradiction(
        self, point: Point, guarantees: Sequence[Guarantee], releases: int
    ) -> str | None:
        """Say what of the guarantees of a point cannot be true of it; None where nothing is known.

        Args:
            point: what was measured.
            guarantees: what is said to be proven of it.
            releases: T, how many releases about one prompt they are said to cover.
        """
        return None

    def formula(self, point: Point) -> str:
        """Return the theorem, variables between asterisks; empty where the guarantee says it."""
        return ""

    def caveat(self, point: Point) -> str:
        """Return what the theorem does not say, variables between asterisks; empty for none."""
        return ""


@dataclass(frozen=True)
class Unknown(Mechanism):
    """A mechanism known from a point alone, for the file that defines it was not imported.

    Attributes:
        title: its name in the point.
    """

    title: str

    family = "unknown"
    word = "unknown"

    @property
    def name(self) -> str:
        """The name in the point."""
        return self.title

    def fit(self, laboratory: Laboratory, setting: Setting, seed: int) -> Trial:
        """Refuse: nothing is known of it but what was measured."""
        raise ValueError(f"mechanisms: nothing defines {self.title!r}: import the file that does")
