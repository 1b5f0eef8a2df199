"""How many requests a minute: a bucket of tokens for each who asks, in this process."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from tacit_dock.errors import RefusedError

MOST_KEYS = 20_000


class Rates:
    """Buckets that fill steadily and hold a minute's worth of requests.

    Args:
        per_minute: requests.
        clock: seconds that never go back.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._per_second, self._clock = float(per_minute), per_minute / 60.0, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str, cost: int = 1) -> None:
        """Count one request, which may be worth several; one that costs a whole bucket is done.

        Raises:
            RefusedError: there were too many; it says when to come again (429).
        """
        with self._lock:
            moment = self._clock()
            left, since = self._buckets.pop(key, (self._most, moment))
            left = min(self._most, left + (moment - since) * self._per_second)
            wanted = min(float(cost), self._most)
            allowed = left >= wanted
            self._buckets[key] = (left - allowed * wanted, moment)
            while len(self._buckets) > MOST_KEYS:
                self._buckets.popitem(last=False)
        if not allowed:
            wait = math.ceil((wanted - left) / self._per_second)
            raise RefusedError(429, "too many requests", retry_after=max(wait, 1))
