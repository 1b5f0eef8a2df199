"""What the answers hold, for the OpenAPI description."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

IDENTIFIER = "0f2a6c5d9b1e4f7aa3c8d0e6b7f41c22"
REVISION = "sha256:" + "4f" * 32
GUARANTEE: Any = {
    "type": "GaussianDP",
    "sentence": (
        "Told that one of two neighbouring inputs (replace one record) was used, an attacker "
        "guesses which at most 59.9% of the time (guessing blind: 50.0%): μ = 0.5."
    ),
    "epsilon": 1.9931,
    "delta": 1e-05,
    "advantage": 0.1975,
    "checked": "claimed by the developer; the dock cannot run it again",
    "all": [],
}
SUMMARY: Any = {
    "id": IDENTIFIER,
    "title": "Digits 0 to 4",
    "developer": "vision-team",
    "status": "listed",
    "modality": "image",
    "tags": ["mnist"],
    "created": "2026-01-02T03:04:05.000006+00:00",
    "updated": "2026-01-02T03:04:05.000006+00:00",
    "revision": REVISION,
    "guarantee": GUARANTEE,
}


class AnswerShape(BaseModel):
    """An object of an answer."""

    model_config = ConfigDict(extra="allow")


class TogetherShape(AnswerShape):
    """What all revisions that are kept tell, if their records are the same; ε null for no bound."""

    revisions: int
    epsilon: float | None
    delta: float


class GuaranteeShape(AnswerShape):
    """The headline of what is claimed: ε and δ, and the advantage over guessing at even odds.

    It is of the newest revision alone; ``together`` is of all, where there are several.
    """

    type: str
    sentence: str
    epsilon: float | None
    delta: float | None
    advantage: float | None
    checked: str
    shift: float | None
    together: TogetherShape | None
    all: list[dict[str, Any]]


class PolicyShape(AnswerShape):
    """What the policy made of a submission, and why."""

    decision: str
    reason: str


class SubmissionShape(AnswerShape):
    """The answer to a submission."""

    id: str
    revision: str
    developer: str
    created: str
    updated: str
    status: str
    guarantee: GuaranteeShape | None
    policy: PolicyShape

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "example": {
                **{n: v for n, v in SUMMARY.items() if n not in ("title", "modality", "tags")},
                "policy": {"decision": "listed", "reason": GUARANTEE["checked"]},
            }
        },
    )


class SummaryShape(AnswerShape):
    """What a list tells of a learnware."""

    id: str
    title: str
    developer: str
    status: str
    modality: str
    tags: list[str]
    created: str
    updated: str
    revision: str
    guarantee: GuaranteeShape | None


class ListShape(AnswerShape):
    """Some learnwares, and the cursor of the next ones."""

    items: list[SummaryShape]
    next: str | None

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"example": {"items": [SUMMARY], "next": "YWZ0ZXI6NA"}}
    )


class RecordShape(SummaryShape):
    """All that is told of a learnware."""

    policy: PolicyShape
    space: dict[str, Any]
    method: str
    notes: list[str]
    card: dict[str, Any]
    model: dict[str, Any] | None
    history: list[dict[str, Any]]
    withdrawal: dict[str, Any] | None


class FoundShape(AnswerShape):
    """One learnware that a search found."""

    rank: int
    similarity: float
    id: str
    title: str
    guarantee: GuaranteeShape | None
    classes: list[str] = []
    shared: list[str] | None = None
    inputs: str = ""


class VerdictShape(AnswerShape):
    """Whether the best match is one."""

    good_match: bool
    threshold: float
    sentence: str


class SearchShape(AnswerShape):
    """What a search found."""

    space: str
    kind: str
    compared: int
    exact: bool
    items: list[FoundShape]
    verdict: VerdictShape
    classes: list[str] = []
    notes: list[str] = []

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "example": {
                "space": REVISION,
                "kind": "task",
                "compared": 40,
                "exact": True,
                "items": [
                    {**SUMMARY, "rank": 1, "similarity": 0.83},
                ],
                "verdict": {
                    "good_match": True,
                    "threshold": 0.31,
                    "sentence": "A match: the best of 40 has similarity 0.830.",
                },
            }
        },
    )


class SpacesShape(AnswerShape):
    """Spaces in which learnwares are listed."""

    items: list[dict[str, Any]]


class HealthShape(AnswerShape):
    """That the dock answers, its database too; ``degraded`` where an operator has to look."""

    status: str
    why: str | None = None
    database: str
    change: int | None = None
    index: dict[str, Any] | None = None


class ReadyShape(AnswerShape):
    """That requests may be sent to this server."""

    status: str


class ProblemShape(AnswerShape):
    """A refusal, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str
    instance: str

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "example": {
                "type": "about:blank",
                "title": "Conflict",
                "status": 409,
                "detail": "this revision is there already",
                "instance": "/v1/learnwares",
            }
        },
    )


REASONS = {
    400: "Malformed, or not what its digest says",
    401: "No token, or one that is forged, expired or revoked",
    403: "Another developer's record",
    404: "No such learnware, content or path",
    408: "The body came too slowly",
    409: "There already, or not comparable",
    410: "Withdrawn",
    412: "Revised meanwhile",
    413: "Too large",
    416: "No such part of it",
    415: "Not the format that is taken, or compressed",
    422: "Not as it must be",
    428: "The header that is required is missing",
    429: "Too many requests or the quota is used up",
    507: "The disk is full; a withdrawal is still done",
    503: "Too busy, or the database does not answer",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return how refusals with some statuses are described; those of every path among them."""
    return {
        status: {
            "description": REASONS[status],
            "content": {
                "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
            },
        }
        for status in sorted({*statuses, 401, 422, 429, 503})
    }
