"""The machine itself: it sees what is told, and nothing that is released."""

import os
import secrets
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from tacit.covariance import Isotropic
from tacit.covariance.publication import publish


def noised(secret):
    return {"released": publish(Isotropic(1.0, 2), np.asarray(secret, dtype=float)).tolist()}


def test_what_is_released_is_given_back(interference):
    pair = interference.calls(noised, [0.0, 1.0], [5.0, -7.0])
    pair.assert_equal()
    assert pair.first.passed[0].shape == (2,) or pair.first.passed[0].shape == (1, 2)


@pytest.mark.parametrize(
    "leak",
    [
        lambda secret: {**noised(secret), "count": len(secret)},
        lambda secret: (noised(secret), print("largest", max(secret)))[0],
        lambda secret: (noised(secret), print(sum(secret), file=sys.stderr))[0],
        lambda secret: (noised(secret), warnings.warn(f"{max(secret)}", stacklevel=1))[0],
        lambda secret: (noised(secret), Path(f"{max(secret)}.txt").write_text(""))[0],
        lambda secret: (noised(secret), Path("sum.txt").write_text(f"{sum(secret)}"))[0],
        lambda secret: noised(secret) if max(secret) < 2 else 1 / 0,
        lambda secret: noised(secret) if max(secret) < 2 else (noised(secret), noised(secret))[0],
        lambda secret: (noised(secret), os.open("f", os.O_CREAT, 0o600 + 8 * len(secret)))[0],
    ],
)
def test_what_is_told_beside_it_is_seen(interference, leak):
    with pytest.raises(AssertionError):
        interference.calls(leak, [0.0, 1.0, 1.0], [0.0, 3.0]).assert_equal()


def test_randomness_of_the_system_is_the_same_in_both_runs(interference):
    def salted(secret):
        return {**noised(secret), "salt": secrets.token_hex(8), "bytes": os.urandom(4).hex()}

    interference.calls(salted, [0.0, 1.0], [2.0, 3.0]).assert_equal()


def test_a_file_of_the_holder_says_so(interference):
    def written(secret):
        noised(secret)
        Path("kept.txt").write_text(f"{sum(secret)}")

    pair = interference.calls(written, [0.0, 1.0], [2.0, 3.0])
    with pytest.raises(AssertionError, match="does not say so"):
        pair.assert_equal(holder={"kept.txt"})
