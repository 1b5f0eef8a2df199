"""Why a dock refuses: one exception with the HTTP status that says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class RefusedError(ValueError):
    """A request that a dock does not do, and why.

    Attributes:
        status: of the HTTP answer.
        detail: a sentence.
        retry_after: seconds after which the same request may be done, None where never.
        headers: of the answer.
        more: further members of the answer, such as the fields in which two spaces differ.

    Example:
        >>> RefusedError(409, "this revision is there already").status
        409
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        retry_after: int | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.retry_after, self.more = status, detail, retry_after, more
        self.headers = dict(headers or {})


class UnavailableError(RuntimeError):
    """The database or the disk did not answer: the request may be tried again."""
