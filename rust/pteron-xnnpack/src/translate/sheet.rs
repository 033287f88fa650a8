//! The expansion while it is written.

use super::held::Held;
use crate::expansion::{ExpandedConstant, ExpandedTensor, ExpandedValue, Expansion, OperatorCall};
use pteron_core::{DType, DimOrder, Dims, Dynamism, Result, TensorSpec, Value, sizes};
use std::collections::HashMap;

/// A plain argument that stands in the table of values once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Plain {
    None,
    Int(i64),
    Bool(bool),
    Double(u64),
}

/// Values and calls so far.
#[derive(Default)]
pub(super) struct Sheet {
    pub expansion: Expansion,
    plain: HashMap<Plain, usize>,
    arguments: HashMap<usize, usize>,
    /// Which node writes calls now, and its debug handle.
    pub node: (usize, u32),
}

impl Sheet {
    fn push(&mut self, value: ExpandedValue) -> usize {
        let index = self.expansion.values.len();
        self.expansion.values.push(value);
        index
    }

    fn plain(&mut self, key: Plain, value: ExpandedValue) -> usize {
        if let Some(known) = self.plain.get(&key) {
            return *known;
        }
        let index = self.push(value);
        self.plain.insert(key, index);
        index
    }

    pub(super) fn none(&mut self) -> usize {
        self.plain(Plain::None, Value::None)
    }

    pub(super) fn int(&mut self, value: i64) -> usize {
        self.plain(Plain::Int(value), Value::Int(value))
    }

    pub(super) fn bool(&mut self, value: bool) -> usize {
        self.plain(Plain::Bool(value), Value::Bool(value))
    }

    pub(super) fn double(&mut self, value: f64) -> usize {
        self.plain(Plain::Double(value.to_bits()), Value::Double(value))
    }

    /// The number of a dtype in files.
    pub(super) fn dtype(&mut self, dtype: DType) -> usize {
        self.int(i64::from(dtype.code()))
    }

    /// An extent or index as an operator takes it.
    pub(super) fn extent(&mut self, value: usize) -> usize {
        self.int(i64::try_from(value).unwrap_or(i64::MAX))
    }

    pub(super) fn text(&mut self, value: &str) -> usize {
        self.push(Value::String(value.into()))
    }

    pub(super) fn ints(&mut self, list: &[i64]) -> usize {
        let members: Vec<usize> = list.iter().map(|value| self.int(*value)).collect();
        self.push(Value::IntList(members.into()))
    }

    /// Extents or axes as a list.
    pub(super) fn extents(&mut self, list: &[usize]) -> usize {
        let members: Vec<usize> = list.iter().map(|value| self.extent(*value)).collect();
        self.push(Value::IntList(members.into()))
    }

    pub(super) fn tensors(&mut self, list: &[usize]) -> usize {
        self.push(Value::TensorList(list.into()))
    }

    /// The value of argument `index` of the delegate call.
    pub(super) fn argument(&mut self, index: usize) -> usize {
        if let Some(known) = self.arguments.get(&index) {
            return *known;
        }
        let value = self.push(Value::Tensor(Box::new(ExpandedTensor::Argument(index))));
        self.arguments.insert(index, value);
        value
    }

    /// Makes the intermediate `tensor` the argument `index`, which nothing names yet. False when it is no intermediate.
    pub(super) fn becomes_argument(&mut self, tensor: usize, index: usize) -> bool {
        let Some(Value::Tensor(held)) = self.expansion.values.get_mut(tensor) else { return false };
        if !matches!(**held, ExpandedTensor::Intermediate(_)) || self.arguments.contains_key(&index) {
            return false;
        }
        **held = ExpandedTensor::Argument(index);
        self.arguments.insert(index, tensor);
        true
    }

    pub(super) fn constant(&mut self, constant: ExpandedConstant) -> Held {
        let (dtype, extents) = (constant.dtype, constant.shape);
        let tensor = self.push(Value::Tensor(Box::new(ExpandedTensor::Constant(constant))));
        Held { tensor, dtype, extents, order: DimOrder::contiguous(extents.len()), is_dynamic: false }
    }

    /// The constant that `held` is, if it is one.
    pub(super) fn as_constant(&self, held: &Held) -> Option<&ExpandedConstant> {
        match self.expansion.values.get(held.tensor)?.as_tensor()? {
            ExpandedTensor::Constant(constant) => Some(constant),
            _ => None,
        }
    }

    /// A new row-major tensor whose dimensions XNNPACK sees in `order`.
    pub(super) fn intermediate(
        &mut self,
        dtype: DType,
        extents: Dims,
        order: DimOrder,
        is_dynamic: bool,
    ) -> Result<Held> {
        sizes::checked_nbytes(&extents, dtype)?;
        let spec = TensorSpec {
            dtype,
            shape: extents,
            dim_order: DimOrder::contiguous(extents.len()),
            dynamism: if is_dynamic { Dynamism::Bounded } else { Dynamism::Static },
        };
        let tensor = self.push(Value::Tensor(Box::new(ExpandedTensor::Intermediate(spec))));
        Ok(Held { tensor, dtype, extents, order, is_dynamic })
    }

    /// A new tensor like `held`.
    pub(super) fn like(&mut self, held: &Held) -> Result<Held> {
        self.intermediate(held.dtype, held.extents, held.order, held.is_dynamic)
    }

    /// Writes a call.
    pub(super) fn call(&mut self, operator: &'static str, inputs: &[usize], outputs: &[usize]) {
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        let (node, debug_handle) = self.node;
        self.expansion.calls.push(OperatorCall { operator, inputs, outputs, node, debug_handle });
    }
}
