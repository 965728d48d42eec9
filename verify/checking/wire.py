"""Messages between the check and the process that runs a target: a JSON header, then raw array bytes.

Guarantees: nothing read from the other side is executed or unpickled; a torn or oversized message is an EOFError.
Does not: encrypt, compress, or carry anything but JSON and arrays.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from verify.checking.calls import Array, dtype_of

_LENGTH = struct.Struct("<Q")
MAX_HEADER = 1 << 26
MAX_ARRAY = 1 << 36


def send(stream: IO[bytes], header: Mapping[str, Any], arrays: Mapping[str, Array] | None = None) -> None:
    """Write one message."""
    found = {name: np.ascontiguousarray(value) for name, value in (arrays or {}).items()}
    shapes = {name: [np.asarray((arrays or {})[name]).shape, value.dtype.name] for name, value in found.items()}
    text = json.dumps({"body": dict(header), "arrays": shapes}).encode()
    stream.write(_LENGTH.pack(len(text)))
    stream.write(text)
    for value in found.values():
        stream.write(value.tobytes())
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read one message. Raises EOFError when the other side is gone or speaks nonsense."""
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    if length > MAX_HEADER:
        raise EOFError("a message header is too long")
    try:
        parsed = json.loads(_exactly(stream, length))
        arrays = {name: _array(stream, tuple(shape), dtype) for name, (shape, dtype) in parsed["arrays"].items()}
        return dict(parsed["body"]), arrays
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EOFError(f"a message can't be read: {error}") from error


def _array(stream: IO[bytes], shape: tuple[int, ...], name: str) -> Array:
    dtype = dtype_of(name)
    if dtype.hasobject:
        raise ValueError("an array of Python objects")
    size = dtype.itemsize
    for length in shape:
        if length < 0:
            raise ValueError("a negative length")
        size *= length
    if size > MAX_ARRAY:
        raise ValueError("an array is too large")
    return np.frombuffer(bytearray(_exactly(stream, size)), dtype=dtype).reshape(shape)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    chunks = []
    while size:
        chunk = stream.read(min(size, 1 << 24))
        if not chunk:
            raise EOFError("the other side closed")
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)
