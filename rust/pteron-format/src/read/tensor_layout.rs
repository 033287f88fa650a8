//! dtype, shape and memory order, as every kind of file states them.

use super::place::required;
use flatbuffers::Vector;
use pteron_core::error::printable;
use pteron_core::{DType, DimOrder, Dims, Dynamism, Error, Result, TensorSpec};

/// A static tensor of these fields, checked.
pub(super) fn layout_spec(
    code: i8,
    sizes: Option<Vector<'_, i32>>,
    order: Option<Vector<'_, u8>>,
) -> Result<TensorSpec> {
    let dtype = DType::from_code(code).ok_or_else(|| unknown_dtype(code))?;
    let sizes = required(sizes, "sizes")?;
    let shape = Dims::from_i64(sizes.iter().map(i64::from))?;
    let order = required(order, "dim_order")?;
    let dim_order = DimOrder::new(order.bytes())?;
    if dim_order.rank() != shape.len() {
        return Err(Error::program("dim_order and sizes differ in length")
            .expected(format!("{} entries", shape.len()))
            .got(format!("{dim_order:?}")));
    }
    Ok(TensorSpec { dtype, shape, dim_order, dynamism: Dynamism::Static })
}

/// The error for a code that this version does not know.
pub(super) fn unknown_code(what: &str, code: i8) -> Error {
    Error::program(format!("unknown {what}"))
        .got(format!("code {code}"))
        .hint("the file may come from a newer exporter")
}

#[cold]
fn unknown_dtype(code: i8) -> Error {
    let legacy = match code {
        12 => Some("qint8"),
        13 => Some("quint8"),
        14 => Some("qint32"),
        16 => Some("quint4x2"),
        17 => Some("quint2x4"),
        _ => None,
    };
    match legacy {
        Some(name) => Error::program("the tensor has a legacy quantised dtype")
            .got(printable(name))
            .hint("quantise with torchao's pt2e flow, which stores plain integers with scales"),
        None => unknown_code("dtype", code),
    }
}
