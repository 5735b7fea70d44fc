"""Reads the text column of a parquet file, a few rows at a time, with pyarrow if it is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spes_trainer.errors import ConfigError, config_error
from spes_trainer.extras import import_extra

# Rows in memory at once.
_BATCH_ROWS = 256


def read_parquet(path: Path, column: str, *, field: str) -> Iterator[tuple[int, bytes]]:
    """Yield each row's number, from 1, and its text in UTF-8.

    Raises:
        ConfigError: pyarrow is missing, it is no parquet file, or the column is not one of text.
    """
    arrow: Any = import_extra("pyarrow", extra="data", source=path, field=field)
    parquet: Any = import_extra("pyarrow.parquet", extra="data", source=path, field=field)
    row = 0
    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            _check(path, file.schema_arrow, column, field, arrow.types)
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=[column]):
                for text in batch.column(0).to_pylist():
                    row += 1
                    if text is None:
                        raise _broken(f"{path}, row {row}", field, "null", f"text in {column!r}")
                    yield row, text.encode()
    except (arrow.ArrowException, OSError) as error:
        got = f"{str(error).splitlines()[0]} behind row {row}"
        raise _broken(str(path), field, got, "a whole parquet file") from error


def _check(path: Path, schema: Any, column: str, field: str, types: Any) -> None:
    if column not in schema.names:
        got = f"columns {', '.join(sorted(schema.names)[:8]) or 'none'}"
        raise _broken(str(path), field, got, f"a parquet file with the column {column!r}")
    kind = schema.field(column).type
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        raise _broken(str(path), field, str(kind), f"text in the column {column!r}")


def _broken(where: str, field: str, got: str, expected: str) -> ConfigError:
    hint = "write the file again, set textField, or narrow data.include"
    return config_error(where, field, got=got, expected=expected, hint=hint)
