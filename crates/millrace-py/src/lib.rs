//! The thin PyO3 face of `millrace-core`; typed in `_core.pyi`.

use pyo3::prelude::*;

mod errors;
mod join;
mod journal;
mod node;
mod record;
mod writer;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::register(module)?;
    join::register(module)?;
    journal::register(module)?;
    node::register(module)?;
    record::register(module)?;
    writer::register(module)?;
    Ok(())
}
