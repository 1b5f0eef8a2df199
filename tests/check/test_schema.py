"""The JSON Schema of the node says what the reader of the checker says."""

import json
from pathlib import Path

import jsonschema_rs
import pytest

from tacit_check.claims import CLAIMS
from tacit_check.mechanisms import KINDS
from tests.check.test_hostile import REFUSED

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "reference" / "proof-node.schema.json").read_text("utf-8"))
LINES = (Path(__file__).parent / "vectors" / "vectors.jsonl").read_text("utf-8").splitlines()
# Refused for what a schema does not say: a range, a sum, a level, a count of work, bytes.
BEYOND = {
    "negative-noise",
    "no-noise",
    "delta-above-one",
    "rate-above-one",
    "wrong-adjacency",
    "levels",
    "count-beyond",
    "product-of-counts",
    "wide-table",
    "ragged-table",
    "control-characters",
    "distinct-parts",
    "distinct-parts-257",
    "nodes",
    "samples-of-samples",
    "indefinite",
    "corners",
    "table-of-work",
}


def test_it_is_a_schema_that_every_vector_fits():
    jsonschema_rs.meta.validate(SCHEMA)
    validator = jsonschema_rs.validator_for(SCHEMA)
    for line in LINES[::7]:
        assert validator.is_valid(json.loads(line)["proof"]), line


@pytest.mark.parametrize(
    ("name", "content"), [(name, one) for name, one in REFUSED.items() if isinstance(one, dict)]
)
def test_what_it_refuses_is_refused(name, content):
    valid = jsonschema_rs.validator_for(SCHEMA).is_valid(content["proof"])
    assert valid == (name in BEYOND)


def test_nodes_and_claims_have_the_fields_that_are_read():
    def fields(kind):
        return {
            one["properties"]["kind"]["const"]: (
                sorted(one["required"]),
                sorted(one["properties"]),
            )
            for one in SCHEMA["$defs"][kind]["oneOf"]
        }

    assert fields("mechanism") == {
        kind: (sorted(("kind", *needed)), sorted(("kind", *needed, *optional)))
        for kind, (_, needed, optional, *_) in KINDS.items()
    }
    assert fields("claim") == {
        kind: (sorted(("kind", *needed)), sorted(("kind", *needed, *optional)))
        for kind, (*_, needed, optional) in CLAIMS.items()
    }


def test_the_page_of_the_format_names_every_kind_and_field():
    page = (ROOT / "docs" / "reference" / "format.md").read_text("utf-8")
    for kind, (_, needed, optional, *_) in KINDS.items():
        assert f"| `{kind}` |" in page
        assert all(f"`{name}`" in page for name in (*needed, *optional))
    for kind in CLAIMS:
        assert f"| `{kind}` |" in page
