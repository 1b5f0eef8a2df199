"""The tables of a dock."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TEXT

SCHEMA = "4"
# in the place of the schema where the records are elsewhere by now
MOVED = "moved to "
# columns of revisions that a database of an older schema lacks
ADDED = {"1": ("headline", "direction", "epsilon"), "2": ("epsilon",), "3": ()}
metadata = sa.MetaData()

# "schema", and "change": the number of the newest change, whose row every writer locks first
meta_table = sa.Table(
    "dock_meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

# ``digest``: SHA-256 of the token, which itself is nowhere
token_table = sa.Table(
    "dock_tokens",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("developer", sa.Text, nullable=False, index=True),
    sa.Column("created", sa.Text, nullable=False),
    sa.Column("expires", sa.Text, nullable=False),
    sa.Column("revoked", sa.Text),
)

# ``change``: of the newest change to this row; an index reads what is beyond the one it has seen
learnware_table = sa.Table(
    "dock_learnwares",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("developer", sa.Text, nullable=False, index=True),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("created", sa.Text, nullable=False),
    sa.Column("updated", sa.Text, nullable=False),
    sa.Column("change", sa.BigInteger, nullable=False, index=True),
    sa.Column("revision", sa.Text, nullable=False),
    sa.Column("space", sa.Text, nullable=False, index=True),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("modality", sa.Text, nullable=False, index=True),
    sa.Column("guarantee", sa.Text, nullable=False),
    sa.Column("withdrawn", sa.Text),
    sa.Column("reason", sa.Text),
)

# of the newest revision, for filters
tag_table = sa.Table(
    "dock_tags",
    metadata,
    sa.Column("learnware", sa.ForeignKey("dock_learnwares.number"), primary_key=True),
    sa.Column("tag", sa.Text, primary_key=True, index=True),
)

# of title, tags and card of the newest revision
word_table = sa.Table(
    "dock_words",
    metadata,
    # in this order, so that whether one has a word that begins so is one look
    sa.Column("learnware", sa.ForeignKey("dock_learnwares.number"), primary_key=True),
    # compared code by code: in the order of a language "chess" need not follow "c"
    sa.Column("word", sa.Text().with_variant(TEXT(collation="C"), "postgresql"), primary_key=True),
)

# append-only until a withdrawal empties the columns of content
revision_table = sa.Table(
    "dock_revisions",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("learnware", sa.ForeignKey("dock_learnwares.number"), nullable=False, index=True),
    sa.Column("revision", sa.Text, nullable=False, index=True),
    sa.Column("created", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("specification", sa.Text, index=True),
    sa.Column("model", sa.Text, index=True),
    sa.Column("release", sa.Text, index=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("model_size", sa.BigInteger),
    sa.Column("manifest", sa.Text),
    sa.Column("card", sa.Text),
    sa.Column("head", sa.Text),
    # what the guarantee says, worked out once, and the SHA-256 of the direction of the factors
    sa.Column("headline", sa.Text),
    sa.Column("direction", sa.Text, index=True),
    # the least ε at δ = 1e-5 that all revisions so far are within, empty for no bound
    sa.Column("epsilon", sa.Text),
)

# append-only: who changed what, and when; no token and no text of a card
deed_table = sa.Table(
    "dock_deeds",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("who", sa.Text, nullable=False, index=True),
    sa.Column("what", sa.Text, nullable=False),
    sa.Column("learnware", sa.Text, nullable=False, index=True),
    sa.Column("detail", sa.Text, nullable=False),
)

space_table = sa.Table(
    "dock_spaces",
    metadata,
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("fields", sa.Text, nullable=False),
)

# what was answered to a submission: the same again for the same key and body
answer_table = sa.Table(
    "dock_answers",
    metadata,
    sa.Column("developer", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("answer", sa.Text, nullable=False),
    sa.Column("created", sa.Text, nullable=False, index=True),
)
