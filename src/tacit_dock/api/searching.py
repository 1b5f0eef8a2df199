"""Search by a task's specification, and the spaces in which that is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from tacit.specifications import Specification
from tacit.specifications.identification import judge_match
from tacit_dock.api.access import READERS
from tacit_dock.api.bodies import received_bytes
from tacit_dock.api.learnwares import Narrowed
from tacit_dock.api.problems import Json
from tacit_dock.api.shapes import SearchShape, SpacesShape, problems
from tacit_dock.api.state import Dock, dock_of
from tacit_dock.errors import RefusedError
from tacit_dock.records import Filters
from tacit_dock.search.index import Match, Summary, nearest_space
from tacit_dock.submissions import read_submitted
from tacit_dock.texts import json_text

router = APIRouter(prefix="/v1", tags=["search"])

MEDIA = "application/octet-stream"
# The objective under which a class is known by its name.
BY_NAME = "labels"
SHOWN_NAMES = 5
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A specification of a task, as Specification.save writes it.",
        "content": {MEDIA: {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post(
    "/search",
    response_model=SearchShape,
    responses=problems(400, 408, 409, 413, 415),
    openapi_extra=BODY,
    dependencies=READERS,
)
async def search(
    request: Request,
    filters: Narrowed,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
) -> Response:
    """Find the learnwares whose specifications are most similar to that of a task."""
    dock = dock_of(request)
    media = request.headers.get("content-type", MEDIA).partition(";")[0].strip().lower()
    if media != MEDIA:
        raise RefusedError(415, f"expected {MEDIA}")
    settings = dock.settings
    content = await received_bytes(request, settings.max_specification, settings)
    text = await dock.compared(lambda: found(dock, content, limit, filters).to_json())
    return Response(text, media_type=Json.media_type)


@dataclass(frozen=True)
class SearchItem:
    """One learnware of an answer: how similar it is, which classes it calls as the task does."""

    similarity: float
    shared: Sequence[str] | None
    summary: Summary

    def to_json(self, rank: int) -> str:
        """Return the item as JSON, its summary as it is held."""
        head = json_text({"rank": rank, "similarity": self.similarity, "shared": self.shared})
        return f"{head[:-1]},{self.summary.text[1:]}"


@dataclass(frozen=True)
class SearchAnswer:
    """What a search found, the most similar first."""

    query: Specification
    match: Match
    items: tuple[SearchItem, ...]

    @property
    def told(self) -> dict[str, Any]:
        """All of the answer but its items, JSON-able."""
        query, match = self.query, self.match
        best = self.items[0].similarity if self.items else None
        verdict = judge_match(best, match.compared, query.space.size)
        return {
            "space": query.space.digest,
            "kind": query.kind,
            "compared": match.compared,
            "exact": match.exact,
            "verdict": {
                "good_match": verdict.good_match,
                "threshold": verdict.threshold,
                "sentence": verdict.sentence,
            },
            "classes": list(query.classes),
            "notes": notes_of(query, self.items),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the answer JSON-able."""
        items = [
            {"rank": rank, "similarity": one.similarity, "shared": one.shared, **one.summary.told}
            for rank, one in enumerate(self.items, 1)
        ]
        return {**self.told, "items": items}

    def to_json(self) -> str:
        """Return the answer as JSON."""
        items = ",".join(one.to_json(rank) for rank, one in enumerate(self.items, 1))
        return f'{json_text(self.told)[:-1]},"items":[{items}]}}'


def found(dock: Dock, content: bytes, limit: int, filters: Filters) -> SearchAnswer:
    """Return what a search answers to the bytes of a specification.

    Raises:
        RefusedError: they are none (415, 422), or no learnware is of its space (409).
    """
    query = read_submitted(content)
    if not query.vector.any():
        raise RefusedError(422, "specification: expected one that is not zero: it has no direction")
    match = dock.index.search(query, limit, filters)
    if not match.compared:
        _check_space(dock, query)
    held = dock.index.summaries(one.id for one in match.found)
    items = tuple(
        SearchItem(one.similarity, shared_names(query, held[one.id].told["classes"]), held[one.id])
        for one in match.found
        if one.id in held
    )
    return SearchAnswer(query, match, items)


def shared_names(query: Specification, classes: Sequence[str]) -> list[str] | None:
    """Return the classes that a model calls as the task does, in the task's order.

    None where names do not matter, or one of the two does not tell them.
    """
    if query.space.output != BY_NAME or not query.classes or not classes:
        return None
    known = set(classes)
    return [name for name in query.classes if name in known]


def notes_of(query: Specification, items: Sequence[SearchItem]) -> list[str]:
    """Say where names keep a model from being found, or differ in the best, or sizes do."""
    return [*_names(query, items), *_sizes(query, items)]


def _sizes(query: Specification, items: Sequence[SearchItem]) -> list[str]:
    best = items[0].summary.told["inputs"] if items else ""
    if not query.inputs or not best or query.inputs == best:
        return []
    return [
        f"Your pictures are {query.inputs}; the most similar model was described with pictures of "
        f"{best}: bring yours to that size before you use it."
    ]


def _names(query: Specification, items: Sequence[SearchItem]) -> list[str]:
    told = [item for item in items if item.shared is not None]
    if not told:
        return []
    if not any(item.shared for item in told):
        others = ", ".join(told[0].summary.told["classes"][:SHOWN_NAMES])
        return [
            "None of these models calls a class as your task does, and a class is known by its "
            f"name. Name yours as a developer does, such as {others}, or make task and models with "
            "--objective mean."
        ]
    shared = set(told[0].shared or ())
    missing = [name for name in query.classes if name not in shared]
    if told[0] is items[0] and missing:
        names = ", ".join(missing[:SHOWN_NAMES])
        return [f"The most similar model has no class of these names: {names}."]
    return []


@router.get("/spaces", response_model=SpacesShape, responses=problems(), dependencies=READERS)
def spaces(request: Request) -> Response:
    """List the spaces of listed learnwares, and how many are in each."""
    return Json({"items": dock_of(request).store.spaces()})


def _check_space(dock: Dock, query: Specification) -> None:
    if dock.index.holds(query.space):
        return
    present = dock.store.spaces()
    if present and query.space.digest not in {held["digest"] for held in present}:
        differing = nearest_space(query.space, present)
        raise RefusedError(
            409,
            f"no learnware is of this space: the nearest differs in {', '.join(differing)}",
            differing=list(differing),
        )
