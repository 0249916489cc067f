#!/usr/bin/env python3
"""Makes data/digits.parquet from the copy of the data set that scikit-learn bundles.

    python3 -m venv venv && venv/bin/pip install scikit-learn pyarrow
    venv/bin/python make_data.py ../data/digits.parquet

Columns: image, 64 bytes, 8 rows of 8 pixels from 0 (white) to 16 (black); label, 0 to 9. Rows keep
the order of the source. Ten row groups, so that readers of row groups have some.
"""

import sys

import pyarrow
import pyarrow.parquet
from sklearn.datasets import load_digits


def main(path: str) -> None:
    digits = load_digits()
    images = [bytes(image) for image in digits.data.astype("uint8")]
    table = pyarrow.table(
        {
            "image": pyarrow.array(images, pyarrow.binary(64)),
            "label": pyarrow.array(digits.target.astype("uint8")),
        },
        schema=pyarrow.schema(
            [
                pyarrow.field("image", pyarrow.binary(64), nullable=False),
                pyarrow.field("label", pyarrow.uint8(), nullable=False),
            ]
        ),
    )
    pyarrow.parquet.write_table(
        table,
        path,
        row_group_size=180,
        compression="snappy",
        use_dictionary=["label"],
        store_schema=False,
    )


if __name__ == "__main__":
    main(sys.argv[1])
