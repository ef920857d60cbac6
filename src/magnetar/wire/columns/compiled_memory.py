"""Memory for the compiled columns: loads without a check, copies of short strings, CRC-32C.

`compiled_bytes.py` has the rules: the caller has checked every length against the bytes that are there.
"""

import platform
from typing import Any, Final

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from magnetar.wire.compiled_bytes import compiled, memcpy, place_in

_pointer_to: Any = types.CPointer
_declare: Any = cgutils.get_or_insert_function
_INT64: Final = ir.IntType(64)
_INT32: Final = ir.IntType(32)
_POLYNOMIAL: Final = 0x82F6_3B78  # CRC-32C, reflected
_LANE: Final = 1024  # bytes; three lanes at a time hide the latency of the instruction
_LANES: Final = 3 * _LANE
_SHORT: Final = 16


def _loader(bits: int, *, big_endian: bool) -> Any:
    """Loads an unsigned number of `bits` at (array, position), aligned or not."""

    def load(typing_context: Any, data: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            at = place_in(context, builder, signature.args[0], arguments[0], arguments[1])
            number = builder.load(builder.bitcast(at, ir.IntType(bits).as_pointer()), align=1)
            if big_endian:
                number = builder.bswap(number)
            return number if bits == 64 else builder.zext(number, _INT64)

        return types.int64(data, types.int64), generate

    return intrinsic(load)


load_u8: Any = _loader(8, big_endian=False)
load_u16: Any = _loader(16, big_endian=True)
load_u32: Any = _loader(32, big_endian=True)
load_i64: Any = _loader(64, big_endian=True)
load_word: Any = _loader(64, big_endian=False)


@compiled()
def wide(number: Any) -> int:
    """Any number as an int64."""
    return np.int64(number)  # type: ignore[return-value]  # to numba these are the same


@compiled()
def load_i32(data: Any, position: int) -> int:
    number = load_u32(data, position)
    return number - ((number & 0x8000_0000) << 1)  # type: ignore[no-any-return]


@compiled()
def load_i16(data: Any, position: int) -> int:
    number = load_u16(data, position)
    return number - ((number & 0x8000) << 1)  # type: ignore[no-any-return]


def _store_u8(typing_context: Any, out: Any, at: Any, byte: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = place_in(context, builder, signature.args[0], arguments[0], arguments[1])
        builder.store(builder.trunc(arguments[2], ir.IntType(8)), target)
        return context.get_dummy_value()

    return types.void(out, types.int64, types.int64), generate


store_u8: Any = intrinsic(_store_u8)


def _copy_16(typing_context: Any, out: Any, at: Any, data: Any, position: Any) -> Any:
    """Copy 16 bytes, in one load and one store."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), _SHORT).as_pointer()
        target = place_in(context, builder, signature.args[0], arguments[0], arguments[1])
        source = place_in(context, builder, signature.args[2], arguments[2], arguments[3])
        word = builder.load(builder.bitcast(source, vector), align=1)
        builder.store(word, builder.bitcast(target, vector), align=1)
        return context.get_dummy_value()

    return types.void(out, types.int64, data, types.int64), generate


_store_16: Any = intrinsic(_copy_16)


def _pointer(typing_context: Any, array: Any) -> Any:
    """Where an array's elements lie.

    Passing an array from function to function counts its references, at two atomic steps each; a pointer is a number.
    The code that uses one must keep the array alive.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return _pointer_to(array.dtype)(array), generate


pointer: Any = intrinsic(_pointer)


@compiled()
def copy(out: Any, at: int, out_size: int, data: Any, position: int, data_size: int, size: int) -> None:
    """Copy what fits and is there; a short string takes its neighbours along where that does no harm.

    What is behind `at + size` in `out` has to be of no value yet.  The sizes are those of the memory on both sides.
    """
    if size <= _SHORT and at + _SHORT <= out_size and position + _SHORT <= data_size:
        _store_16(out, at, data, position)
    else:
        memcpy(out, at, data, position, size)


# --- CRC-32C ---------------------------------------------------------------------------------------------------------


def _byte_table() -> Any:
    table = np.arange(256, dtype=np.int64)
    for _ in range(8):
        table = (table >> 1) ^ ((table & 1) * _POLYNOMIAL)
    return table


def _slices() -> Any:
    """Number k: what a byte becomes with k zero bytes behind it."""
    table = _byte_table()
    slices = [table]
    for _ in range(7):
        last = slices[-1]
        slices.append((last >> 8) ^ table[last & 0xFF])
    return np.array(slices)


def _shifts() -> Any:
    """Four tables that together take a checksum over `_LANE` zero bytes."""
    table = _byte_table()
    bits = np.int64(1) << np.arange(32, dtype=np.int64)
    for _ in range(_LANE):
        bits = (bits >> 8) ^ table[bits & 0xFF]
    shifts = np.zeros((4, 256), np.int64)
    for bit in range(32):
        has_bit = (np.arange(256) >> (bit % 8)) & 1
        shifts[bit // 8] ^= has_bit * bits[bit]
    return shifts


_SLICES: Final = _slices()
_SHIFTS: Final = _shifts()


def _instruction(name: str, bits: int, crc_type: Any) -> Any:
    def step(typing_context: Any, crc: Any, word: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.FunctionType(crc_type, [crc_type, ir.IntType(bits)])
            function = _declare(builder.module, kind, name)
            crc_value, word_value = arguments
            if crc_type is _INT32:
                crc_value = builder.trunc(crc_value, _INT32)
            if bits < 64:
                word_value = builder.trunc(word_value, ir.IntType(bits))
            result = builder.call(function, [crc_value, word_value])
            return builder.zext(result, _INT64) if crc_type is _INT32 else result

        return types.int64(types.int64, types.int64), generate

    return intrinsic(step)


_crc_word: Any = _instruction("llvm.x86.sse42.crc32.64.64", 64, _INT64)
_crc_byte: Any = _instruction("llvm.x86.sse42.crc32.32.8", 8, _INT32)


@compiled()
def _shifted(crc: int) -> int:
    return (  # type: ignore[no-any-return]
        _SHIFTS[0, crc & 0xFF]
        ^ _SHIFTS[1, (crc >> 8) & 0xFF]
        ^ _SHIFTS[2, (crc >> 16) & 0xFF]
        ^ _SHIFTS[3, (crc >> 24) & 0xFF]
    )


@compiled()
def crc32c_by_instruction(data: Any, position: int, end: int) -> int:
    crc = 0xFFFF_FFFF
    while end - position >= _LANES:
        second = 0
        third = 0
        for at in range(position, position + _LANE, 8):
            crc = _crc_word(crc, load_word(data, at))
            second = _crc_word(second, load_word(data, at + _LANE))
            third = _crc_word(third, load_word(data, at + 2 * _LANE))
        crc = _shifted(_shifted(crc) ^ second) ^ third
        position += _LANES
    while end - position >= 8:
        crc = _crc_word(crc, load_word(data, position))
        position += 8
    while position < end:
        crc = _crc_byte(crc, load_u8(data, position))
        position += 1
    return crc ^ 0xFFFF_FFFF


@compiled()
def crc32c_by_table(data: Any, position: int, end: int) -> int:
    crc = 0xFFFF_FFFF
    while end - position >= 8:
        word = load_word(data, position)
        low = (word ^ crc) & 0xFFFF_FFFF
        high = (word >> 32) & 0xFFFF_FFFF
        crc = (
            _SLICES[7, low & 0xFF]
            ^ _SLICES[6, (low >> 8) & 0xFF]
            ^ _SLICES[5, (low >> 16) & 0xFF]
            ^ _SLICES[4, low >> 24]
            ^ _SLICES[3, high & 0xFF]
            ^ _SLICES[2, (high >> 8) & 0xFF]
            ^ _SLICES[1, (high >> 16) & 0xFF]
            ^ _SLICES[0, high >> 24]
        )
        position += 8
    while position < end:
        crc = (crc >> 8) ^ _SLICES[0, (crc ^ load_u8(data, position)) & 0xFF]
        position += 1
    return crc ^ 0xFFFF_FFFF


_HAS_INSTRUCTION: Final = platform.machine() in ("x86_64", "AMD64") and bool(
    llvm.get_host_cpu_features().get("sse4.2")
)
crc32c: Any = crc32c_by_instruction if _HAS_INSTRUCTION else crc32c_by_table
