//! The thin PyO3 face of `millrace-core`; typed in `_core.pyi`.

use pyo3::prelude::*;

mod join;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    join::register(module)?;
    Ok(())
}
