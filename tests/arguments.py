"""Arguments that no function can use, and a function called with each of them."""

import dataclasses
import inspect

import numpy as np

HOSTILE = [
    float("nan"),
    float("inf"),
    -1,
    0,
    10**400,
    "x",
    None,
    True,
    1j,
    object(),
    {"a": 1},
    [],
    [[]],
    [1, float("nan")],
    [[1, 2], [3]],
    np.ones((2, 3)),
    np.array([[1.0, 2.0], [0.0, 1.0]]),
    -np.eye(3),
    np.ones((2, 2, 2)),
]


def check(function, arguments, options):
    """Call with every hostile value in every place; the call as it stands must succeed."""
    function(*arguments, **options)
    refused = 0
    for hostile in HOSTILE:
        for place in range(len(arguments)):
            given = list(arguments)
            given[place] = hostile
            refused += is_refused(function, given, options)
        for name in options:
            refused += is_refused(function, arguments, {**options, name: hostile})
    # NaN, text and an object at least are refused everywhere.
    assert refused >= 3 * (len(arguments) + len(options)) - len(options)


def is_refused(function, arguments, options):
    try:
        function(*arguments, **options)
    except ValueError:
        return True
    return False


def asked(function, kind):
    """A function that takes the fields of its value as keywords: a test changes them one by one."""
    parameters = inspect.signature(function).parameters.values()
    place = next(one.name for one in parameters if isinstance(one.default, kind))
    names = {field.name for field in dataclasses.fields(kind)}

    def call(*given, **named):
        how = kind(**{name: named.pop(name) for name in list(named) if name in names})
        return function(*given, **named, **{place: how})

    return call
