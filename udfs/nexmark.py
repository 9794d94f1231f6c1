"""The function that the Nexmark benchmark's q14 calls."""

import pyarrow as pa
import pyarrow.compute as pc

from sqlstream import udf


@udf(vectorized=True)
def count_char(text: pa.StringArray, character: pa.StringArray) -> pa.Int64Array:
    """Count how often a character occurs in texts: the same one in all of them."""
    return pc.cast(pc.count_substring(text, pattern=character[0].as_py()), pa.int64())
