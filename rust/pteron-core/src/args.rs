//! How kernels reach their arguments: [`Args`] while running, [`BindArgs`] while binding shapes.
//! Unsafe island (construction only).

use crate::{
    Dims, Error, Members, RandomDraws, RandomStream, Result, TensorSlot, TensorView, TensorViewMut, Value,
    ValueId, ValueKind,
};

/// A number of either kind, as PyTorch's `Scalar`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// Integer.
    Int(i64),
    /// Float.
    Double(f64),
    /// Bool.
    Bool(bool),
}

impl Scalar {
    /// As a float.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Int(i) => i as f64,
            Scalar::Double(d) => d,
            Scalar::Bool(b) => b as u8 as f64,
        }
    }
    /// As an integer; floats are truncated.
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Int(i) => i,
            Scalar::Double(d) => d as i64,
            Scalar::Bool(b) => b as i64,
        }
    }
    /// As a truth value.
    pub fn to_bool(self) -> bool {
        match self {
            Scalar::Int(i) => i != 0,
            Scalar::Double(d) => d != 0.0,
            Scalar::Bool(b) => b,
        }
    }
}

/// The arguments of one call, by position.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    values: &'a [Value],
    ids: &'a [ValueId],
}

#[cold]
fn wrong_kind(index: usize, expected: &str, got: Option<&Value>) -> Error {
    Error::kernel(format!("argument {index} has the wrong kind"))
        .expected(expected)
        .got(got.map_or("no such argument".to_string(), |v| v.kind().to_string()))
}

impl<'a> Args<'a> {
    /// The arguments `ids` of `values`.
    ///
    /// # Safety
    /// Every tensor among them must point to memory that is valid for its current shape during `'a`,
    /// and the outputs of the call may overlap its inputs only as the kernel's alias rule allows.
    #[inline(always)]
    pub unsafe fn new(values: &'a [Value], ids: &'a [ValueId]) -> Self {
        Args { values, ids }
    }

    /// Number of arguments.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// No arguments?
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    #[inline(always)]
    fn value(&self, i: usize) -> Option<&'a Value> {
        self.ids.get(i).and_then(|id| self.values.get(id.index()))
    }

    /// The kind of the argument at position `i`, if there is one.
    pub fn kind(&self, i: usize) -> Option<ValueKind> {
        self.value(i).map(Value::kind)
    }

    /// The slots at position `i`: of a tensor, or of the members of a list.
    pub(crate) fn slots(&self, i: usize) -> Result<impl Iterator<Item = Result<&'a TensorSlot>>> {
        let (single, list) = match self.value(i) {
            Some(Value::Tensor(t)) => (Some(&**t), None),
            Some(Value::TensorList(_)) => (None, Some(self.tensor_list(i)?)),
            other => return Err(wrong_kind(i, "Tensor", other)),
        };
        let members = list.into_iter().flat_map(|list| {
            let member = move |j| {
                list.slot(j)?.ok_or_else(|| wrong_kind(j, "Tensor (list element)", Some(&Value::None)))
            };
            (0..list.len()).map(member)
        });
        Ok(single.into_iter().map(Ok).chain(members))
    }

    /// The tensor at position `i`.
    #[inline(always)]
    pub fn tensor(&self, i: usize) -> Result<TensorView<'a>> {
        match self.value(i) {
            Some(Value::Tensor(t)) => Ok(t.view()),
            other => Err(wrong_kind(i, "Tensor", other)),
        }
    }

    /// The tensor at position `i`, or `None`.
    #[inline(always)]
    pub fn optional_tensor(&self, i: usize) -> Result<Option<TensorView<'a>>> {
        match self.value(i) {
            Some(Value::Tensor(t)) => Ok(Some(t.view())),
            Some(Value::None) => Ok(None),
            other => Err(wrong_kind(i, "Tensor?", other)),
        }
    }

    /// The output tensor at position `i`, writable under the contract of [`Args::new`].
    #[inline(always)]
    pub fn output(&self, i: usize) -> Result<TensorViewMut<'a>> {
        match self.value(i) {
            // SAFETY: whoever made the arguments promised memory for every tensor, and outputs that overlap as the alias rule allows.
            Some(Value::Tensor(t)) => Ok(unsafe { TensorViewMut::from_raw(t.data(), t.meta()) }),
            other => Err(wrong_kind(i, "Tensor", other)),
        }
    }

    /// The integer at position `i`.
    #[inline(always)]
    pub fn int(&self, i: usize) -> Result<i64> {
        match self.value(i) {
            Some(Value::Int(v)) => Ok(*v),
            Some(Value::Bool(v)) => Ok(*v as i64),
            other => Err(wrong_kind(i, "int", other)),
        }
    }

    /// The integer at position `i`, or `None`.
    pub fn optional_int(&self, i: usize) -> Result<Option<i64>> {
        match self.value(i) {
            Some(Value::None) => Ok(None),
            _ => self.int(i).map(Some),
        }
    }

    /// The bool at position `i`.
    #[inline(always)]
    pub fn bool(&self, i: usize) -> Result<bool> {
        match self.value(i) {
            Some(Value::Bool(v)) => Ok(*v),
            other => Err(wrong_kind(i, "bool", other)),
        }
    }

    /// The float at position `i`; integers are accepted.
    #[inline(always)]
    pub fn double(&self, i: usize) -> Result<f64> {
        self.scalar(i).map(Scalar::to_f64)
    }

    /// The float at position `i`, or `None`.
    pub fn optional_double(&self, i: usize) -> Result<Option<f64>> {
        Ok(self.optional_scalar(i)?.map(Scalar::to_f64))
    }

    /// The number at position `i`.
    #[inline(always)]
    pub fn scalar(&self, i: usize) -> Result<Scalar> {
        match self.value(i) {
            Some(Value::Int(v)) => Ok(Scalar::Int(*v)),
            Some(Value::Double(v)) => Ok(Scalar::Double(*v)),
            Some(Value::Bool(v)) => Ok(Scalar::Bool(*v)),
            other => Err(wrong_kind(i, "a number", other)),
        }
    }

    /// The number at position `i`, or `None`.
    pub fn optional_scalar(&self, i: usize) -> Result<Option<Scalar>> {
        match self.value(i) {
            Some(Value::None) => Ok(None),
            _ => self.scalar(i).map(Some),
        }
    }

    /// The string at position `i`, or `None`.
    pub fn optional_string(&self, i: usize) -> Result<Option<&'a str>> {
        match self.value(i) {
            Some(Value::None) => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            other => Err(wrong_kind(i, "str?", other)),
        }
    }

    /// The integers at position `i`.
    #[inline(always)]
    pub fn int_list(&self, i: usize) -> Result<IntListView<'a>> {
        match self.value(i) {
            Some(Value::IntList(ids)) => Ok(IntListView { values: self.values, ids }),
            other => Err(wrong_kind(i, "int[]", other)),
        }
    }

    /// The integers at position `i`, or `None`.
    pub fn optional_int_list(&self, i: usize) -> Result<Option<IntListView<'a>>> {
        match self.value(i) {
            Some(Value::None) => Ok(None),
            _ => self.int_list(i).map(Some),
        }
    }

    /// The floats at position `i`, or `None`.
    pub fn optional_double_list(&self, i: usize) -> Result<Option<&'a [f64]>> {
        match self.value(i) {
            Some(Value::None) => Ok(None),
            Some(Value::DoubleList(d)) => Ok(Some(d)),
            other => Err(wrong_kind(i, "float[]?", other)),
        }
    }

    /// The bools at position `i`.
    pub fn bool_list(&self, i: usize) -> Result<&'a [bool]> {
        match self.value(i) {
            Some(Value::BoolList(b)) => Ok(b),
            other => Err(wrong_kind(i, "bool[]", other)),
        }
    }

    /// The tensors at position `i` (plain or optional list).
    pub fn tensor_list(&self, i: usize) -> Result<TensorListView<'a>> {
        match self.value(i) {
            Some(list @ (Value::TensorList(_) | Value::OptionalTensorList(_))) => {
                Ok(TensorListView { values: self.values, members: list.members() })
            }
            other => Err(wrong_kind(i, "Tensor[]", other)),
        }
    }
}

/// A list of integers whose elements live in values of their own.
#[derive(Clone, Copy)]
pub struct IntListView<'a> {
    values: &'a [Value],
    ids: &'a [ValueId],
}

impl<'a> IntListView<'a> {
    /// Number of integers.
    pub fn len(&self) -> usize {
        self.ids.len()
    }
    /// No integers?
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
    /// The integer at `j`.
    pub fn get(&self, j: usize) -> Result<i64> {
        match self.ids.get(j).and_then(|id| self.values.get(id.index())) {
            Some(Value::Int(v)) => Ok(*v),
            other => Err(wrong_kind(j, "int (list element)", other)),
        }
    }
    /// All integers in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<i64>> + 'a {
        let this = *self;
        (0..this.len()).map(move |j| this.get(j))
    }
    /// As extents: non-negative, at most [`crate::MAX_RANK`] of them.
    pub fn to_dims(&self) -> Result<Dims> {
        let mut out = Dims::EMPTY;
        for v in self.iter() {
            let v = v?;
            out.push(usize::try_from(v).map_err(|_| Error::kernel("negative extent").got(v.to_string()))?)?;
        }
        Ok(out)
    }
}

/// A list of tensors whose elements live in values of their own.
#[derive(Clone, Copy)]
pub struct TensorListView<'a> {
    values: &'a [Value],
    members: Members<'a>,
}

impl<'a> TensorListView<'a> {
    /// Number of tensors.
    pub fn len(&self) -> usize {
        self.members.len()
    }
    /// No tensors?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slot(&self, j: usize) -> Result<Option<&'a TensorSlot>> {
        let id = match self.members.get(j) {
            Some(None) => return Ok(None),
            id => id.flatten(),
        };
        match id.and_then(|id| self.values.get(id.index())) {
            Some(Value::Tensor(t)) => Ok(Some(t)),
            Some(Value::None) => Ok(None),
            other => Err(wrong_kind(j, "Tensor (list element)", other)),
        }
    }

    /// The tensor at `j`; absent ones are an error.
    pub fn get(&self, j: usize) -> Result<TensorView<'a>> {
        self.get_optional(j)?.ok_or_else(|| wrong_kind(j, "Tensor (list element)", Some(&Value::None)))
    }

    /// The tensor at `j`, or `None`.
    pub fn get_optional(&self, j: usize) -> Result<Option<TensorView<'a>>> {
        Ok(self.slot(j)?.map(|s| s.view()))
    }

    /// The output tensor at `j`, writable under the contract of [`Args::new`].
    pub fn output(&self, j: usize) -> Result<TensorViewMut<'a>> {
        match self.slot(j)? {
            // SAFETY: whoever made the arguments promised memory for every tensor, and outputs that overlap as the alias rule allows.
            Some(t) => Ok(unsafe { TensorViewMut::from_raw(t.data(), t.meta()) }),
            None => Err(wrong_kind(j, "Tensor (list element)", Some(&Value::None))),
        }
    }
}

/// The arguments of one call while shapes are bound: readable as [`Args`], outputs can be resized
/// and scalar results written.
pub struct BindArgs<'a> {
    values: &'a mut [Value],
    ids: &'a [ValueId],
    random: Option<&'a mut RandomStream>,
}

impl<'a> BindArgs<'a> {
    /// The arguments `ids` of `values`.
    ///
    /// # Safety
    /// As [`Args::new`].
    #[inline(always)]
    pub unsafe fn new(values: &'a mut [Value], ids: &'a [ValueId]) -> Self {
        BindArgs { values, ids, random: None }
    }

    /// The same arguments for a kernel that draws random numbers.
    #[inline(always)]
    pub fn with_random(mut self, random: &'a mut RandomStream) -> Self {
        self.random = Some(random);
        self
    }

    /// What this call draws; an error where nobody gave the call a stream.
    pub fn random_draws(&mut self) -> Result<RandomDraws> {
        self.random
            .as_mut()
            .map(|stream| stream.next_call())
            .ok_or_else(|| Error::internal("a random operator was bound without a session"))
    }

    /// Read access.
    #[inline(always)]
    pub fn args(&self) -> Args<'_> {
        // SAFETY: whoever made the arguments promised memory for every tensor.
        unsafe { Args::new(self.values, self.ids) }
    }

    fn slot_mut(&mut self, i: usize) -> Result<&mut TensorSlot> {
        match self.ids.get(i).and_then(|id| self.values.get_mut(id.index())) {
            Some(Value::Tensor(t)) => Ok(t),
            other => Err(wrong_kind(i, "Tensor", other.map(|v| &*v))),
        }
    }

    /// The largest shape that the output at `i` has room for.
    pub fn bound(&self, i: usize) -> Result<Dims> {
        match self.ids.get(i).and_then(|id| self.values.get(id.index())) {
            Some(Value::Tensor(t)) => Ok(*t.bound()),
            other => Err(wrong_kind(i, "Tensor", other)),
        }
    }

    /// Gives the output at `i` its shape for this call.
    pub fn resize(&mut self, i: usize, shape: &[usize]) -> Result<()> {
        self.slot_mut(i)?.resize(shape)
    }

    /// Gives the output at position `j` of the tensor list at `i` its shape.
    pub fn resize_in_list(&mut self, i: usize, j: usize, shape: &[usize]) -> Result<()> {
        let id = match self.ids.get(i).and_then(|id| self.values.get(id.index())) {
            Some(Value::TensorList(ids)) => ids.get(j).copied(),
            other => return Err(wrong_kind(i, "Tensor[]", other)),
        };
        match id.and_then(|id| self.values.get_mut(id.index())) {
            Some(Value::Tensor(t)) => t.resize(shape),
            other => Err(wrong_kind(j, "Tensor (list element)", other.map(|v| &*v))),
        }
    }

    /// Shows the slots at position `i` to `change`: of a tensor, or of the members of a list.
    pub(crate) fn each_output(
        &mut self,
        i: usize,
        change: &mut dyn FnMut(&mut TensorSlot) -> Result<()>,
    ) -> Result<()> {
        let members = match self.ids.get(i).and_then(|id| self.values.get(id.index())) {
            Some(Value::TensorList(ids)) => ids.clone(),
            _ => return change(self.slot_mut(i)?),
        };
        for (j, id) in members.iter().enumerate() {
            match self.values.get_mut(id.index()) {
                Some(Value::Tensor(t)) => change(t)?,
                other => return Err(wrong_kind(j, "Tensor (list element)", other.map(|v| &*v))),
            }
        }
        Ok(())
    }

    /// Makes the output at `i` a view of the tensor at `from` with `shape` (same element count is
    /// the caller's check).
    pub fn alias(&mut self, i: usize, from: usize, shape: &[usize]) -> Result<()> {
        let from = match self.ids.get(from).and_then(|id| self.values.get(id.index())) {
            Some(Value::Tensor(t)) => (**t).clone(),
            other => return Err(wrong_kind(from, "Tensor", other)),
        };
        self.slot_mut(i)?.alias(&from, shape)
    }

    /// Writes a scalar result.
    pub fn set(&mut self, i: usize, value: Scalar) -> Result<()> {
        match self.ids.get(i).and_then(|id| self.values.get_mut(id.index())) {
            Some(slot @ (Value::None | Value::Int(_) | Value::Bool(_) | Value::Double(_))) => {
                *slot = match value {
                    Scalar::Int(v) => Value::Int(v),
                    Scalar::Double(v) => Value::Double(v),
                    Scalar::Bool(v) => Value::Bool(v),
                };
                Ok(())
            }
            other => Err(wrong_kind(i, "a scalar", other.map(|v| &*v))),
        }
    }
}
