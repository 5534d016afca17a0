use millrace_core::trace::{self, Clog2Form, Column, TraceError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A column: 64-bit numbers, decimals, and the words.
type Columns<'py> = Vec<(Bound<'py, PyBytes>, u32, Option<Vec<Bound<'py, PyBytes>>>)>;
type Given = Vec<(Vec<u8>, u32, Option<Vec<Vec<u8>>>)>;

fn error(error: TraceError) -> PyErr {
    PyValueError::new_err(error.0)
}

fn told(py: Python<'_>, columns: Vec<Column>) -> PyResult<Columns<'_>> {
    let told = columns.into_iter().map(|column| {
        let values = PyBytes::new_with(py, 8 * column.values.len(), |bytes| {
            for (place, value) in bytes.chunks_exact_mut(8).zip(&column.values) {
                place.copy_from_slice(&value.to_ne_bytes());
            }
            Ok(())
        })?;
        let words = column.words.map(|words| words.iter().map(|word| PyBytes::new(py, word)).collect());
        Ok((values, column.decimals, words))
    });
    told.collect()
}

fn given(columns: Given) -> Vec<Column> {
    let column = |(values, decimals, words): (Vec<u8>, u32, Option<Vec<Vec<u8>>>)| {
        let numbers = values.chunks_exact(8).filter_map(|number| number.try_into().ok());
        Column { values: numbers.map(i64::from_ne_bytes).collect(), decimals, words }
    };
    columns.into_iter().map(column).collect()
}

/// The columns of lines with so many fields each.
#[pyfunction]
fn parse_trace_text<'py>(py: Python<'py>, block: &[u8], separator: u8, n_fields: usize) -> PyResult<Columns<'py>> {
    told(py, py.detach(|| trace::parse_text(block, separator, n_fields)).map_err(error)?)
}

/// The lines of columns, of at most so many bytes.
#[pyfunction]
fn format_trace_text<'py>(
    py: Python<'py>,
    columns: Given,
    separator: &[u8],
    has_end: bool,
    most: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let text = py.detach(|| trace::format_text(&given(columns), separator, has_end, most)).map_err(error)?;
    Ok(PyBytes::new(py, &text))
}

/// The complete events of a block of OTF2, as columns, and their bytes.
#[pyfunction]
fn parse_otf2<'py>(py: Python<'py>, block: &[u8]) -> PyResult<(Columns<'py>, usize)> {
    let (columns, length) = py.detach(|| trace::parse_otf2(block)).map_err(error)?;
    Ok((told(py, columns)?, length))
}

/// The events of columns, of at most so many bytes.
#[pyfunction]
fn format_otf2<'py>(py: Python<'py>, columns: Given, most: usize) -> PyResult<Bound<'py, PyBytes>> {
    let events = py.detach(|| trace::format_otf2(&given(columns), most)).map_err(error)?;
    Ok(PyBytes::new(py, &events))
}

/// The records of the whole blocks of CLOG-2, as columns, the bytes of these blocks, and whether the log ends.
#[pyfunction]
fn parse_clog2<'py>(
    py: Python<'py>,
    blocks: &[u8],
    block_bytes: usize,
    is_big_endian: bool,
) -> PyResult<(Columns<'py>, usize, bool)> {
    let form = Clog2Form { block_bytes, is_big_endian };
    let (columns, length, is_over) = py.detach(|| trace::parse_clog2(blocks, form)).map_err(error)?;
    Ok((told(py, columns)?, length, is_over))
}

/// The blocks of columns, of at most so many bytes.
#[pyfunction]
fn format_clog2<'py>(
    py: Python<'py>,
    columns: Given,
    block_bytes: usize,
    is_big_endian: bool,
    most: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let form = Clog2Form { block_bytes, is_big_endian };
    let blocks = py.detach(|| trace::format_clog2(&given(columns), form, most)).map_err(error)?;
    Ok(PyBytes::new(py, &blocks))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(parse_trace_text, module)?)?;
    module.add_function(wrap_pyfunction!(format_trace_text, module)?)?;
    module.add_function(wrap_pyfunction!(parse_otf2, module)?)?;
    module.add_function(wrap_pyfunction!(format_otf2, module)?)?;
    module.add_function(wrap_pyfunction!(parse_clog2, module)?)?;
    module.add_function(wrap_pyfunction!(format_clog2, module)?)
}
