//! Chains against the separate kernels (same bytes), on every instruction set, and what is refused.

use super::chain::{Chain, Input, Operand, Step};
use super::function::Function;
use super::function_table::recognise;
use crate::single_call::{CallArg, HostTensor, SingleCall, profile};
use crate::testing::numbers;
use crate::vector_math::SimdLevel;
use pteron_core::{ArgSpec, Bool8, DType, Isa, TensorSpec};

/// The function of `operator` with tensor arguments `operands`, then `scalars`, then an f32 output.
fn function(operator: &str, operands: usize, scalars: &[ArgSpec<'_>]) -> Function {
    let tensor = |dtype| ArgSpec::Tensor(TensorSpec::contiguous(dtype, &[4]).unwrap(), None);
    let is_where = operator.contains("where");
    let is_comparison =
        ["eq", "ne", "lt", "le", "gt", "ge"].iter().any(|c| operator[6..].starts_with(&format!("{c}.")));
    let mut args: Vec<_> = (0..operands)
        .map(|i| tensor(if is_where && i == 0 { DType::Bool } else { DType::Float32 }))
        .collect();
    args.extend_from_slice(scalars);
    args.push(tensor(if is_comparison { DType::Bool } else { DType::Float32 }));
    recognise(operator, &args).unwrap_or_else(|| panic!("{operator}")).function
}

fn step(function: Function, operands: &[Operand]) -> Step {
    Step { function, operands: operands.to_vec() }
}

fn run(chain: &Chain, isa: Isa, inputs: &[&[f32]], extents: [usize; 2]) -> Vec<f32> {
    let inputs: Vec<_> = inputs
        .iter()
        .map(|v| Input { data: v.as_ptr(), row_stride: if v.len() == extents[1] { 0 } else { extents[1] } })
        .collect();
    let mut out = vec![0f32; extents[0] * extents[1]];
    let mut scratch = vec![f32::NAN; chain.scratch_floats()];
    // SAFETY: inputs have one or all rows, the output all.
    unsafe {
        chain.run(SimdLevel::at_most(isa), &inputs, out.as_mut_ptr(), extents[1], extents, &mut scratch)
    };
    out
}

/// The operator's own kernel on whole tensors.
fn kernel(isa: Isa, operator: &str, mut args: Vec<CallArg>, n: usize) -> Vec<f32> {
    args.push(CallArg::Tensor(HostTensor::zeros(DType::Float32, &[n]).unwrap()));
    let out = args.len() - 1;
    let prepare = crate::fast_kernels().find(|k| k.schema.starts_with(operator)).unwrap().prepare;
    let mut call = SingleCall::new(prepare, &profile(isa).unwrap(), args).unwrap().unwrap();
    call.call().unwrap();
    call.output::<f32>(out).unwrap()
}

/// Bits, all NaNs alike: which of two NaNs an addition hands on is the compiler's choice.
fn bits(v: &[f32]) -> Vec<u32> {
    v.iter().map(|v| if v.is_nan() { f32::NAN } else { *v }.to_bits()).collect()
}

fn with_edges(n: usize, seed: u64) -> Vec<f32> {
    let mut v = numbers(n, seed);
    for (slot, edge) in
        v.iter_mut().zip([f32::NAN, -0.0, f32::INFINITY, -f32::INFINITY, 0.0, f32::MIN_POSITIVE])
    {
        *slot = edge;
    }
    v
}

/// x sigmoid(x), plus b; then where it is above zero, the square of that, else its tanh.
fn sample() -> Chain {
    use Operand::{Constant, Input, Step as S};
    let one = ArgSpec::Double(Some(1.0));
    Chain::new(
        2,
        vec![
            step(function("aten::sigmoid.out", 1, &[]), &[Input(0)]),
            step(function("aten::mul.out", 2, &[]), &[Input(0), S(0)]),
            step(function("aten::add.out", 2, &[one]), &[S(1), Input(1)]),
            step(function("aten::gt.Tensor_out", 2, &[]), &[S(2), Constant(0.0)]),
            step(function("aten::pow.Tensor_Scalar_out", 1, &[ArgSpec::Int(Some(2))]), &[S(2)]),
            step(function("aten::tanh.out", 1, &[]), &[S(2)]),
            step(function("aten::where.self_out", 3, &[]), &[S(3), S(4), S(5)]),
        ],
    )
    .unwrap()
}

fn sample_by_kernels(isa: Isa, x: &[f32], b: &[f32]) -> Vec<f32> {
    let n = x.len();
    let t = |v: &[f32]| CallArg::Tensor(HostTensor::new(&[n], v).unwrap());
    let sigmoid = kernel(isa, "aten::sigmoid.out", vec![t(x)], n);
    let silu = kernel(isa, "aten::mul.out", vec![t(x), t(&sigmoid)], n);
    let sum = kernel(isa, "aten::add.out", vec![t(&silu), t(b), CallArg::int(1)], n);
    let square = kernel(isa, "aten::pow.Tensor_Scalar", vec![t(&sum), CallArg::int(2)], n);
    let tanh = kernel(isa, "aten::tanh.out", vec![t(&sum)], n);
    let above: Vec<Bool8> = sum.iter().map(|v| Bool8::from(*v > 0.0)).collect();
    let above = CallArg::Tensor(HostTensor::new(&[n], &above).unwrap());
    kernel(isa, "aten::where.self_out", vec![above, t(&square), t(&tanh)], n)
}

#[test]
fn chains_give_the_bytes_of_the_separate_kernels() {
    let chain = sample();
    assert_eq!(chain.to_string(), "sigmoid, mul, add, gt, pow_2, tanh, where");
    for isa in Isa::ALL {
        if profile(isa).is_none() {
            continue;
        }
        for [rows, columns] in [[1, 1], [1, 5000], [3, 1024], [7, 33], [300, 17], [2, 2500], [0, 4], [5, 0]] {
            let x = with_edges(rows * columns, 3);
            let b = numbers(rows * columns, 4);
            let got = run(&chain, isa, &[&x, &b], [rows, columns]);
            assert_eq!(bits(&got), bits(&sample_by_kernels(isa, &x, &b)), "{isa:?} {rows} x {columns}");
            if rows > 1 && columns > 0 {
                let row = &b[..columns];
                let repeated = row.repeat(rows);
                let got = run(&chain, isa, &[&x, row], [rows, columns]);
                assert_eq!(bits(&got), bits(&sample_by_kernels(isa, &x, &repeated)), "{isa:?} a row");
            }
        }
    }
}

#[test]
fn a_block_inside_a_matrix_is_changed_in_place_and_nothing_else() {
    let chain = Chain::unary(crate::testing::gelu_erf()).unwrap();
    for isa in Isa::ALL {
        let [rows, columns, stride] = [70, 20, 33];
        let before = numbers(rows * stride, 9);
        let mut c = before.clone();
        let mut scratch = vec![0f32; chain.scratch_floats()];
        // SAFETY: the block lies inside `c`.
        unsafe {
            chain.apply(
                SimdLevel::at_most(isa),
                c[5..].as_mut_ptr(),
                stride,
                [rows - 1, columns],
                &mut scratch,
            )
        };
        let level = SimdLevel::at_most(isa).isa();
        let gelu = CallArg::Tensor(HostTensor::new(&[before.len()], &before).unwrap());
        let all = kernel(level, "aten::gelu.out", vec![gelu, CallArg::String("none".into())], before.len());
        for (i, v) in c.iter().enumerate() {
            let is_inside = i >= 5 && (i - 5) % stride < columns && (i - 5) / stride < rows - 1;
            assert_eq!(v.to_bits(), if is_inside { all[i] } else { before[i] }.to_bits(), "{i}");
        }
    }
}

#[test]
fn registers_are_used_again() {
    let tanh = function("aten::tanh.out", 1, &[]);
    let mut steps = vec![step(tanh, &[Operand::Input(0)])];
    for i in 0..40 {
        steps.push(step(tanh, &[Operand::Step(i)]));
    }
    let chain = Chain::new(1, steps).unwrap();
    assert_eq!(chain.scratch_floats(), Chain::BLOCK);
}

#[test]
fn dead_steps_and_repeated_operands_are_fine() {
    let (tanh, add) =
        (function("aten::tanh.out", 1, &[]), function("aten::add.out", 2, &[ArgSpec::Int(Some(1))]));
    let x = numbers(50, 1);
    let chain = Chain::new(
        1,
        vec![
            step(tanh, &[Operand::Input(0)]),
            step(tanh, &[Operand::Input(0)]),
            step(add, &[Operand::Step(1), Operand::Step(1)]),
            step(add, &[Operand::Step(2), Operand::Constant(-0.0)]),
        ],
    )
    .unwrap();
    let single = run(&Chain::unary(tanh).unwrap(), Isa::Portable, &[&x], [1, 50]);
    let want: Vec<f32> = single.iter().map(|v| v + v).collect();
    assert_eq!(bits(&run(&chain, Isa::Portable, &[&x], [1, 50])), bits(&want));
}

#[test]
fn chains_that_make_no_sense_are_refused() {
    let tanh = function("aten::tanh.out", 1, &[]);
    let refusal = |inputs, steps| Chain::new(inputs, steps).unwrap_err().to_string();
    assert!(refusal(1, vec![]).contains("1 to 64 steps"));
    assert!(refusal(9, vec![step(tanh, &[Operand::Input(0)])]).contains("9 inputs"));
    assert!(refusal(1, vec![step(tanh, &[Operand::Input(1)])]).contains("Input(1)"));
    assert!(refusal(1, vec![step(tanh, &[Operand::Step(0)])]).contains("Step(0)"));
    assert!(refusal(1, vec![step(tanh, &[])]).contains("1 operands for tanh"));
    let mut wide: Vec<Step> = (0..20).map(|_| step(tanh, &[Operand::Input(0)])).collect();
    let add = function("aten::add.out", 2, &[ArgSpec::Int(Some(1))]);
    wide.push(step(add, &[Operand::Step(0), Operand::Step(1)]));
    for k in 2..20 {
        wide.push(step(add, &[Operand::Step(k), Operand::Step(18 + k)]));
    }
    assert!(refusal(1, wide).contains("at most 16 values"));
}

#[test]
fn calls_are_recognised_by_operator_dtypes_and_numbers() {
    let f = |d: DType| ArgSpec::Tensor(TensorSpec::contiguous(d, &[4]).unwrap(), None);
    let (float, int) = (f(DType::Float32), f(DType::Int64));
    let clamp = |low| recognise("aten::clamp.out", &[float.clone(), low, ArgSpec::None, float.clone()]);
    let call = clamp(ArgSpec::Int(Some(-1))).unwrap();
    assert_eq!((call.function.name(), call.out), ("clamp", 3));
    assert_ne!(call.function, clamp(ArgSpec::Int(Some(0))).unwrap().function);
    assert!(clamp(ArgSpec::Double(None)).is_none(), "a bound that is computed");
    assert!(clamp(ArgSpec::Double(Some(f64::NAN))).is_none());
    assert!(recognise("aten::relu.out", &[int.clone(), int]).is_none());
    assert!(recognise("aten::softmax.out", &[float.clone(), float]).is_none());
    assert!(recognise("aten::relu.out", &[]).is_none());
}
