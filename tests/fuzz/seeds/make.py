"""Writes the seeds of the fuzz targets pages, footers and thrift.

Usage: python make.py        (needs pyarrow; the seeds in the repository were written by pyarrow 26)
"""

import struct
from decimal import Decimal
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SEEDS = Path(__file__).parent
CODECS = ["none", "snappy", "zstd", "lz4"]
ROWS = 8


def lists(element, nullable):
    kind = pa.list_(pa.field("element", element, nullable=False))
    rows = [[float(3 * row + place) for place in range(3)] for row in range(ROWS)]
    return pa.field("x", kind, nullable=nullable), rows


def ragged(element, nullable, holes):
    """Lists of 0 to 3 elements. Some are missing, and some elements are, if they may."""
    kind = pa.list_(pa.field("element", element, nullable=holes))
    rows = [[None if holes and place == 1 else float(row + place) for place in range(row % 4)] for row in range(ROWS)]
    if nullable:
        rows[3] = None
    return pa.field("x", kind, nullable=nullable), rows


texts = [f"row {row % 3}" for row in range(ROWS)]
words = [None if row == 2 else "w\u00f6rd" * (row % 3) for row in range(ROWS)]
columns = [
    (pa.field("x", pa.binary(), nullable=False), [b"abc", b"abd"] * 4),
    (pa.field("x", pa.binary()), [b"abc", b"abd"] * 4),
    lists(pa.float32(), False),
    lists(pa.float64(), True),
    (pa.field("x", pa.int32(), nullable=False), list(range(ROWS))),
    (pa.field("x", pa.int64()), [1, None] * 4),
    (pa.field("x", pa.string()), texts),
    (pa.field("x", pa.binary(7), nullable=False), [b"1234567"] * ROWS),
]
# Rows of any length: the encodings of their values, besides plain and dictionary. The numbers are those of the second half of the
# schemas in decode/any_input.rs; the schemas between are those of other writers.
varying = {
    0: (*ragged(pa.int32(), False, True), ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"]),
    1: (*ragged(pa.int64(), True, False), ["DELTA_BINARY_PACKED"]),
    2: (*ragged(pa.int32(), True, True), ["DELTA_BINARY_PACKED"]),
    3: (*ragged(pa.float64(), False, False), ["BYTE_STREAM_SPLIT"]),
    6: (pa.field("x", pa.string(), nullable=False), texts, ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]),
    7: (pa.field("x", pa.string()), words, ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]),
}


def written(field, values, **options):
    file = BytesIO()
    table = pa.table([pa.array(values, field.type)], schema=pa.schema([field]))
    pq.write_table(table, file, write_statistics=False, **options)
    return file.getvalue()


def head(kind, rows, values, size):
    return struct.pack("<BHH", kind, rows, values) + struct.pack("<I", size)[:3]


def save(target, name, content):
    path = SEEDS / target / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


def pages_of(file):
    chunk = pq.read_metadata(BytesIO(file)).row_group(0).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    return chunk, file[start : start + chunk.total_compressed_size]


chunks = {}
for number, (field, values) in enumerate(columns):
    for codec, compression in enumerate(CODECS):
        for dictionary in (False, True):
            version = "1.0" if (number + codec + dictionary) % 2 else "2.0"
            file = written(field, values, compression=compression, use_dictionary=dictionary, data_page_version=version)
            chunk, pages = pages_of(file)
            kind = number + len(columns) * codec
            sizes = head(kind, ROWS, chunk.num_values, chunk.total_uncompressed_size)
            name = f"{number}-{compression}-{'dictionary' if dictionary else 'plain'}-v{version[0]}"
            save("pages", name, sizes + pages)
            chunks[name] = pages

for number, (field, values, encodings) in varying.items():
    for step, encoding in enumerate(["dictionary", "PLAIN", *encodings]):
        codec = (number + step) % len(CODECS)
        options = {"use_dictionary": True} if encoding == "dictionary" else {"column_encoding": encoding}
        version = "2.0" if step % 2 else "1.0"
        file = written(
            field, values, compression=CODECS[codec], data_page_version=version, **{"use_dictionary": False} | options
        )
        chunk, pages = pages_of(file)
        sizes = head(32 + number + 8 * codec, ROWS, chunk.num_values, chunk.total_uncompressed_size)
        name = encoding.lower().replace("_", "-")
        save("pages", f"varying-{number}-{CODECS[codec]}-{name}-v{version[0]}", sizes + pages)

# More values than bytes: a run of nulls, which is valid, and indices without bits.
nulls = bytes.fromhex("1500 1510 1510 2c 15feff07 1500 1506 1506 0000 04000000 feff0700")
save("pages", "nulls", head(5, 65535, 65535, 4096) + nulls)
dictionary = bytes.fromhex("1504 1510 1510 4c 1502 1500 0000 04000000") + b"abcd"
bomb = bytes.fromhex("1500 1514 1514 2c 15 80808080808080808001 1510 1506 1506 0000 00 ffffffffffffffff3f")
save("pages", "bad-2^62-values", head(0, 4, 4, 100) + dictionary + bomb)
doubles = bytes.fromhex("1500 1510 1510 2c 1508 1500 1506 1506 00 097e f78080808080808080 10 00") + bytes(8)
save("pages", "bad-doubles", head(4, 4, 4, 100) + doubles)

# The fuzzer found it: runs that only one of the two readers took as runs.
other_run = bytes.fromhex(
    "1208001800a20000 150415c001158c014c153015001200 0028b52ffd2060ed010002460e19a027190eff67dfeffbaab7ef2bace7a507"
    "4226a3820a814f0a2d4e71892b87b8c3198e5ce10837b8b9c001eeb84fe3613ce521cf3c17903f001500153e15502c1530151015061506"
    "1c00000028b52ffd201ff900000400000007b66ddb0200000030010300ff00418a06157015707b30ca49abbd"
)
save("pages", "other-run", other_run)

kinds = pa.schema(
    [
        ("number", pa.int32()),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("clock", pa.time64("ns")),
        ("small", pa.uint8()),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("tree", pa.struct([("a", pa.list_(pa.int16())), ("b", pa.float16())])),
    ]
)
rows = [{"number": 1, "price": Decimal("1.25"), "map": [("a", 1)], "tree": {"a": [1, 2], "b": None}}]


def footer(table, **options):
    file = BytesIO()
    pq.write_table(table, file, **options)
    whole = file.getvalue()
    length = struct.unpack("<I", whole[-8:-4])[0]
    return whole[-8 - length : -8]


footers = {
    "kinds": footer(pa.Table.from_pylist(rows, kinds), store_schema=False, write_page_index=True),
    "arrow-schema": footer(pa.table({"x": pa.array([1, 2], pa.int8())})),
    "groups": footer(pa.table({"x": list(range(9)), "y": [*texts, "z"]}), row_group_size=3, store_schema=False),
    "sorted": footer(pa.table({"x": [1]}), store_schema=False, sorting_columns=[pq.SortingColumn(0)]),
    "no-columns": footer(pa.table({}), store_schema=False),
}
for name, content in footers.items():
    save("footers", name, content)


def group(children):
    return bytes.fromhex("3500 1801 67 15") + children + b"\0"


end = bytes.fromhex("1600 190c 00")
save("footers", "bad-children", bytes.fromhex("1502 191c") + group(bytes.fromhex("feffffff0f")) + end)
save("footers", "bad-levels", bytes.fromhex("1502 19fc c801") + group(b"\x02") * 200 + end)
# The fuzzer found it: an order of a column that is a boolean, and a map of 2^31 elements behind the footer.
order = bytes.fromhex("1504692c3500003100003bffffffff0021ffffffffff0021ffffffffffffffffff0034")
save("footers", "bad-order", order)

for name in ("0-none-plain-v2", "2-snappy-dictionary-v2", "7-lz4-plain-v2"):
    save("thrift", f"pages-{name}", chunks[name])
save("thrift", "footer", footers["kinds"])
save("thrift", "offset-index", bytes.fromhex("192c 1608 1508 1600 00 1618 1508 1608 00 192604 06 00"))
save("thrift", "column-index", bytes.fromhex("1922 0102 1928 0161 0162 1928 0162 0163 1502 1926 0000 00"))
save("thrift", "bad-doubles", bytes.fromhex("097e f78080808080808080 10 00"))
save("thrift", "bad-pages", bytes.fromhex("19fc ffffffff07 0000"))
save("thrift", "bad-booleans", bytes.fromhex("097e 22 0102 00"))
