//! Functions of one and two values, element by element, and softmax.

use super::held::Held;
use super::translator::Translator;
use crate::payload::{Binary, Source, Unary};
use pteron_core::{DType, Dims, Error, Result};

impl Translator<'_> {
    /// A function of one value.
    pub(super) fn unary(
        &mut self,
        function: Unary,
        input: usize,
        output: usize,
        limits: (f32, f32),
    ) -> Result<()> {
        if function == Unary::Copy && self.have_equal_elements(input, output)? && limits == UNLIMITED {
            let held = self.raw(input)?;
            self.finish_raw(output, held);
            return Ok(());
        }
        let dtype = self.dtype_of(output)?;
        // A conversion begins with the numbers as they are.
        let dtype = if function == Unary::Convert { self.dtype_of(input)? } else { dtype };
        let x = self.real(input, dtype)?;
        let result = match function {
            Unary::Clamp | Unary::Convert | Unary::Copy => x,
            Unary::Softmax => self.softmax(&x)?,
            Unary::Gelu => {
                let kind = self.sheet.text("none");
                self.one("aten::gelu.out", &x, &[kind])?
            }
            Unary::Elu { alpha } => {
                let (alpha, one) = (self.sheet.double(f64::from(alpha)), self.sheet.int(1));
                self.one("aten::elu.out", &x, &[alpha, one, one])?
            }
            Unary::LeakyRelu { slope } => {
                let slope = self.sheet.double(f64::from(slope));
                self.one("aten::leaky_relu.out", &x, &[slope])?
            }
            Unary::Abs => self.one("aten::abs.out", &x, &[])?,
            Unary::Ceiling => self.one("aten::ceil.out", &x, &[])?,
            Unary::Cos => self.one("aten::cos.out", &x, &[])?,
            Unary::Exp => self.one("aten::exp.out", &x, &[])?,
            Unary::Floor => self.one("aten::floor.out", &x, &[])?,
            Unary::Hardswish => self.one("aten::hardswish.out", &x, &[])?,
            Unary::Log => self.one("aten::log.out", &x, &[])?,
            Unary::Negate => self.one("aten::neg.out", &x, &[])?,
            Unary::ReciprocalSquareRoot => self.one("aten::rsqrt.out", &x, &[])?,
            Unary::Sigmoid => self.one("aten::sigmoid.out", &x, &[])?,
            Unary::Sin => self.one("aten::sin.out", &x, &[])?,
            Unary::SquareRoot => self.one("aten::sqrt.out", &x, &[])?,
            Unary::Tanh => self.one("aten::tanh.out", &x, &[])?,
            Unary::Square => {
                let out = self.sheet.like(&x)?;
                self.sheet.call("aten::mul.out", &[x.tensor, x.tensor], &[out.tensor]);
                out
            }
        };
        self.finish(output, result, limits)
    }

    /// A call with one tensor and plain arguments, whose result is like the tensor.
    fn one(&mut self, operator: &'static str, x: &Held, plain: &[usize]) -> Result<Held> {
        let out = self.sheet.like(x)?;
        self.sheet.call(operator, &[&[x.tensor], plain].concat(), &[out.tensor]);
        Ok(out)
    }

    /// Along XNNPACK's last dimension.
    fn softmax(&mut self, x: &Held) -> Result<Held> {
        let last =
            x.rank().checked_sub(1).ok_or_else(|| Error::program("softmax of a value without dimensions"))?;
        let (axis, no) = (x.axis(last)?, self.sheet.bool(false));
        let axis = self.sheet.extent(axis);
        self.one("aten::_softmax.out", x, &[axis, no])
    }

    /// A function of two values, broadcast to one shape.
    pub(super) fn binary(
        &mut self,
        function: Binary,
        inputs: [usize; 2],
        output: usize,
        limits: (f32, f32),
    ) -> Result<()> {
        if let Some(call) = self.integer_call(function, inputs, output)? {
            return self.in_integers(&call, inputs, output, limits);
        }
        let dtype = self.dtype_of(output)?;
        let [a, b] = inputs;
        let (a, b) = (self.operand(a, dtype)?, self.operand(b, dtype)?);
        let (a, b) = self.in_one_order(a, b)?;
        let result = match function {
            Binary::Add | Binary::Subtract => {
                let one = self.sheet.int(1);
                let name = if function == Binary::Add { "aten::add.out" } else { "aten::sub.out" };
                self.two(name, &a, &b, &[one])?
            }
            Binary::Divide => self.two("aten::div.out", &a, &b, &[])?,
            Binary::Maximum => self.two("aten::maximum.out", &a, &b, &[])?,
            Binary::Minimum => self.two("aten::minimum.out", &a, &b, &[])?,
            Binary::Multiply => self.two("aten::mul.out", &a, &b, &[])?,
            Binary::Prelu => self.prelu(&a, &b)?,
        };
        self.finish(output, result, limits)
    }

    /// The numbers of `value` for an operator that broadcasts: an argument without dimensions as it is, not as the list of
    /// one number that XNNPACK takes it for.
    fn operand(&mut self, value: usize, dtype: DType) -> Result<Held> {
        if let Source::Input(argument) = self.value(value)?.source {
            let spec = self.spec(argument)?;
            // The type is checked by the other way.
            if spec.shape.is_empty() && spec.dtype == dtype && self.dtype_of(value)? == dtype {
                let tensor = self.sheet.argument(argument);
                return Ok(Held {
                    tensor,
                    dtype,
                    extents: spec.shape,
                    order: spec.dim_order,
                    is_dynamic: false,
                });
            }
        }
        self.real(value, dtype)
    }

    /// `x` where it is not negative, else `x * slope`.
    fn prelu(&mut self, x: &Held, slope: &Held) -> Result<Held> {
        let negative = self.sheet.intermediate(DType::Bool, x.extents, x.order, x.is_dynamic)?;
        let zero = self.sheet.int(0);
        self.sheet.call("aten::lt.Scalar_out", &[x.tensor, zero], &[negative.tensor]);
        let scaled = self.two("aten::mul.out", x, slope, &[])?;
        let out = self.sheet.like(&scaled)?;
        self.sheet.call("aten::where.self_out", &[negative.tensor, scaled.tensor, x.tensor], &[out.tensor]);
        Ok(out)
    }

    /// A call with two tensors in one order and plain arguments.
    fn two(&mut self, operator: &'static str, a: &Held, b: &Held, plain: &[usize]) -> Result<Held> {
        self.two_with(operator, (a, &[]), (b, plain), a.dtype)
    }

    /// As [`Translator::two`], with plain arguments behind each tensor and a result of `dtype`.
    pub(super) fn two_with(
        &mut self,
        operator: &'static str,
        (a, behind_a): (&Held, &[usize]),
        (b, behind_b): (&Held, &[usize]),
        dtype: DType,
    ) -> Result<Held> {
        let extents = broadcast(a, b)?;
        let longer = if a.rank() < b.rank() { b } else { a };
        let out = self.sheet.intermediate(dtype, extents, longer.order, a.is_dynamic || b.is_dynamic)?;
        let args = [&[a.tensor], behind_a, &[b.tensor], behind_b].concat();
        self.sheet.call(operator, &args, &[out.tensor]);
        Ok(out)
    }

    /// Two operands such that dimensions of their tensors belong together, counted from the last.
    pub(super) fn in_one_order(&mut self, a: Held, b: Held) -> Result<(Held, Held)> {
        if a.rank() != b.rank() {
            let (shorter, longer) = if a.rank() < b.rank() { (&a, &b) } else { (&b, &a) };
            if self.sheet.as_constant(shorter).is_some() && !longer.order.is_contiguous() {
                let (rank, order) = (longer.rank(), longer.order);
                let widened = self.widened(shorter, rank)?;
                let widened = self.ordered(&widened, order)?;
                return Ok(if a.rank() < b.rank() { (widened, b) } else { (a, widened) });
            }
            return Ok((self.in_rows(&a)?, self.in_rows(&b)?));
        }
        if a.order == b.order {
            return Ok((a, b));
        }
        // A weight is turned for nothing; of two tensors the smaller one is copied.
        let keeps_b = self.sheet.as_constant(&a).is_some()
            || (self.sheet.as_constant(&b).is_none() && a.extents.numel()? < b.extents.numel()?);
        if keeps_b { Ok((self.ordered(&a, b.order)?, b)) } else { Ok((a, self.ordered(&b, a.order)?)) }
    }

    /// A constant with dimensions of one element in front.
    fn widened(&mut self, held: &Held, rank: usize) -> Result<Held> {
        let rows = self.in_rows(held)?;
        let constant = self.sheet.as_constant(&rows).cloned();
        let mut view =
            constant.ok_or_else(|| Error::internal("a constant of an XNNPACK payload was lost"))?;
        while view.shape.len() < rank {
            view.shape.insert(0, 1)?;
            view.strides.insert(0, 0)?;
        }
        Ok(self.sheet.constant(view))
    }
}

/// No bounds.
const UNLIMITED: (f32, f32) = (f32::NEG_INFINITY, f32::INFINITY);

/// Extents of two tensors together.
fn broadcast(a: &Held, b: &Held) -> Result<Dims> {
    let rank = a.rank().max(b.rank());
    let extent = |held: &Held, axis: usize| {
        let missing = rank.saturating_sub(held.rank());
        axis.checked_sub(missing).and_then(|d| held.extents.get(d)).copied().unwrap_or(1)
    };
    let mut out = Dims::EMPTY;
    for axis in 0..rank {
        out.push(match (extent(a, axis), extent(b, axis)) {
            (x, y) if x == y => x,
            (1, other) | (other, 1) => other,
            // Bounds of extents that are equal when it runs.
            (x, y) if a.is_dynamic || b.is_dynamic => x.max(y),
            _ => {
                return Err(Error::program("the operands do not broadcast to one shape").got(format!(
                    "extents {} and {}",
                    a.dims()?,
                    b.dims()?
                )));
            }
        })?;
    }
    Ok(out)
}
