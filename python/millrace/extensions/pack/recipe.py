"""The recipe in a pack: the command, queries and database that regenerate the result.

It is untrusted input. Therefore it contains no command line: only the name of a tool that Millrace knows, and its
arguments without any path.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from millrace.core.errors import CorruptError
from millrace.core.number_format import escape_unprintable
from millrace.core.tool_use import ArgumentToken, FrozenValue

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Short = Annotated[str, msgspec.Meta(max_length=4096)]


class OriginalOutput(FrozenValue, frozen=True):
    """One output of the command, as it was packed."""

    #: ``millrace.core.tool_use.OutputUse.name``; for plain bytes the name of the file.
    name: Short
    bytes: Count
    sha256: Sha256


#: Outputs of a pack at most.
MAX_OUTPUTS = 16

Outputs = Annotated[tuple[OriginalOutput, ...], msgspec.Meta(min_length=1, max_length=MAX_OUTPUTS)]

#: The digest of an output that is unknown yet.
UNKNOWN = "0" * 64


class PackedQueries(FrozenValue, frozen=True):
    """The input that is cut into records, identified by its content."""

    #: Name of the file, for messages only.
    name: Short
    bytes: Count
    sha256: Sha256


class PackedDatabase(FrozenValue, frozen=True):
    """A database identified by its entries, independent of paths and of the number of files."""

    #: Name of the database in the result.
    name: Short
    #: Title of the database in the result; empty where results have none.
    title: Short
    entries: Count
    residues: Count
    #: SHA-256 of all entries, in their order.
    ordered: Sha256
    #: Sum of the SHA-256 of each entry, modulo 2**256: the same in any order.
    unordered: Sha256


class PackRecipe(FrozenValue, frozen=True):
    """The command, queries and database that regenerate a result; for plain bytes the outputs alone."""

    #: Name of the codec.
    codec: Short
    #: Version of Millrace that packed, for messages only.
    millrace: Short
    outputs: Outputs
    #: Name of the program, without a folder.
    tool: Short = ""
    #: Version that the program reports.
    version: Short = ""
    #: Arguments after the program; paths are tokens.
    arguments: Annotated[tuple[ArgumentToken, ...], msgspec.Meta(max_length=1024)] = ()
    queries: PackedQueries | None = None
    database: PackedDatabase | None = None


def encode_recipe(recipe: PackRecipe) -> bytes:
    """Encode a recipe as the JSON of its section."""
    return msgspec.json.encode(recipe)


def encode_outputs(outputs: tuple[OriginalOutput, ...]) -> bytes:
    """Encode outputs that were unknown when the recipe was written."""
    return msgspec.json.encode(outputs)


def add_final_outputs(recipe: PackRecipe, data: bytes) -> PackRecipe:
    """Return ``recipe`` with the outputs that ``encode_outputs`` has encoded.

    Raises:
        CorruptError: The data is malformed, or names other outputs.
    """
    try:
        outputs = msgspec.json.decode(data, type=Outputs)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptError(f"the pack does not say what its outputs are: {escape_unprintable(str(error))}") from error
    if [each.name for each in outputs] != [each.name for each in recipe.outputs]:
        raise CorruptError("the pack tells at its end of other outputs than at its begin")
    return msgspec.structs.replace(recipe, outputs=outputs)


def decode_recipe(data: bytes) -> PackRecipe:
    """Decode the recipe that ``encode_recipe`` has encoded.

    Raises:
        CorruptError: The data is malformed.
    """
    try:
        return msgspec.json.decode(data, type=PackRecipe)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptError(f"the pack does not say what a pack says: {escape_unprintable(str(error))}") from error
