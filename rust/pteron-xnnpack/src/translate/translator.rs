//! What the translation knows of the values of a payload: how each is held, as elements and as the numbers that they mean.

use super::constants;
use super::held::Held;
use super::sheet::Sheet;
use crate::datatype::Datatype;
use crate::expansion::ConstantBytes;
use crate::payload::{Payload, Quantisation, Source, Value};
use pteron_core::memory_reserve::filled;
use pteron_core::{DType, DimOrder, Dims, Error, NamedData, Result, TensorSpec};
use std::collections::HashMap;

/// Bytes of computed weights for each stored one at most: two weights of four bits in a byte become 8 in f32, and a few may be
/// read twice.
const MOST_EXPANDED: usize = 16;

/// Bytes that all weights together may be expanded to.
fn most_expanded(payload: &Payload) -> usize {
    let mut stored: HashMap<&ConstantBytes, usize> = HashMap::new();
    for value in &payload.values {
        if let Source::Constant(bytes) = &value.source {
            let largest = stored.entry(&bytes.bytes).or_default();
            *largest = bytes.len.max(*largest);
        }
    }
    stored.values().fold(0usize, |sum, len| sum.saturating_add(*len)).saturating_mul(MOST_EXPANDED)
}

/// The state of a translation.
pub(super) struct Translator<'a> {
    pub payload: &'a Payload,
    /// The payload's bytes.
    pub bytes: &'a [u8],
    pub arguments: &'a [Option<TensorSpec>],
    pub named: &'a dyn NamedData,
    pub sheet: Sheet,
    /// Values as elements: quantised ones as integers.
    raw: Vec<Option<Held>>,
    /// Quantised values as the numbers they mean.
    real: Vec<Option<Held>>,
    /// Weights that were read, by value and dtype.
    weights: HashMap<(usize, DType), Held>,
    /// Constants that are read as bytes, and their scales.
    symmetric: HashMap<usize, (Held, usize)>,
    /// Filters of four bits, dequantised.
    pub nibbles: HashMap<usize, Held>,
    /// Tensors in another order, by tensor and permutation.
    permuted: HashMap<(usize, Vec<u8>), Held>,
    /// What rows quantised when they run mean, by value and dimensions of a row: exporters quantise an activation once for
    /// each product that reads it.
    pub rows: HashMap<(usize, usize), Held>,
    /// The node that wrote each value.
    pub writers: Vec<(usize, u32)>,
    /// Bytes that weights may still be expanded to.
    expandable: usize,
}

impl<'a> Translator<'a> {
    pub(super) fn new(
        payload: &'a Payload,
        bytes: &'a [u8],
        arguments: &'a [Option<TensorSpec>],
        named: &'a dyn NamedData,
    ) -> Result<Self> {
        let count = payload.values.len();
        Ok(Translator {
            payload,
            bytes,
            arguments,
            named,
            sheet: Sheet::default(),
            raw: filled(None, count)?,
            real: filled(None, count)?,
            weights: HashMap::new(),
            symmetric: HashMap::new(),
            nibbles: HashMap::new(),
            permuted: HashMap::new(),
            rows: HashMap::new(),
            writers: filled((0, 0), count)?,
            expandable: most_expanded(payload),
        })
    }

    pub(super) fn value(&self, value: usize) -> Result<&'a Value> {
        self.payload
            .values
            .get(value)
            .ok_or_else(|| Error::internal("a node of an XNNPACK payload lost a value"))
    }

    /// The dtype in which a node that writes `output` computes.
    pub(super) fn dtype_of(&self, output: usize) -> Result<DType> {
        Ok(self.value(output)?.datatype.real())
    }

    /// The elements of `value`, as they are.
    pub(super) fn raw(&mut self, value: usize) -> Result<Held> {
        if let Some(Some(held)) = self.raw.get(value) {
            return Ok(*held);
        }
        let definition = self.value(value)?;
        let held = match &definition.source {
            Source::Input(argument) => self.input(definition, *argument)?,
            Source::Constant(stored) => self.sheet.constant(constants::as_stored(definition, stored)?),
            Source::Node | Source::Output(_) => {
                return Err(Error::program(
                    "the value has no elements of its own: it is quantised when it runs",
                )
                .got(definition.datatype.name()));
            }
        };
        self.set_raw(value, held);
        Ok(held)
    }

    fn set_raw(&mut self, value: usize, held: Held) {
        if let Some(slot) = self.raw.get_mut(value) {
            *slot = Some(held);
        }
    }

    /// The elements that an output of the payload has in the end.
    pub(super) fn result(&self, value: usize) -> Result<Held> {
        self.raw
            .get(value)
            .copied()
            .flatten()
            .ok_or_else(|| Error::program("an output of the XNNPACK payload has no elements"))
    }

    fn input(&mut self, definition: &Value, argument: usize) -> Result<Held> {
        let spec = self.spec(argument)?;
        let expected = definition.datatype.stored();
        if spec.dtype != expected {
            return Err(Error::program(
                "an argument of the delegate call is of another type than the payload says",
            )
            .expected(format!("{expected} for argument {argument}"))
            .got(spec.dtype.name()));
        }
        let tensor = self.sheet.argument(argument);
        let held = Held {
            tensor,
            dtype: spec.dtype,
            extents: spec.shape,
            order: spec.dim_order,
            is_dynamic: spec.is_dynamic(),
        };
        // XNNPACK has no tensors without dimensions.
        if spec.shape.is_empty() && *definition.dims == [1] {
            return self.view(&held, &[Some(1)]);
        }
        if spec.shape.len() != definition.dims.len() {
            return Err(Error::program("an argument of the delegate call has another number of dimensions")
                .expected(format!("extents {} for argument {argument}", definition.dims))
                .got(spec.shape.to_string()));
        }
        Ok(held)
    }

    pub(super) fn spec(&self, argument: usize) -> Result<&'a TensorSpec> {
        let spec = self.arguments.get(argument).and_then(Option::as_ref);
        spec.ok_or_else(|| Error::internal("an argument of an XNNPACK payload was lost"))
    }

    /// The numbers that `value` means, in `dtype`.
    pub(super) fn real(&mut self, value: usize, dtype: DType) -> Result<Held> {
        let definition = self.value(value)?;
        if let Source::Constant(stored) = &definition.source {
            if let Some(known) = self.weights.get(&(value, dtype)) {
                return Ok(*known);
            }
            let constant = constants::real(definition, stored, dtype, self.bytes, self.named)
                .map_err(|e| e.argument(format!("value {}", definition.id)))?;
            if let ConstantBytes::Computed(computed) = &constant.bytes {
                self.expand(computed.as_slice().len())?;
            }
            let held = self.sheet.constant(constant);
            self.weights.insert((value, dtype), held);
            return Ok(held);
        }
        let held = match self.real.get(value).copied().flatten() {
            Some(known) => known,
            None => {
                let raw = self.raw(value)?;
                match definition.quantisation {
                    Quantisation::Tensor { scale, zero_point } => {
                        let real = self.dequantised(&raw, scale, zero_point)?;
                        self.set_real(value, real);
                        real
                    }
                    _ => raw,
                }
            }
        };
        self.cast(&held, dtype)
    }

    /// Counts bytes that are computed from stored ones, here or by whoever dequantises them.
    pub(super) fn expand(&mut self, nbytes: usize) -> Result<()> {
        let left = self.expandable.checked_sub(nbytes);
        self.expandable = left.ok_or_else(|| {
            Error::limit("weights of an XNNPACK payload become larger than their bytes explain")
                .expected(format!("at most {MOST_EXPANDED} bytes for each stored byte"))
                .hint("the same bytes are used as many weights: the file was damaged, or made to take memory")
        })?;
        Ok(())
    }

    /// The weight `value` in the order `permutation`, whose first dimension is that of the output channels: its bytes and a
    /// call that dequantises them where they are symmetric int8, which a rule at load makes an operation in integers.
    pub(super) fn weight(&mut self, value: usize, dtype: DType, permutation: &[u8]) -> Result<Held> {
        let Some((held, scales)) = self.symmetric_bytes(value, dtype, permutation)? else {
            let held = self.real(value, dtype)?;
            held.require_rank(permutation.len())?;
            let held = self.in_rows(&held)?;
            return self.permuted(&held, permutation);
        };
        let held = self.permuted(&held, permutation)?;
        let out = self.sheet.like(&Held { dtype, ..held })?;
        let none = self.sheet.none();
        let (axis, low, high) = (self.sheet.int(0), self.sheet.int(-128), self.sheet.int(127));
        let int8 = self.sheet.dtype(DType::Int8);
        let args = [held.tensor, scales, none, axis, low, high, int8, none];
        self.sheet.call("quantized_decomposed::dequantize_per_channel.out", &args, &[out.tensor]);
        Ok(out)
    }

    /// The bytes of a constant that is symmetric int8, and the scales of what becomes dimension 0, for a weight in f32.
    fn symmetric_bytes(
        &mut self,
        value: usize,
        dtype: DType,
        permutation: &[u8],
    ) -> Result<Option<(Held, usize)>> {
        let definition = self.value(value)?;
        let Source::Constant(stored) = &definition.source else { return Ok(None) };
        let is_outputs = |axis: usize| permutation.first().is_some_and(|first| usize::from(*first) == axis);
        let is_symmetric = match definition.quantisation {
            Quantisation::Tensor { zero_point: 0, .. } => true,
            Quantisation::Channel { axis, .. } => is_outputs(axis),
            _ => false,
        };
        let is_int8 = matches!(definition.datatype, Datatype::Qint8 | Datatype::Qcint8);
        if !is_symmetric || !is_int8 || dtype != DType::Float32 || definition.dims.len() != permutation.len()
        {
            return Ok(None);
        }
        if let Some(known) = self.symmetric.get(&value) {
            return Ok(Some(*known));
        }
        self.expand(stored.len.saturating_mul(size_of::<f32>()))?;
        let scales = constants::scales(definition, self.bytes, self.named)
            .map_err(|e| e.argument(format!("value {}", definition.id)))?;
        let found = (
            self.sheet.constant(constants::as_stored(definition, stored)?),
            self.sheet.constant(scales).tensor,
        );
        self.symmetric.insert(value, found);
        Ok(Some(found))
    }

    /// Says what numbers a value that is quantised when it runs means.
    pub(super) fn set_real(&mut self, value: usize, held: Held) {
        if let Some(slot) = self.real.get_mut(value) {
            *slot = Some(held);
        }
    }

    /// Makes `held` the result of a node: cut to the node's bounds, quantised or cast as `output` asks.
    pub(super) fn finish(&mut self, output: usize, held: Held, limits: (f32, f32)) -> Result<()> {
        let held = self.limited(&held, limits)?;
        let definition = self.value(output)?;
        let elements = match definition.quantisation {
            Quantisation::Tensor { scale, zero_point } => {
                let real = self.cast(&held, DType::Float32)?;
                self.quantised(&real, scale, zero_point, definition.datatype.stored())?
            }
            Quantisation::None => self.cast(&held, definition.datatype.real())?,
            _ => {
                return Err(Error::program(
                    "only a Convert node writes a value that is quantised when it runs",
                )
                .got(definition.datatype.name()));
            }
        };
        self.set_raw(output, elements);
        Ok(())
    }

    /// Makes `held` the elements of `output`, as they are.
    pub(super) fn finish_raw(&mut self, output: usize, held: Held) {
        self.set_raw(output, held);
    }

    /// Are the elements of both values the same numbers?
    pub(super) fn have_equal_elements(&self, a: usize, b: usize) -> Result<bool> {
        let (a, b) = (self.value(a)?, self.value(b)?);
        Ok(a.datatype == b.datatype
            && match (&a.quantisation, &b.quantisation) {
                (Quantisation::None, Quantisation::None) => true,
                (
                    Quantisation::Tensor { scale: x, zero_point: zx },
                    Quantisation::Tensor { scale: y, zero_point: zy },
                ) => x == y && zx == zy,
                _ => false,
            })
    }

    // ---- Calls that every node may need -----------------------------------------------------------

    /// In another dtype.
    pub(super) fn cast(&mut self, held: &Held, dtype: DType) -> Result<Held> {
        if held.dtype == dtype {
            return Ok(*held);
        }
        let out = self.sheet.intermediate(dtype, held.extents, held.order, held.is_dynamic)?;
        let (no, none) = (self.sheet.bool(false), self.sheet.none());
        self.sheet.call("aten::_to_copy.out", &[held.tensor, no, none], &[out.tensor]);
        Ok(out)
    }

    /// Cut to an interval.
    pub(super) fn limited(&mut self, held: &Held, (low, high): (f32, f32)) -> Result<Held> {
        if low == f32::NEG_INFINITY && high == f32::INFINITY {
            return Ok(*held);
        }
        let out = self.sheet.like(held)?;
        if low == 0.0 && high == f32::INFINITY {
            self.sheet.call("aten::relu.out", &[held.tensor], &[out.tensor]);
            return Ok(out);
        }
        let mut bound = |limit: f32| {
            if limit.is_infinite() { self.sheet.none() } else { self.sheet.double(f64::from(limit)) }
        };
        let (low, high) = (bound(low), bound(high));
        self.sheet.call("aten::clamp.out", &[held.tensor, low, high], &[out.tensor]);
        Ok(out)
    }

    /// `(element - zero_point) * scale` in f32.
    fn dequantised(&mut self, held: &Held, scale: f32, zero_point: i32) -> Result<Held> {
        let out = self.sheet.intermediate(DType::Float32, held.extents, held.order, held.is_dynamic)?;
        let parameters = self.parameters(scale, zero_point, held.dtype);
        let none = self.sheet.none();
        let args = [&[held.tensor], parameters.as_slice(), &[none]].concat();
        self.sheet.call("quantized_decomposed::dequantize_per_tensor.out", &args, &[out.tensor]);
        Ok(out)
    }

    /// `real / scale + zero_point`, rounded to even and cut to the type.
    fn quantised(&mut self, held: &Held, scale: f32, zero_point: i32, dtype: DType) -> Result<Held> {
        let out = self.sheet.intermediate(dtype, held.extents, held.order, held.is_dynamic)?;
        let parameters = self.parameters(scale, zero_point, dtype);
        let args = [&[held.tensor], parameters.as_slice()].concat();
        self.sheet.call("quantized_decomposed::quantize_per_tensor.out", &args, &[out.tensor]);
        Ok(out)
    }

    /// Scale, zero point, least and greatest element, and dtype, as the operators take them.
    fn parameters(&mut self, scale: f32, zero_point: i32, dtype: DType) -> [usize; 5] {
        let (low, high) = match dtype {
            DType::UInt8 => (0, 255),
            _ => (-128, 127),
        };
        let sheet = &mut self.sheet;
        [
            sheet.double(f64::from(scale)),
            sheet.int(i64::from(zero_point)),
            sheet.int(low),
            sheet.int(high),
            sheet.dtype(dtype),
        ]
    }

    // ---- Layout -----------------------------------------------------------------------------------

    /// The tensor whose dimensions XNNPACK sees in `order`: itself, a view of a constant, or a permuted copy.
    pub(super) fn ordered(&mut self, held: &Held, order: DimOrder) -> Result<Held> {
        if held.order == order {
            return Ok(*held);
        }
        let bad = || Error::internal("orders of an XNNPACK value differ in rank");
        let mut permutation = [0u8; pteron_core::MAX_RANK];
        for (target, source) in order.as_slice().iter().zip(held.order.as_slice()) {
            *permutation.get_mut(usize::from(*target)).ok_or_else(bad)? = *source;
        }
        let permutation =
            permutation.get(..held.rank()).filter(|_| order.rank() == held.rank()).ok_or_else(bad)?;
        Ok(Held { order, ..self.permuted(held, permutation)? })
    }

    /// Row-major as XNNPACK has it.
    pub(super) fn in_rows(&mut self, held: &Held) -> Result<Held> {
        self.ordered(held, DimOrder::contiguous(held.rank()))
    }

    /// The tensor whose dimension `j` is dimension `permutation[j]` of `held`'s tensor; its order is then its own.
    pub(super) fn permuted(&mut self, held: &Held, permutation: &[u8]) -> Result<Held> {
        let key = (held.tensor, permutation.to_vec());
        if let Some(known) = self.permuted.get(&key) {
            return Ok(*known);
        }
        let pick = |list: &Dims| {
            let mut out = Dims::EMPTY;
            for axis in permutation {
                out.push(list.get(usize::from(*axis)).copied().unwrap_or_default())?;
            }
            Ok::<_, Error>(out)
        };
        let out = match self.sheet.as_constant(held) {
            Some(constant) => {
                let mut view = constant.clone();
                view.shape = pick(&constant.shape)?;
                view.strides = pick(&constant.strides)?;
                self.sheet.constant(view)
            }
            None => {
                let extents = pick(&held.extents)?;
                let order = DimOrder::contiguous(extents.len());
                let out = self.sheet.intermediate(held.dtype, extents, order, held.is_dynamic)?;
                let axes: Vec<i64> = permutation.iter().map(|axis| i64::from(*axis)).collect();
                let axes = self.sheet.ints(&axes);
                self.sheet.call("aten::permute_copy.out", &[held.tensor, axes], &[out.tensor]);
                out
            }
        };
        self.permuted.insert(key, out);
        Ok(out)
    }

    /// With other extents over the same elements in XNNPACK's order; at most one is `None`: what is left.
    pub(super) fn view(&mut self, held: &Held, shape: &[Option<usize>]) -> Result<Held> {
        let held = if held.is_in_memory_order() { *held } else { self.in_rows(held)? };
        let numel = held.extents.numel()?;
        let known = pteron_core::sizes::checked_numel(&shape.iter().flatten().copied().collect::<Vec<_>>())?;
        let mut extents = Dims::EMPTY;
        for extent in shape {
            extents.push(match extent {
                Some(extent) => *extent,
                None => numel.checked_div(known).unwrap_or_default(),
            })?;
        }
        // What a bound becomes need not divide evenly; the call finds out for the extents of the day.
        if extents.numel()? != numel && !held.is_dynamic {
            return Err(Error::program("the new shape has another number of elements")
                .expected(format!("{numel} elements, as {} has", held.dims()?))
                .got(extents.to_string()));
        }
        let order = DimOrder::contiguous(extents.len());
        let is_dynamic = held.is_dynamic && shape.iter().any(Option::is_none);
        let out = self.sheet.intermediate(held.dtype, extents, order, is_dynamic)?;
        let mut sizes = Vec::with_capacity(shape.len());
        for (asked, extent) in shape.iter().zip(extents.iter()) {
            let is_open = asked.is_none() && is_dynamic;
            sizes.push(if is_open { -1 } else { i64::try_from(*extent).unwrap_or(i64::MAX) });
        }
        let sizes = self.sheet.ints(&sizes);
        self.sheet.call("aten::view_copy.out", &[held.tensor, sizes], &[out.tensor]);
        Ok(out)
    }
}
