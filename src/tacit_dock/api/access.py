"""Who asks: a developer by a token, or somebody at an address."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from tacit_dock.api.arriving import address_of, network_of
from tacit_dock.api.state import dock_of
from tacit_dock.errors import RefusedError

SCHEME = "bearer"
# Of the request, in the scope: how many requests it counts for.
COST = "tacit.cost"


async def reader(request: Request) -> str | None:
    """Return the developer who asks, None where anybody may; count the request.

    Raises:
        RefusedError: the token is forged, expired or revoked, or missing where the dock is private
            (401), or there were too many requests (429).
    """
    dock, cost = dock_of(request), request.scope[COST]
    address = network_of(address_of(request.scope))
    given = request.headers.get("authorization")
    if given is None:
        dock.rates.take(f"address {address}", cost)
        if dock.settings.private:
            raise RefusedError(401, "expected a token: this dock is private")
        return None
    scheme, _, text = given.partition(" ")
    known = scheme.lower() == SCHEME
    token = await run_in_threadpool(dock.store.find_token, text.strip()) if known else None
    if token is None or not token.holds:
        dock.rates.take(f"address {address}", cost)
        raise RefusedError(401, "expected a token that this dock made and that still holds")
    dock.rates.take(f"developer {token.developer}", cost)
    return token.developer


async def developer(request: Request) -> str:
    """Return the developer who asks.

    Raises:
        RefusedError: as `reader`, or there is no token (401).
    """
    found = await reader(request)
    if found is None:
        raise RefusedError(401, "expected a token: tacit dock token create makes one")
    return found


Reader: TypeAlias = Annotated[str | None, Depends(reader)]
# Of routes that only readers may ask, whoever they are.
READERS = [Depends(reader)]
Developer: TypeAlias = Annotated[str, Depends(developer)]
