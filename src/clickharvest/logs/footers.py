"""What a Parquet file of ours says about itself: JSON under the key `clickharvest` in its footer.

Spark's executors write folders of Parquet and put nothing of ours into a footer; there it stands in the file
`_common_metadata` beside the parts, Parquet's own place for what all of them share.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clickharvest.files import SHARED

KEY = "clickharvest"


def footer_of(path: Path) -> Any:
    """Return what a Parquet file, one part of a folder, or the folder says about itself; None where it says nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    places = [path / SHARED] if path.is_dir() else [path, path.parent / SHARED]
    for place in places:
        if not place.is_file():
            continue
        try:
            written = (pq.read_metadata(place).metadata or {}).get(KEY.encode())
            if written is not None:
                return json.loads(written)
        except (pa.ArrowException, OSError, ValueError, RecursionError):
            return None
    return None
