#!/usr/bin/env python3
"""Makes a CSV file of data/digits.parquet, for readers that know no Parquet: a row is 64 pixels and the label.

python3 -m venv venv && venv/bin/pip install pyarrow
venv/bin/python make_csv.py ../data/digits.parquet ../../../worker/python/python/elasticrun/examples/digits.csv
"""

import sys

import pyarrow.parquet


def main(parquet: str, csv: str) -> None:
    rows = pyarrow.parquet.read_table(parquet).to_pylist()
    with open(csv, "w", encoding="ascii") as file:
        for row in rows:
            file.write(",".join(map(str, [*row["image"], row["label"]])) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
