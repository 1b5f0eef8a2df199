"""Which tokens an attacker tries in the last place, as a value that needs no model."""

from __future__ import annotations

from typing import Any, Literal

from tacit._ground.checks import choice
from tacit._ground.values import Count, value


@value
class CandidateTokens:
    """Which tokens an attacker tries in the last place, and how likely each is before the release.

    Args:
        tokens: ``"model"``, its ``count`` likeliest tokens after the earlier ones;
            ``"vocabulary"``; or a list of tokens, (m,).
        count: Candidates taken from the model, and as many from public prompts.
        token_law: What the model predicts after the earlier tokens, or the same for all.
        public: Last tokens of public prompts, (M,): the ``count`` commonest are candidates too, and
            the attacker who does best of four weighs them by the model, by how often they occur, by
            the product or by the mean of both. The blind one is the best of the four without the
            release.

    Raises:
        ValueError: a field out of its range.

    Example:
        >>> CandidateTokens(count=20)
        CandidateTokens(count=20)
    """

    tokens: Any = "model"
    count: Count = 256
    token_law: Literal["model", "uniform"] = "model"
    public: Any = None

    def _together(self) -> None:
        if isinstance(self.tokens, str):
            choice("tokens", self.tokens, ("model", "vocabulary"))


LIKELIEST = CandidateTokens()
