//! The thin PyO3 face of `millrace-core`; typed in `_core.pyi`.

use pyo3::prelude::*;

mod candidates;
mod errors;
mod join;
mod journal;
mod node;
mod record;
mod writer;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    candidates::register(module)?;
    errors::register(module)?;
    join::register(module)?;
    journal::register(module)?;
    node::register(module)?;
    record::register(module)?;
    writer::register(module)?;
    module.add_function(wrap_pyfunction!(checksum, module)?)?;
    Ok(())
}

/// CRC-32C of `data`.
#[pyfunction]
#[pyo3(name = "crc32c")]
fn checksum(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
}
