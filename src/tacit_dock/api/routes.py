"""Every route of a dock in one table: who may ask, and what may be sent along."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import compile_path
from starlette.types import Scope

from tacit_dock.api.access import developer, reader

HEAD = "tacit.head"
SCHEME = "token"
# A developer has a token in a header, or where it is a page's form in its first field; a reader
# needs one where the dock is private; anybody may ask for what tells nothing of a record.
Who: TypeAlias = Literal["developer", "form", "reader", "anybody"]
LEARNWARE = "/v1/learnwares/{identifier}"


@dataclass(frozen=True)
class Rule:
    """What holds of one route.

    Attributes:
        method: of HTTP; where it is GET, HEAD is too.
        path: with the names of its parts.
        who: may ask.
        parts: of the body that are taken; a file alone where it is one name, none for no body.
    """

    method: str
    path: str
    who: Who
    parts: tuple[str, ...] = ()


SUBMITTED = ("specification", "card", "model", "release")
RULES = (
    Rule("GET", "/v1/health", "anybody"),
    Rule("GET", "/v1/ready", "anybody"),
    Rule("GET", "/metrics", "anybody"),
    Rule("GET", "/v1/spaces", "reader"),
    Rule("POST", "/v1/search", "reader", ("specification",)),
    Rule("GET", "/v1/learnwares", "reader"),
    Rule("POST", "/v1/learnwares", "developer", SUBMITTED),
    Rule("GET", LEARNWARE, "reader"),
    Rule("PUT", LEARNWARE, "developer", SUBMITTED),
    Rule("DELETE", LEARNWARE, "developer"),
    *(
        Rule("GET", f"{LEARNWARE}/{name}", "reader")
        for name in ("specification", "model", "release", "card")
    ),
    Rule("GET", "/", "reader"),
    Rule("GET", "/search", "reader"),
    Rule("POST", "/search", "reader", ("specification",)),
    Rule("GET", "/learnwares/{identifier}", "reader"),
    Rule("GET", "/submit", "reader"),
    Rule("POST", "/submit", "form", SUBMITTED),
    Rule("GET", "/learnwares/{identifier}/withdraw", "reader"),
    Rule("POST", "/learnwares/{identifier}/withdraw", "form"),
)
PATTERNS = tuple((path, compile_path(path)[0]) for path in dict.fromkeys(r.path for r in RULES))
BY_PLACE = {(rule.method, rule.path): rule for rule in RULES}
ASKS: dict[Who, set[Any]] = {
    "developer": {developer}, "form": {reader}, "reader": {reader}, "anybody": set()
}  # fmt: skip


def check_routes(routers: Iterable[APIRouter]) -> None:
    """Refuse to start where a route is in no rule, a rule has no route, or asks somebody else.

    Raises:
        RuntimeError: the first such route.
    """
    left = dict(BY_PLACE)
    for route in _routes(routers):
        for method in route.methods or ():
            rule = left.pop((method, route.path), None)
            if rule is None:
                raise RuntimeError(f"{method} {route.path} is in no rule")
            asked = {held.call for held in _below(route.dependant)} & {developer, reader}
            if asked != ASKS[rule.who]:
                raise RuntimeError(f"{method} {route.path} does not ask as its rule says")
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


def is_head(scope: Scope) -> bool:
    """Whether a request wants the head of an answer alone."""
    return bool(scope.get(HEAD))


def _routes(routers: Iterable[APIRouter]) -> Iterator[APIRoute]:
    return (route for held in routers for route in held.routes if isinstance(route, APIRoute))


def _below(dependant: Any) -> Iterator[Any]:
    for held in dependant.dependencies:
        yield held
        yield from _below(held)
