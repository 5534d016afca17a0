//! The thin PyO3 face of `millrace-core`; typed in `_core.pyi`.

use millrace_core::pack as packing;
use millrace_core::seal::{self as sealing, KEY_BYTES};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

mod alarm;
mod candidates;
mod database;
mod errors;
mod join;
mod journal;
mod node;
mod parts;
mod record;
mod trace;
mod writer;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    alarm::register(module)?;
    database::register(module)?;
    candidates::register(module)?;
    errors::register(module)?;
    join::register(module)?;
    journal::register(module)?;
    node::register(module)?;
    parts::register(module)?;
    record::register(module)?;
    trace::register(module)?;
    writer::register(module)?;
    module.add_function(wrap_pyfunction!(checksum, module)?)?;
    module.add_function(wrap_pyfunction!(pack, module)?)?;
    module.add_function(wrap_pyfunction!(unpack, module)?)?;
    module.add_function(wrap_pyfunction!(squeeze, module)?)?;
    module.add_function(wrap_pyfunction!(restore, module)?)?;
    module.add_function(wrap_pyfunction!(seal, module)?)?;
    Ok(())
}

/// `data`, which is not copied, compressed.
#[pyfunction]
fn pack(py: Python<'_>, data: PyBuffer<u8>) -> PyResult<Bound<'_, PyBytes>> {
    let bytes = bytes_of(&data)?;
    Ok(PyBytes::new(py, &py.detach(|| packing::pack(bytes))?))
}

/// What `pack` was given.
#[pyfunction]
fn unpack(py: Python<'_>, packed: PyBuffer<u8>) -> PyResult<Bound<'_, PyBytes>> {
    let bytes = bytes_of(&packed)?;
    Ok(PyBytes::new(py, &py.detach(|| packing::unpack(bytes))?))
}

/// `data`, compressed as far as `level` goes, with matches in `reference` too.
#[pyfunction]
#[pyo3(signature = (data, level, reference=None))]
fn squeeze<'py>(py: Python<'py>, data: &[u8], level: i32, reference: Option<&[u8]>) -> PyResult<Bound<'py, PyBytes>> {
    let reference = reference.unwrap_or_default();
    Ok(PyBytes::new(py, &py.detach(|| packing::squeeze(data, level, reference))?))
}

/// The `length` bytes that `squeeze` was given.
#[pyfunction]
#[pyo3(signature = (packed, length, reference=None))]
fn restore<'py>(
    py: Python<'py>,
    packed: &[u8],
    length: usize,
    reference: Option<&[u8]>,
) -> PyResult<Bound<'py, PyBytes>> {
    let reference = reference.unwrap_or_default();
    Ok(PyBytes::new(py, &py.detach(|| packing::restore(packed, reference, length))?))
}

/// CRC-32C of `data`, which is not copied.
#[pyfunction]
#[pyo3(name = "crc32c")]
fn checksum(py: Python<'_>, data: PyBuffer<u8>) -> PyResult<u32> {
    let bytes = bytes_of(&data)?;
    Ok(py.detach(|| crc32c::crc32c(bytes)))
}

/// The seal of `content`, which is not copied, in a `context`.
#[pyfunction]
fn seal<'py>(py: Python<'py>, key: &[u8], context: &[u8], content: PyBuffer<u8>) -> PyResult<Bound<'py, PyBytes>> {
    let key: &[u8; KEY_BYTES] = key.try_into().map_err(|_| PyValueError::new_err("a key has 32 bytes"))?;
    Ok(PyBytes::new(py, &sealing::seal(key, context, bytes_of(&content)?)))
}

/// What a buffer holds, without a copy; nobody may write to it meanwhile.
fn bytes_of(data: &PyBuffer<u8>) -> PyResult<&[u8]> {
    if !data.is_c_contiguous() {
        return Err(PyBufferError::new_err("the bytes do not lie side by side"));
    }
    // SAFETY: contiguous bytes, held by `data`; nobody writes to what is committed, to bytes of Python, or to a message
    // while the one thread that has it is in here.
    Ok(unsafe { std::slice::from_raw_parts(data.buf_ptr().cast::<u8>(), data.len_bytes()) })
}
