"""Options of object stores. ``worker/data/tests/s3.sh`` and ``azure.sh`` read with them from simulated stores."""

from __future__ import annotations

import pytest
from support import parquet

from elasticrun.data import ParquetDataset
from elasticrun.errors import DataError


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("s3://bucket/set", "azure_storage_account_key"),
        ("gs://bucket/set", "aws_secret_access_key"),
        ("az://container/set", "secret"),
        ("abfs://container/set", "aws_secret_access_key"),
    ],
)
def test_an_option_that_the_store_does_not_have_is_named_and_its_value_is_not(path, name):
    scheme = path.partition(":")[0]
    with pytest.raises(DataError, match=f'{path}: .*{scheme} has no storage option "{name}"; some of those') as told:
        ParquetDataset(path, batch_size=1, storage_options={name: "hush"})
    assert "hush" not in str(told.value)


def test_a_value_that_is_none_is_not_shown(tmp_path):
    for options in ({"aws_secret_access_key": b"hush"}, {"aws_secret_access_key": ["hush"]}, "hush"):
        with pytest.raises(TypeError, match="storage_options") as told:
            ParquetDataset("s3://bucket/set", batch_size=1, storage_options=options)
        assert "hush" not in str(told.value)
    with pytest.raises(DataError, match="cannot open the object store") as told:
        ParquetDataset(
            "gs://bucket/set", batch_size=1, storage_options={"google_service_account_key": '{"private_key": "hush"}'}
        )
    assert "hush" not in str(told.value)


def test_options_are_for_object_stores(tmp_path):
    path = parquet.write(tmp_path, rows=10)
    with pytest.raises(DataError, match="storage options are for object stores, not for paths"):
        ParquetDataset(path, batch_size=1, storage_options={"aws_region": "x"})
    assert ParquetDataset(path, batch_size=1, storage_options={}).rows == 10
