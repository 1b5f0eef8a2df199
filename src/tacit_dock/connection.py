"""One host that answers over HTTP: what is sent again, what is refused, what is downloaded."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tacit._ground.checks import integer, positive
from tacit._ground.lazy import install_with
from tacit.documents import MALFORMED

if TYPE_CHECKING:
    import httpx

TOKEN = re.compile(r"[\x21-\x7e]{1,400}")
BAD = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
# Statuses after which the same request may be sent again.
AGAIN = (408, 429, 502, 503, 504)
LONGEST_WAIT, LONGEST_DETAIL = 30.0, 500
CHUNK = 1 << 20


class DockError(ValueError):
    """What a dock answered instead of what was asked for.

    Attributes:
        status: of HTTP; None where it did not answer.
        problem: the members of its RFC 9457 answer.

    Example:
        >>> DockError("the dock refused it (409 Conflict): it is there", 409).status
        409
    """

    def __init__(
        self, sentence: str, status: int | None = None, problem: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status, self.problem = status, dict(problem or {})


@contextlib.contextmanager
def as_docks_answer() -> Iterator[None]:
    """Turn an answer that lacks what a dock tells into a ``DockError``."""
    try:
        yield
    except MALFORMED:
        raise DockError(
            "expected what a dock tells: the address is of something else, or of another version"
        ) from None


class Connection:
    """A host and a token that is sent to it alone; no redirect is followed.

    Args:
        url: of the host.
        token: of a developer, or None.
        timeout: seconds that the host may be silent.
        tries: how often a request is sent where the host does not answer or is busy.
        allow_http: send the token in the clear to another machine.
    """

    def __init__(
        self, url: str, token: str | None, timeout: float, tries: int, allow_http: bool
    ) -> None:
        try:
            import httpx
        except ImportError:
            raise ImportError(f"the client needs httpx: {install_with('dock')}") from None
        self.url = _checked_url(url)
        self._tries = integer("tries", tries, minimum=1, maximum=20)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if token is not None:
            _check_token(self.url, token, allow_http)
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=positive("timeout", timeout),
            follow_redirects=False,
            # a proxy of the environment is another machine, which would read the token
            trust_env=not _is_here(urlsplit(self.url).hostname or ""),
        )

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request that may be sent again, until it is answered for good."""
        import httpx

        for left in range(self._tries - 1, -1, -1):
            wait = 0.5 * 2 ** (self._tries - 1 - left)
            try:
                answer = self._http.request(method, path, **more)
            except httpx.TransportError as error:
                if not left:
                    raise _silent(self.url, error) from None
            else:
                if answer.status_code not in AGAIN or not left:
                    return _checked(answer)
                wait = max(wait, _retry_after(answer))
                if wait > LONGEST_WAIT:
                    return _checked(answer)
            time.sleep(wait)
        raise AssertionError

    def download(self, path: str, revision: str, digest: str, target: Path) -> None:
        """Write what has this digest to a path, and nothing else."""
        import httpx

        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        hashed = hashlib.sha256()
        try:
            with (
                open(partial, "xb") as stream,
                self._http.stream("GET", path, params={"revision": revision}) as answer,
            ):
                if answer.status_code != 200:
                    answer.read()
                    _checked(answer)
                    raise DockError(f"expected 200, got {answer.status_code}", answer.status_code)
                for chunk in answer.iter_raw(CHUNK):
                    hashed.update(chunk)
                    stream.write(chunk)
                stream.flush()
                os.fsync(stream.fileno())
            if f"sha256:{hashed.hexdigest()}" != digest:
                raise DockError(
                    f"{target.name}: what arrived does not have the digest of the record; "
                    "nothing was kept"
                )
            os.replace(partial, target)
        except httpx.TransportError as error:
            raise _silent(self.url, error) from None
        except OSError as error:
            raise ValueError(f"folder: cannot write {target} ({error.strerror})") from None
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()


def _checked(answer: httpx.Response) -> httpx.Response:
    """Return an answer that is none of a refusal."""
    status = answer.status_code
    if answer.is_success:
        return answer
    if answer.is_redirect:
        raise DockError("the dock answered with another address, which is not followed", status)
    told: Any = None
    with contextlib.suppress(ValueError):
        told = answer.json()
    problem = told if isinstance(told, dict) else {}
    detail = BAD.sub(" ", str(problem.get("detail", "it says nothing more")))[:LONGEST_DETAIL]
    withdrawal = problem.get("withdrawal")
    if isinstance(withdrawal, dict) and withdrawal.get("reason"):
        detail += f" ({BAD.sub(' ', str(withdrawal['reason']))[:LONGEST_DETAIL]})"
    raise DockError(f"the dock refuses it ({status}): {detail}", status, problem)


def json_object(answer: httpx.Response) -> dict[str, Any]:
    """Return the JSON object of an answer."""
    try:
        found: Any = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise DockError("expected JSON of a dock: the address is of something else")
    return found


def _silent(url: str, error: Exception) -> DockError:
    return DockError(f"the dock at {url} does not answer ({type(error).__name__})")


def _retry_after(answer: httpx.Response) -> float:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0.0


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018
    except (ValueError, AttributeError, TypeError):
        raise ValueError("url: expected http or https, a host and a port") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("url: expected http:// or https:// and a host")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("url: expected no user, query or fragment in it")
    return url.rstrip("/")


def _check_token(url: str, token: str, allow_http: bool) -> None:
    if not TOKEN.fullmatch(token):
        raise ValueError("token: expected printable ASCII characters without a space")
    parts = urlsplit(url)
    if parts.scheme == "http" and not allow_http and not _is_here(parts.hostname or ""):
        raise ValueError(
            "url: expected https, or allow_http: the token would be sent in the clear to another "
            "machine"
        )


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
