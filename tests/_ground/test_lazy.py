"""Packages whose names are imported when they are first asked for."""

import os
import subprocess
import sys

from tacit._ground.lazy import listed


def test_a_stub_says_where_names_live(tmp_path):
    stub = tmp_path / "__init__.pyi"
    stub.write_text(
        '"""ε."""\n\nfrom . import inner as inner\nfrom .one.two import a as a\n', "utf-8"
    )
    with stub.open("a", encoding="utf-8") as file:
        file.write('from .one.two import b as b\n\n__all__ = ["a", "b", "inner"]\n')
    assert listed(str(tmp_path / "__init__.py")) == ({"inner"}, {"one.two": ["a", "b"]})


def test_stubs_are_read_whatever_the_locale_says():
    # δ stands in a stub, and this locale has ASCII alone
    code = "import tacit.accounting as one; print(one.gaussian(1.0, 1.0).delta(1.0) > 0.1269)"
    where = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=where, capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr
