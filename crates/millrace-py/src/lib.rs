//! The thin PyO3 face of `millrace-core`; typed in `_core.pyi`.

use millrace_core::pack as packing;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
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
    writer::register(module)?;
    module.add_function(wrap_pyfunction!(checksum, module)?)?;
    module.add_function(wrap_pyfunction!(pack, module)?)?;
    module.add_function(wrap_pyfunction!(unpack, module)?)?;
    module.add_function(wrap_pyfunction!(squeeze, module)?)?;
    module.add_function(wrap_pyfunction!(restore, module)?)?;
    Ok(())
}

/// `data`, compressed.
#[pyfunction]
fn pack<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &py.detach(|| packing::pack(data))?))
}

/// What `pack` was given.
#[pyfunction]
fn unpack<'py>(py: Python<'py>, packed: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &py.detach(|| packing::unpack(packed))?))
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
    if !data.is_c_contiguous() {
        return Err(PyBufferError::new_err("the bytes do not lie side by side"));
    }
    // SAFETY: contiguous bytes, held by `data`; nobody writes to what is committed or to bytes of Python.
    let bytes = unsafe { std::slice::from_raw_parts(data.buf_ptr().cast::<u8>(), data.len_bytes()) };
    Ok(py.detach(|| crc32c::crc32c(bytes)))
}
