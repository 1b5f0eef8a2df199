"""Every route of a dock in one table: who may ask, what may be sent along, what it may cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Mount, Route, compile_path
from starlette.types import Scope

from tacit_dock.api.access import developer, reader
from tacit_dock.records import Filters
from tacit_dock.settings import DockSettings
from tacit_dock.submissions import DIGESTS, FILES, limits_of

HEAD, RULE = "tacit.head", "tacit.rule"
SCHEME = "token"
# A developer has a token in a header, or where it is a page's form in its first field; a reader
# needs one where the dock is private; anybody may ask for what tells nothing of a record.
Who: TypeAlias = Literal["developer", "form", "reader", "anybody"]
LEARNWARE = "/v1/learnwares/{identifier}"
# What a cache may do with an answer: ask again before it gives it, or keep nothing of it.
ASK, NOTHING = "no-cache", "no-store"
# In requests, of which a minute has so many: a search compares, a submission is checked and synced.
COMPARED, KEPT = 2, 5
FILTERS = tuple(field.name for field in fields(Filters))
SUBMITTED = (*FILES, *DIGESTS)
# Bytes of the fields of a page's form; a character of a reason has at most four.
TEXTS = {"token": 400, "key": 400, "reason": 2000, **dict.fromkeys(FILTERS, 400)}


@dataclass(frozen=True)
class Rule:
    """What holds of one route.

    Attributes:
        method: of HTTP; where it is GET, HEAD is too.
        path: with the names of its parts.
        who: may ask.
        parts: of the body that are taken; a file alone where it is one name, none for no body.
        cost: how many of the requests of a minute it counts for.
        cache: ``Cache-Control`` of what it answers; of a refusal it is ``no-store``.
    """

    method: str
    path: str
    who: Who
    parts: tuple[str, ...] = ()
    cost: int = 1
    cache: str = ASK

    def limits(self, settings: DockSettings) -> dict[str, int]:
        """Return how many bytes each part of its body may have."""
        known = {**limits_of(settings), **TEXTS}
        return {name: known[name] for name in self.parts}


RULES = (
    Rule("GET", "/v1/health", "anybody", cache=NOTHING),
    Rule("GET", "/v1/ready", "anybody", cache=NOTHING),
    Rule("GET", "/metrics", "anybody", cache=NOTHING),
    Rule("GET", "/openapi.json", "anybody"),
    Rule("GET", "/static/{path:path}", "anybody"),
    Rule("GET", "/v1/spaces", "reader"),
    Rule("POST", "/v1/search", "reader", ("specification",), COMPARED, NOTHING),
    Rule("GET", "/v1/learnwares", "reader"),
    Rule("POST", "/v1/learnwares", "developer", SUBMITTED, KEPT, NOTHING),
    Rule("GET", LEARNWARE, "reader"),
    Rule("PUT", LEARNWARE, "developer", SUBMITTED, KEPT, NOTHING),
    Rule("DELETE", LEARNWARE, "developer", cache=NOTHING),
    *(
        Rule("GET", f"{LEARNWARE}/{name}", "reader")
        for name in ("specification", "model", "release", "card")
    ),
    Rule("GET", "/", "reader"),
    Rule("GET", "/search", "reader", cost=COMPARED),
    Rule("POST", "/search", "reader", ("specification", *FILTERS), COMPARED, NOTHING),
    Rule("GET", "/learnwares/{identifier}", "reader"),
    Rule("GET", "/submit", "reader", cache=NOTHING),
    Rule("POST", "/submit", "form", (*SUBMITTED, "token", "key"), KEPT, NOTHING),
    Rule("GET", "/learnwares/{identifier}/withdraw", "reader", cache=NOTHING),
    Rule("POST", "/learnwares/{identifier}/withdraw", "form", ("token", "reason"), cache=NOTHING),
)
PATTERNS = tuple((path, compile_path(path)[0]) for path in dict.fromkeys(r.path for r in RULES))
BY_PLACE = {(rule.method, rule.path): rule for rule in RULES}
ASKS: dict[Who, set[Any]] = {
    "developer": {developer}, "form": {reader}, "reader": {reader}, "anybody": set()
}  # fmt: skip


def check_routes(routers: Iterable[APIRouter], plain: Iterable[BaseRoute] = ()) -> None:
    """Refuse to start where a route is in no rule, a rule has no route, or asks somebody else.

    Args:
        routers: of the routes that ask.
        plain: routes and folders of files that ask nobody.

    Raises:
        RuntimeError: the first such route.
    """
    left = dict(BY_PLACE)
    for held in plain:
        if isinstance(held, (Route, Mount)) and not isinstance(held, APIRoute):
            path = f"{held.path}/{{path:path}}" if isinstance(held, Mount) else held.path
            rule = left.pop(("GET", path), None)
            if rule is None or rule.who != "anybody":
                raise RuntimeError(f"GET {path} is in no rule")
    for route in _routes(routers):
        for method in route.methods or ():
            rule = left.pop((method, route.path), None)
            if rule is None:
                raise RuntimeError(f"{method} {route.path} is in no rule")
            asked = {held.call for held in _below(route.dependant)} & {developer, reader}
            if asked != ASKS[rule.who]:
                raise RuntimeError(
                    f"{method} {route.path} does not check the rights that its rule names"
                )
    if left:
        raise RuntimeError(f"{' '.join(next(iter(left)))} has a rule and no route")


def describe_security(told: dict[str, Any]) -> None:
    """Add to an OpenAPI description which operations need a token."""
    schemes = told.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes[SCHEME] = {
        "type": "http",
        "scheme": "bearer",
        "description": "Made by the operator: tacit dock token create DEVELOPER.",
    }
    needed: dict[str, list[dict[str, list[str]]]] = {
        "developer": [{SCHEME: []}],
        "reader": [{}, {SCHEME: []}],
        "anybody": [],
    }
    for path, operations in told["paths"].items():
        for method, operation in operations.items():
            operation["security"] = needed[BY_PLACE[method.upper(), path].who]


def methods_of(path: str) -> list[str]:
    """Return the methods that are done at a path, sorted; none where nothing is there.

    Example:
        >>> methods_of("/v1/health"), methods_of("/v1/nothing")
        (['GET', 'HEAD', 'OPTIONS'], [])
    """
    known = {path_of for path_of, pattern in PATTERNS if pattern.fullmatch(path)}
    found = {rule.method for rule in RULES if rule.path in known}
    if "GET" in found:
        found.add("HEAD")
    return sorted({*found, "OPTIONS"}) if found else []


def place_of(path: str) -> str | None:
    """Return the path of the rules that a request's path is of, None where nothing is there.

    Example:
        >>> place_of("/v1/learnwares/0123/card"), place_of("/etc/passwd")
        ('/v1/learnwares/{identifier}/card', None)
    """
    return next((path_of for path_of, pattern in PATTERNS if pattern.fullmatch(path)), None)


def rule_of(scope: Scope) -> Rule | None:
    """Return what holds of a request, None where nothing is done."""
    found: Rule | None = scope.get(RULE)
    return found


def is_head(scope: Scope) -> bool:
    """Whether a request wants the head of an answer alone."""
    return bool(scope.get(HEAD))


def _routes(routers: Iterable[APIRouter]) -> Iterator[APIRoute]:
    return (route for held in routers for route in held.routes if isinstance(route, APIRoute))


def _below(dependant: Any) -> Iterator[Any]:
    for held in dependant.dependencies:
        yield held
        yield from _below(held)
