//! Values of a method: what instructions read and write.

use crate::TensorSlot;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

/// Index into the value table of a method. Made only after the range was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct ValueId(pub u32);

impl ValueId {
    /// As an index.
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One entry of the value table of a method. `T` says what is known of a tensor: its memory in a session (the
/// default), its definition in a file, a draft of one. `I` is how lists name their members.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<T = TensorSlot, I = ValueId> {
    /// `None` of an optional argument.
    None,
    /// An integer, symbolic integers included.
    Int(i64),
    /// A bool.
    Bool(bool),
    /// A float.
    Double(f64),
    /// A string (attributes such as rounding modes).
    String(Arc<str>),
    /// A tensor.
    Tensor(Box<T>),
    /// Integers, each in a value of its own.
    IntList(Arc<[I]>),
    /// Floats.
    DoubleList(Arc<[f64]>),
    /// Bools.
    BoolList(Arc<[bool]>),
    /// Tensors, each in a value of its own.
    TensorList(Arc<[I]>),
    /// Tensors, some absent.
    OptionalTensorList(Arc<[Option<I>]>),
}

/// The kind of a [`Value`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the variants are named after what they are")]
pub enum ValueKind {
    None,
    Int,
    Bool,
    Double,
    String,
    Tensor,
    IntList,
    DoubleList,
    BoolList,
    TensorList,
    OptionalTensorList,
}

impl<T, I> Value<T, I> {
    /// The kind of this value.
    pub fn kind(&self) -> ValueKind {
        match self {
            Value::None => ValueKind::None,
            Value::Int(_) => ValueKind::Int,
            Value::Bool(_) => ValueKind::Bool,
            Value::Double(_) => ValueKind::Double,
            Value::String(_) => ValueKind::String,
            Value::Tensor(_) => ValueKind::Tensor,
            Value::IntList(_) => ValueKind::IntList,
            Value::DoubleList(_) => ValueKind::DoubleList,
            Value::BoolList(_) => ValueKind::BoolList,
            Value::TensorList(_) => ValueKind::TensorList,
            Value::OptionalTensorList(_) => ValueKind::OptionalTensorList,
        }
    }

    /// The tensor, if it is one.
    #[inline]
    pub fn as_tensor(&self) -> Option<&T> {
        match self {
            Value::Tensor(t) => Some(t),
            _ => None,
        }
    }

    /// The tensor, writable.
    #[inline]
    pub fn as_tensor_mut(&mut self) -> Option<&mut T> {
        match self {
            Value::Tensor(t) => Some(t),
            _ => None,
        }
    }

    /// The members of a list whose members are values of their own; `None` for everything else.
    #[inline]
    pub fn as_list(&self) -> Option<Members<'_, I>> {
        match self {
            Value::IntList(ids) | Value::TensorList(ids) => Some(Members::All(ids)),
            Value::OptionalTensorList(ids) => Some(Members::Some(ids)),
            _ => None,
        }
    }

    /// The values that this one stands for besides itself: its members, and nothing unless it is a list.
    #[inline]
    pub fn members(&self) -> Members<'_, I> {
        self.as_list().unwrap_or(Members::All(&[]))
    }

    /// The same value with what `tensor` makes of a tensor; lists are shared.
    ///
    /// # Errors
    /// Those of `tensor`.
    pub fn try_map<U, E>(&self, tensor: impl FnOnce(&T) -> Result<U, E>) -> Result<Value<U, I>, E> {
        Ok(match self {
            Value::None => Value::None,
            Value::Int(v) => Value::Int(*v),
            Value::Bool(v) => Value::Bool(*v),
            Value::Double(v) => Value::Double(*v),
            Value::String(v) => Value::String(v.clone()),
            Value::Tensor(t) => Value::Tensor(Box::new(tensor(t)?)),
            Value::IntList(l) => Value::IntList(l.clone()),
            Value::DoubleList(l) => Value::DoubleList(l.clone()),
            Value::BoolList(l) => Value::BoolList(l.clone()),
            Value::TensorList(l) => Value::TensorList(l.clone()),
            Value::OptionalTensorList(l) => Value::OptionalTensorList(l.clone()),
        })
    }

    /// As [`Value::try_map`] where nothing can fail.
    pub fn map<U>(&self, tensor: impl FnOnce(&T) -> U) -> Value<U, I> {
        let Ok(value) = self.try_map(|t| Ok::<U, Infallible>(tensor(t)));
        value
    }
}

impl<T, I> From<T> for Value<T, I> {
    fn from(tensor: T) -> Self {
        Value::Tensor(Box::new(tensor))
    }
}

/// The members of a list value: values of their own.
#[derive(Debug)]
pub enum Members<'a, I = ValueId> {
    /// Every one is there.
    All(&'a [I]),
    /// Some are absent.
    Some(&'a [Option<I>]),
}

impl<I> Clone for Members<'_, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Members<'_, I> {}

impl<'a, I: Copy> Members<'a, I> {
    /// Number of positions, absent members included.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Members::All(ids) => ids.len(),
            Members::Some(ids) => ids.len(),
        }
    }

    /// No position?
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// What is at position `at`: nothing behind the end, `Some(None)` for an absent member.
    #[inline]
    pub fn get(self, at: usize) -> Option<Option<I>> {
        match self {
            Members::All(ids) => ids.get(at).map(|id| Some(*id)),
            Members::Some(ids) => ids.get(at).copied(),
        }
    }

    /// Every position in order, `None` for an absent member.
    pub fn positions(self) -> impl ExactSizeIterator<Item = Option<I>> + 'a
    where
        I: 'a,
    {
        (0..self.len()).map(move |at| self.get(at).flatten())
    }

    /// The members that are there, in order.
    pub fn iter(self) -> impl Iterator<Item = I> + 'a
    where
        I: 'a,
    {
        let (all, some) = match self {
            Members::All(ids) => (ids, &[][..]),
            Members::Some(ids) => (&[][..], ids),
        };
        all.iter().copied().chain(some.iter().flatten().copied())
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueKind::None => "None",
            ValueKind::Int => "int",
            ValueKind::Bool => "bool",
            ValueKind::Double => "float",
            ValueKind::String => "str",
            ValueKind::Tensor => "Tensor",
            ValueKind::IntList => "int[]",
            ValueKind::DoubleList => "float[]",
            ValueKind::BoolList => "bool[]",
            ValueKind::TensorList => "Tensor[]",
            ValueKind::OptionalTensorList => "Tensor?[]",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Tensors = Value<&'static str>;

    #[test]
    fn a_list_stands_for_its_members() {
        let ids = || Arc::from([ValueId(3), ValueId(1)]);
        let lists = [Tensors::IntList(ids()), Tensors::TensorList(ids())];
        for list in &lists {
            assert_eq!(list.members().iter().collect::<Vec<_>>(), [ValueId(3), ValueId(1)]);
            assert_eq!(list.members().get(1), Some(Some(ValueId(1))));
        }
        let some = Tensors::OptionalTensorList(Arc::from([None, Some(ValueId(2))]));
        assert_eq!(some.members().iter().collect::<Vec<_>>(), [ValueId(2)]);
        assert_eq!(some.members().positions().collect::<Vec<_>>(), [None, Some(ValueId(2))]);
        assert_eq!((some.members().get(0), some.members().get(2)), (Some(None), None));
        for other in [Tensors::None, Tensors::DoubleList(Arc::from([0.5])), Tensors::Tensor(Box::new("t"))] {
            assert!(other.as_list().is_none() && other.members().is_empty());
        }
    }

    #[test]
    fn mapping_changes_tensors_only() {
        let list = Tensors::TensorList(Arc::from([ValueId(0)]));
        assert_eq!(list.map(|t| t.len()), Value::TensorList(Arc::from([ValueId(0)])));
        assert_eq!(Tensors::Tensor(Box::new("four")).map(|t| t.len()), Value::Tensor(Box::new(4)));
        assert_eq!(Tensors::Tensor(Box::new("")).try_map(|_| Err::<(), _>("refused")), Err("refused"));
    }

    #[test]
    fn a_session_value_takes_three_words() {
        assert_eq!(size_of::<Value>(), 3 * size_of::<usize>());
    }
}
