//! Chains of elementwise f32 functions, run block by block so that everything between
//! the inputs and the result stays in the first-level cache.
//!
//! A [`Chain`] is a straight line of [`Step`]s in static single assignment form; the last step is the result.
//! [`Chain::new`] checks it and assigns registers (blocks of [`Chain::BLOCK`] elements), so running it
//! needs no checks, no lookup and no allocation. Every function runs the code of the operator's own
//! kernel: the bytes are those of the separate calls (payloads of NaNs apart, which the compiler is free to
//! choose). Unsafe island (raw pointers, since the result may overwrite an input).

use super::function::{Function, MAX_OPERANDS, RowBlock};
use crate::vector_math::SimdLevel;
use pteron_core::{Error, Result};
use std::fmt;

/// What a step reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operand {
    /// The chain's input of this position.
    Input(u8),
    /// The result of an earlier step.
    Step(u8),
    /// A number, the same for every element.
    Constant(f32),
}

/// One function application.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The function.
    pub function: Function,
    /// Its operands, as many as its arity.
    pub operands: Vec<Operand>,
}

/// Where a compiled step finds an operand.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Source {
    Input(usize),
    Register(usize),
}

/// Where a compiled step writes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Target {
    Register(usize),
    Result,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Code {
    function: Function,
    sources: [Source; MAX_OPERANDS],
    target: Target,
}

/// One input while running.
#[derive(Debug, Clone, Copy)]
pub struct Input {
    /// First element.
    pub data: *const f32,
    /// From row to row, in elements; 0 repeats the row (one value per column).
    pub row_stride: usize,
}

/// A checked line of elementwise steps with registers for their results.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    inputs: usize,
    steps: Vec<Step>,
    code: Vec<Code>,
    /// In the first registers, filled once per run.
    constants: Vec<f32>,
    registers: usize,
}

impl Chain {
    /// Elements of a register.
    pub const BLOCK: usize = 1024;
    /// Most inputs.
    pub const MAX_INPUTS: usize = 8;
    /// Most steps.
    pub const MAX_STEPS: usize = 64;
    /// Most registers, those of constants included.
    pub const MAX_REGISTERS: usize = 16;

    /// A chain of `inputs` inputs.
    ///
    /// Errors: no steps, too many inputs, steps or registers, an operand that is not there yet, or a number of
    /// operands that is not the function's.
    pub fn new(inputs: usize, steps: Vec<Step>) -> Result<Chain> {
        check(inputs, &steps)?;
        let constants = distinct_constants(&steps);
        let (code, registers) = assign_registers(&steps, &constants);
        if registers > Self::MAX_REGISTERS {
            return Err(refused(
                format!("at most {} values alive at a time", Self::MAX_REGISTERS),
                registers.to_string(),
            ));
        }
        Ok(Chain { inputs, steps, code, constants, registers })
    }

    /// The chain that applies one function of one operand.
    pub fn unary(function: Function) -> Result<Chain> {
        Chain::new(1, vec![Step { function, operands: vec![Operand::Input(0)] }])
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Floats of scratch memory that [`Chain::run`] needs.
    pub fn scratch_floats(&self) -> usize {
        self.registers * Self::BLOCK
    }

    /// Rough nanoseconds for 16 elements.
    pub fn cost(&self) -> usize {
        self.steps.iter().map(|s| s.function.cost()).sum()
    }

    /// Runs it in place on a block of `rows` x `columns` elements whose rows are `row_stride` apart: what
    /// an epilogue does. The chain has one input.
    ///
    /// # Safety
    /// The block is readable and writable, and this chain's `inputs()` is 1.
    pub unsafe fn apply(
        &self,
        level: SimdLevel,
        block: *mut f32,
        row_stride: usize,
        [rows, columns]: [usize; 2],
        scratch: &mut [f32],
    ) {
        let input = [Input { data: block, row_stride }];
        // SAFETY: the caller promises a block that is readable and writable; input and result are the same elements.
        unsafe { self.run(level, &input, block, row_stride, [rows, columns], scratch) }
    }

    /// Computes `rows` x `columns` elements of `out`, whose rows are `out_stride` apart. Does nothing when
    /// `inputs` or `scratch` are shorter than [`Chain::inputs`] and [`Chain::scratch_floats`] say.
    ///
    /// # Safety
    /// Every input is readable at `row * row_stride + column`, `out` writable at `row * out_stride +
    /// column`; `out` and an input are the very same elements or disjoint; `scratch` overlaps neither.
    pub unsafe fn run(
        &self,
        level: SimdLevel,
        inputs: &[Input],
        out: *mut f32,
        out_stride: usize,
        [rows, columns]: [usize; 2],
        scratch: &mut [f32],
    ) {
        if inputs.len() < self.inputs || scratch.len() < self.scratch_floats() || columns == 0 {
            debug_assert!(columns == 0, "too few inputs or too little scratch memory");
            return;
        }
        let used = Self::BLOCK.min(rows.saturating_mul(columns));
        for (i, value) in self.constants.iter().enumerate() {
            let at = i * Self::BLOCK;
            scratch[at..at + used].fill(*value);
        }
        let block = Block { level, inputs, out, out_stride, scratch: scratch.as_mut_ptr() };
        let (columns_at_once, rows_at_once) = match columns >= Self::BLOCK {
            true => (Self::BLOCK, 1),
            false => (columns, Self::BLOCK / columns),
        };
        for row in (0..rows).step_by(rows_at_once) {
            for column in (0..columns).step_by(columns_at_once) {
                let extents = [rows_at_once.min(rows - row), columns_at_once.min(columns - column)];
                // SAFETY: the stretch lies inside the rows and columns that the caller promises, and fits a register.
                unsafe { self.run_block(&block, [row, column], extents) };
            }
        }
    }

    /// # Safety
    /// `extents` at `at` lie inside the block and have at most `BLOCK` elements.
    unsafe fn run_block(&self, block: &Block<'_>, at: [usize; 2], [rows, columns]: [usize; 2]) {
        for code in &self.code {
            let mut operands = [std::ptr::null(); MAX_OPERANDS];
            let mut strides = [0; MAX_OPERANDS];
            for (k, source) in code.sources.iter().enumerate().take(code.function.arity()) {
                (operands[k], strides[k]) = match *source {
                    Source::Input(i) => {
                        let input = block.inputs[i];
                        let offset = at[0] * input.row_stride + at[1];
                        (input.data.wrapping_add(offset), input.row_stride)
                    }
                    Source::Register(r) => (block.register(r).cast_const(), columns),
                };
            }
            let (out, out_stride) = match code.target {
                Target::Register(r) => (block.register(r), columns),
                Target::Result => {
                    (block.out.wrapping_add(at[0] * block.out_stride + at[1]), block.out_stride)
                }
            };
            let is_number = [false; MAX_OPERANDS];
            let mut task = RowBlock { operands, strides, is_number, out, out_stride, rows, columns };
            if out_stride == columns && strides[..code.function.arity()].iter().all(|s| *s == columns) {
                // One long row: no ends of rows to handle one by one.
                (task.rows, task.columns) = (1, rows * columns);
            }
            // SAFETY: the caller promises inputs and result for these extents; registers hold `BLOCK` elements, and a
            // step's register overlaps its operands' only when it is the same one.
            unsafe { code.function.run(block.level, &task) };
        }
    }
}

/// What stays the same for all blocks of a run.
struct Block<'a> {
    level: SimdLevel,
    inputs: &'a [Input],
    out: *mut f32,
    out_stride: usize,
    scratch: *mut f32,
}

impl Block<'_> {
    fn register(&self, r: usize) -> *mut f32 {
        self.scratch.wrapping_add(r * Chain::BLOCK)
    }
}

fn refused(expected: String, got: String) -> Error {
    Error::internal("this elementwise program cannot be made").expected(expected).got(got)
}

fn check(inputs: usize, steps: &[Step]) -> Result<()> {
    if inputs > Chain::MAX_INPUTS || steps.is_empty() || steps.len() > Chain::MAX_STEPS {
        return Err(refused(
            format!("at most {} inputs, 1 to {} steps", Chain::MAX_INPUTS, Chain::MAX_STEPS),
            format!("{inputs} inputs, {} steps", steps.len()),
        ));
    }
    for (i, step) in steps.iter().enumerate() {
        let (wanted, got) = (step.function.arity(), step.operands.len());
        if wanted != got {
            let name = step.function.name();
            return Err(refused(format!("{wanted} operands for {name}"), format!("{got} in step {i}")));
        }
        for operand in &step.operands {
            let is_there = match operand {
                Operand::Input(k) => usize::from(*k) < inputs,
                Operand::Step(k) => usize::from(*k) < i,
                Operand::Constant(_) => true,
            };
            if !is_there {
                return Err(refused(
                    format!("operands of step {i} that exist before it"),
                    format!("{operand:?}"),
                ));
            }
        }
    }
    Ok(())
}

/// The distinct constants, by their bits.
fn distinct_constants(steps: &[Step]) -> Vec<f32> {
    let mut found: Vec<f32> = Vec::new();
    for operand in steps.iter().flat_map(|s| &s.operands) {
        if let Operand::Constant(v) = operand
            && !found.iter().any(|c| c.to_bits() == v.to_bits())
        {
            found.push(*v);
        }
    }
    found
}

/// The last reader of every step; 0 for none, since no step reads itself.
fn last_readers(steps: &[Step]) -> Vec<usize> {
    let mut last = vec![0; steps.len()];
    for (i, step) in steps.iter().enumerate() {
        for operand in &step.operands {
            if let Operand::Step(k) = operand {
                last[usize::from(*k)] = i;
            }
        }
    }
    last
}

/// Registers by linear scan, `constants` in the first ones: a value's register is free again at its last
/// reader, which may write it. Returns the code and the number of registers.
fn assign_registers(steps: &[Step], constants: &[f32]) -> (Vec<Code>, usize) {
    let last = last_readers(steps);
    let mut register_of = vec![0usize; steps.len()];
    let mut free: Vec<usize> = Vec::new();
    let mut count = constants.len();
    let mut code = Vec::with_capacity(steps.len());
    for (i, step) in steps.iter().enumerate() {
        let mut sources = [Source::Input(0); MAX_OPERANDS];
        for (slot, operand) in sources.iter_mut().zip(&step.operands) {
            *slot = match *operand {
                Operand::Input(k) => Source::Input(usize::from(k)),
                Operand::Step(k) => Source::Register(register_of[usize::from(k)]),
                Operand::Constant(v) => {
                    let at = constants.iter().position(|c| c.to_bits() == v.to_bits());
                    Source::Register(at.unwrap_or(0))
                }
            };
        }
        for (k, register) in register_of.iter().enumerate().take(i) {
            if last[k] == i && !free.contains(register) {
                free.push(*register);
            }
        }
        let target = if i + 1 == steps.len() {
            Target::Result
        } else {
            register_of[i] = free.pop().unwrap_or_else(|| {
                count += 1;
                count - 1
            });
            Target::Register(register_of[i])
        };
        if last[i] == 0 && target != Target::Result {
            free.push(register_of[i]);
        }
        code.push(Code { function: step.function, sources, target });
    }
    (code, count)
}

impl fmt::Display for Chain {
    /// `sigmoid, mul`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.steps.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, step.function.name())?;
        }
        Ok(())
    }
}
