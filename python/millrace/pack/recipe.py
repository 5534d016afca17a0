"""What a pack says of a result: which command makes it of which queries and which database.

It may come from a stranger. So it holds no command to be run as it stands: the tool by a name that Millrace knows, and
its arguments without any path.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from millrace.errors import CorruptError
from millrace.model import Frozen, Token
from millrace.words import shown

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Short = Annotated[str, msgspec.Meta(max_length=4096)]


class Original(Frozen, frozen=True):
    """One output of the command, as it was packed."""

    #: `millrace.model.OutputUse.name`; for what was packed as it is, the file's name.
    name: Short
    bytes: Count
    sha256: Sha256


#: Most outputs of a pack.
MOST_OUTPUTS = 16

Outputs = Annotated[tuple[Original, ...], msgspec.Meta(min_length=1, max_length=MOST_OUTPUTS)]

#: The digest of what is not known yet.
UNKNOWN = "0" * 64


class Queries(Frozen, frozen=True):
    """The input that is cut into records, by what it holds."""

    #: Name of the file, for messages alone.
    name: Short
    bytes: Count
    sha256: Sha256


class Database(Frozen, frozen=True):
    """A database by what it holds, wherever and in however many files that is."""

    #: As the result names it.
    name: Short
    #: As the result titles it; empty where results do not.
    title: Short
    entries: Count
    residues: Count
    #: SHA-256 of all entries, in their order.
    ordered: Sha256
    #: Sum of the SHA-256 of each entry, modulo 2**256: the same in any order.
    unordered: Sha256


class Recipe(Frozen, frozen=True):
    """What regenerates a result; of what is packed as it is, the outputs alone."""

    #: Name of the codec.
    codec: Short
    #: Version of Millrace that packed, for messages alone.
    millrace: Short
    outputs: Outputs
    #: Name of the program, without a folder.
    tool: Short = ""
    #: As the program tells it.
    version: Short = ""
    #: Arguments of the program, from the second word on; paths have places of their own.
    arguments: Annotated[tuple[Token, ...], msgspec.Meta(max_length=1024)] = ()
    queries: Queries | None = None
    database: Database | None = None


def encode(recipe: Recipe) -> bytes:
    """As it stands in the file."""
    return msgspec.json.encode(recipe)


def encode_outputs(outputs: tuple[Original, ...]) -> bytes:
    """What outputs have become that were not known when the recipe was written."""
    return msgspec.json.encode(outputs)


def with_outputs(recipe: Recipe, data: bytes) -> Recipe:
    """``recipe`` with what `encode_outputs` has written.

    Raises:
        CorruptError: It is something else, or of other outputs.
    """
    try:
        outputs = msgspec.json.decode(data, type=Outputs)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptError(f"the pack does not say what its outputs are: {shown(str(error))}") from error
    if [each.name for each in outputs] != [each.name for each in recipe.outputs]:
        raise CorruptError("the pack tells at its end of other outputs than at its begin")
    return msgspec.structs.replace(recipe, outputs=outputs)


def decode(data: bytes) -> Recipe:
    """Read what `encode` has written.

    Raises:
        CorruptError: It is something else.
    """
    try:
        return msgspec.json.decode(data, type=Recipe)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptError(f"the pack does not say what a pack says: {shown(str(error))}") from error
