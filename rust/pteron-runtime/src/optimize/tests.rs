//! Golden plans of small methods built by hand.

use super::*;
use crate::ir::{ConstantRef, FoldedConstant, Placement, TensorIr, ValueIr};
use pteron_core::{
    AlignedBuffer, ArgSpec, ConstantKey, ConstantView, DType, Device, Instruction, Schema, TensorSpec,
    ValueId,
};
use pteron_cpu::plan::PlanSpec;
use pteron_kernels::single_call::CallArg;
use std::collections::HashMap;
use std::sync::Arc;

struct TestLoader(HashMap<String, Schema>);

impl TestLoader {
    fn new() -> Self {
        let schemas = [
            "aten::permute_copy.out(Tensor self, int[] dims, *, Tensor(a!) out) -> Tensor(a!)",
            "aten::addmm.out(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1, Tensor(a!) out) \
             -> Tensor(a!)",
            "aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)",
            "aten::relu.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
            "aten::neg.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
            "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
            "executorch_prim::et_view.default(Tensor self, int[] size, *, Tensor(a!) out) -> Tensor(a!)",
        ];
        TestLoader(schemas.iter().map(|s| Schema::parse(s).unwrap()).map(|s| (s.name.clone(), s)).collect())
    }
}

impl Loader for TestLoader {
    fn schema(&self, operator: &str) -> Option<&Schema> {
        self.0.get(operator)
    }
    fn can_prepare(&self, _: &PlanSpec, _: &[ArgSpec<'_>]) -> Result<bool> {
        Ok(true)
    }
    fn arg_spec<'s>(&'s self, ir: &'s MethodIr, _: &'s [FoldedConstant], value: ValueId) -> ArgSpec<'s> {
        match &ir.values[value.index()] {
            ValueIr::Tensor(t) => ArgSpec::Tensor(t.spec.clone(), None),
            _ => ArgSpec::None,
        }
    }
    fn derive(
        &self,
        _: &str,
        _: &[ConstantView<'_>],
        _: &TensorSpec,
        _: &mut dyn FnMut(&[ConstantView<'_>]) -> Result<Option<AlignedBuffer>>,
    ) -> Result<Option<(ConstantKey, Arc<AlignedBuffer>)>> {
        Ok(None)
    }
    fn evaluate(&self, _: &str, _: Vec<CallArg>, _: usize) -> Result<Option<AlignedBuffer>> {
        Ok(None)
    }
}

/// Writes a method one line at a time.
struct Builder(MethodIr);

impl Builder {
    fn new() -> Self {
        Builder(MethodIr { name: "forward".into(), arenas: vec![1 << 20], ..MethodIr::default() })
    }
    fn value(&mut self, v: ValueIr) -> ValueId {
        self.0.values.push(v);
        ValueId(self.0.values.len() as u32 - 1)
    }
    fn tensor(&mut self, shape: &[usize], placement: Placement<ConstantRef>) -> ValueId {
        let spec = TensorSpec::contiguous(DType::Float32, shape).unwrap();
        self.value(TensorIr { spec, placement, device: Device::Cpu, name: None }.into())
    }
    fn constant(&mut self, shape: &[usize], offset: u64) -> ValueId {
        let nbytes = shape.iter().product::<usize>() as u64 * 4;
        let key = pteron_core::ConstantKey { origin: 0, offset, nbytes };
        self.tensor(shape, Placement::Constant(ConstantRef::Stored(key)))
    }
    fn planned(&mut self, shape: &[usize], offset: usize) -> ValueId {
        self.tensor(shape, Placement::Planned { arena: 0, offset, initial: None })
    }
    fn ints(&mut self, v: &[i64]) -> ValueId {
        let ids: Vec<ValueId> = v.iter().map(|i| self.value(ValueIr::Int(*i))).collect();
        self.value(ValueIr::IntList(Arc::from(ids)))
    }
    fn call(&mut self, name: &str, args: &[ValueId]) {
        let operator = self.0.operators.iter().position(|o| o == name).unwrap_or_else(|| {
            self.0.operators.push(name.into());
            self.0.operators.len() - 1
        }) as u32;
        let mut args = args.to_vec();
        args.push(*args.last().unwrap());
        self.0.instructions.push(Instruction::Kernel { operator, args: args.into() });
    }
    fn plan(mut self, switches: &RuleSwitches) -> String {
        let done = optimize(&mut self.0, vec![], &TestLoader::new(), switches).unwrap();
        listing(&self.0, &done.steps, &|i| i.to_string()).unwrap()
    }
}

/// x → linear (weight through a permute) → relu → out; `gap` bytes lie between activations.
fn mlp(relu_at: usize) -> Builder {
    let mut b = Builder::new();
    let x = b.planned(&[4, 8], 0);
    let w = b.constant(&[16, 8], 0);
    let bias = b.constant(&[16], 512);
    let wt = b.planned(&[8, 16], 1024);
    let y = b.planned(&[4, 16], 4096);
    let z = b.planned(&[4, 16], relu_at);
    let one = b.value(ValueIr::Int(1));
    let order = b.ints(&[1, 0]);
    b.0.inputs.push(x);
    b.0.outputs.push(z);
    b.call("aten::permute_copy.out", &[w, order, wt]);
    b.call("aten::addmm.out", &[bias, x, wt, one, one, y]);
    b.call("aten::relu.out", &[y, z]);
    b
}

#[test]
fn linear_and_relu_become_one_plan_with_a_folded_weight() {
    assert_eq!(
        mlp(8192).plan(&RuleSwitches::all_on()),
        "[1 2] plan aten::addmm.out + clamp(0, inf) (%2, %0, %10, %6, %6, %5)\n"
    );
}

#[test]
fn every_rule_has_its_switch() {
    let names: Vec<&str> = rule_names().collect();
    assert_eq!(names.first(), Some(&"fold_layout"));
    assert!(rules::RULES.iter().all(|rule| names.contains(&rule.name)));
    let as_file = "[0] call aten::permute_copy.out (%1, %9, %3, %3)\n\
                   [1] call aten::addmm.out (%2, %0, %3, %6, %6, %4, %4)\n\
                   [2] call aten::relu.out (%4, %5, %5)\n";
    assert_eq!(mlp(8192).plan(&RuleSwitches::all_off()), as_file);
    // Without the fold the weight is computed at run time, which a product can take as well.
    assert_eq!(
        mlp(8192).plan(&RuleSwitches::all_on().without("fold_layout")),
        "[0] call aten::permute_copy.out (%1, %9, %10, %10)\n\
         [1 2] plan aten::addmm.out + clamp(0, inf) (%2, %0, %10, %6, %6, %5)\n"
    );
    assert_eq!(
        mlp(8192).plan(&RuleSwitches::all_on().without("fuse_clamp").without("fuse_tail")),
        "[1] call aten::addmm.out (%2, %0, %10, %6, %6, %4, %4)\n[2] call aten::relu.out (%4, %5, %5)\n"
    );
}

#[test]
fn an_output_planned_over_the_linears_input_is_not_fused() {
    // The exporter reuses x's memory for z, which is fine while relu runs after the linear.
    assert_eq!(
        mlp(64).plan(&RuleSwitches::all_on()),
        "[1] call aten::addmm.out (%2, %0, %10, %6, %6, %4, %4)\n[2] call aten::relu.out (%4, %5, %5)\n"
    );
}

#[test]
fn in_place_relu_fuses() {
    assert!(mlp(4096).plan(&RuleSwitches::all_on()).starts_with("[1 2] plan"));
}

#[test]
fn a_second_reader_by_bytes_stops_fusion() {
    // Another value id looks at the linear's bytes.
    let mut b = mlp(8192);
    let alias = b.planned(&[64], 4096);
    let n = b.planned(&[64], 16384);
    b.call("aten::neg.out", &[alias, n]);
    b.0.outputs.push(n);
    assert!(!b.plan(&RuleSwitches::all_on()).contains("plan"));
}

#[test]
fn a_partial_overwrite_stops_folding_and_fusion() {
    // Between permute and addmm somebody writes into the permuted weight.
    let mut b = mlp(8192);
    let x = b.0.inputs[0];
    let part = b.planned(&[4, 8], 1024);
    b.call("aten::neg.out", &[x, part]);
    let last = b.0.instructions.pop().unwrap();
    b.0.instructions.insert(1, last);
    let text = b.plan(&RuleSwitches::all_on());
    assert!(text.contains("permute_copy") && !text.contains("plan"), "{text}");
}

#[test]
fn a_read_in_a_loop_sees_both_iterations() {
    // relu is reached from the linear before the loop and from the neg inside it.
    let mut b = mlp(8192);
    let (y, z) = (ValueId(4), ValueId(5));
    b.call("aten::neg.out", &[z, y]);
    let go = b.value(ValueIr::Bool(true));
    b.0.inputs.push(go);
    b.0.instructions.push(Instruction::JumpFalse { condition: go, destination: 2 });
    let text = b.plan(&RuleSwitches::all_on());
    assert!(!text.contains("plan"), "{text}");
    assert!(!text.contains("permute"), "the weight is folded all the same: {text}");
}

#[test]
fn views_elided_and_explicit_lead_to_the_same_constant() {
    let mut b = Builder::new();
    let x = b.planned(&[4, 8], 0);
    let w = b.constant(&[2, 8, 8], 0);
    let order = b.ints(&[0, 2, 1]);
    let permuted = b.planned(&[2, 8, 8], 1024);
    let elided = b.planned(&[1, 2, 8, 8], 1024);
    let size = b.ints(&[2, 8, 8]);
    let viewed = b.tensor(&[2, 8, 8], Placement::Unplanned);
    let out = b.planned(&[1, 2, 8, 8], 8192);
    let out2 = b.planned(&[2, 8, 8], 16384);
    b.0.inputs.push(x);
    b.0.outputs.extend([out, out2]);
    b.call("aten::permute_copy.out", &[w, order, permuted]);
    b.call("executorch_prim::et_view.default", &[elided, size, viewed]);
    b.call("aten::neg.out", &[elided, out]);
    b.call("aten::neg.out", &[viewed, out2]);
    let done = optimize(&mut b.0, vec![], &TestLoader::new(), &RuleSwitches::all_on()).unwrap();
    let text = listing(&b.0, &done.steps, &|i| i.to_string()).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert_eq!(done.folded.len(), 2);
    assert_eq!(done.folded[0].key, done.folded[1].key);
}

#[test]
fn a_view_of_a_constant_is_folded_and_never_written() {
    let mut b = Builder::new();
    let w = b.constant(&[4, 8], 0);
    let size = b.ints(&[32]);
    let viewed = b.tensor(&[32], Placement::Unplanned);
    let out = b.planned(&[32], 0);
    let flag = b.value(ValueIr::Bool(false));
    b.0.outputs.push(out);
    b.call("executorch_prim::et_view.default", &[w, size, viewed]);
    b.call("aten::neg.out", &[viewed, out]);
    let mut hostile = Builder(b.0.clone());
    assert_eq!(b.plan(&RuleSwitches::all_on()).lines().count(), 1);
    let operator = hostile.0.operators.len() as u32;
    hostile.0.operators.push("aten::copy_".into());
    hostile.0.instructions.push(Instruction::Kernel { operator, args: [viewed, out, flag, viewed].into() });
    assert!(hostile.plan(&RuleSwitches::all_on()).contains("et_view"));
}

#[test]
fn a_view_of_a_channels_last_constant_is_left_to_the_kernel() {
    // `et_view` reinterprets bytes, which is no logical reshape of a constant in another memory order.
    let mut b = Builder::new();
    let w = b.constant(&[1, 2, 3, 1], 0);
    if let ValueIr::Tensor(t) = &mut b.0.values[w.index()] {
        t.spec.dim_order = pteron_core::DimOrder::new(&[0, 2, 3, 1]).unwrap();
    }
    let size = b.ints(&[2, 3]);
    let viewed = b.tensor(&[2, 3], Placement::Unplanned);
    let out = b.planned(&[2, 3], 0);
    b.0.outputs.push(out);
    b.call("executorch_prim::et_view.default", &[w, size, viewed]);
    b.call("aten::neg.out", &[viewed, out]);
    assert!(b.plan(&RuleSwitches::all_on()).contains("et_view"));
}

#[test]
fn a_reader_that_sees_the_bytes_in_another_order_is_not_fused() {
    let mut b = mlp(8192);
    // relu reads the linear's bytes through a value that calls them column-major.
    let other = b.planned(&[4, 16], 4096);
    if let ValueIr::Tensor(t) = &mut b.0.values[other.index()] {
        t.spec.dim_order = pteron_core::DimOrder::new(&[1, 0]).unwrap();
    }
    let Some(Instruction::Kernel { args, .. }) = b.0.instructions.last_mut() else { panic!("relu is last") };
    args[0] = other;
    assert!(!b.plan(&RuleSwitches::all_on()).contains("plan"));
}

/// The plan of [`mlp`] with a move of value `from` before instruction `at`, whose target is read at the end.
fn mlp_with_move(from: Option<u32>, at: usize) -> String {
    let mut b = mlp(8192);
    let other = b.planned(&[4, 16], 1 << 15);
    let target = b.planned(&[4, 16], 1 << 16);
    let out = b.planned(&[4, 16], 1 << 17);
    b.0.inputs.push(other);
    b.0.outputs.push(out);
    b.call("aten::neg.out", &[target, out]);
    let from = from.map_or(other, ValueId);
    b.0.instructions.insert(at, Instruction::Move { from, to: target });
    b.plan(&RuleSwitches::all_on())
}

#[test]
fn a_move_makes_unknown_only_what_it_may_touch() {
    assert!(
        mlp_with_move(None, 0).contains("[2 3] plan aten::addmm.out + clamp"),
        "{}",
        mlp_with_move(None, 0)
    );
    // Now it looks at what the linear wrote.
    assert!(!mlp_with_move(Some(4), 2).contains("plan"), "{}", mlp_with_move(Some(4), 2));
}

#[test]
fn a_freed_tensor_keeps_its_bytes() {
    // The result of the linear lies where the freed tensor was.
    let mut b = mlp(8192);
    let freed = b.planned(&[4, 16], 4096);
    b.0.instructions.insert(2, Instruction::Free { value: freed });
    let text = b.plan(&RuleSwitches::all_on());
    assert!(text.contains("plan aten::addmm.out + clamp(0, inf)"), "{text}");
    let mut b = mlp(8192);
    b.0.instructions.push(Instruction::Free { value: ValueId(5) });
    let text = b.plan(&RuleSwitches::all_on());
    assert!(text.contains("[1 2] plan aten::addmm.out + clamp(0, inf) (%2, %0, %10, %6, %6, %5)"), "{text}");
}

fn set_bounded(b: &mut Builder, ids: &[ValueId]) {
    for id in ids {
        if let ValueIr::Tensor(t) = &mut b.0.values[id.index()] {
            t.spec.dynamism = pteron_core::Dynamism::Bounded;
        }
    }
}

#[test]
fn a_shape_that_the_next_call_finds_is_kept() {
    let mut b = mlp(8192);
    let (x, y, z) = (ValueId(0), ValueId(4), ValueId(5));
    let first = b.planned(&[4, 16], 16384);
    set_bounded(&mut b, &[x, y, z, first]);
    assert!(Builder(b.0.clone()).plan(&RuleSwitches::all_on()).contains("plan aten::addmm.out + clamp"));
    b.call("aten::neg.out", &[y, first]);
    b.0.outputs.push(first);
    let read = b.0.instructions.pop().unwrap();
    b.0.instructions.insert(0, read);
    let text = b.plan(&RuleSwitches::all_on());
    assert!(!text.contains("plan"), "{text}");
}

#[test]
fn what_lies_beneath_a_tensor_of_changing_shape_stays_where_somebody_sees_it() {
    let beneath = |is_bounded: bool, reads_itself: bool| {
        let mut b = Builder::new();
        let x = b.planned(&[4, 16], 0);
        let w = b.constant(&[16, 16], 0);
        let below = b.planned(&[4, 16], 4096);
        let above = b.planned(&[4, 16], 4096);
        let other = b.planned(&[4, 16], 4096);
        let out = b.planned(&[4, 16], 8192);
        if is_bounded {
            set_bounded(&mut b, &[x, above, out]);
        }
        b.0.inputs.push(x);
        b.0.outputs.push(out);
        b.call("aten::mm.out", &[x, w, below]);
        b.call("aten::neg.out", &[x, above]);
        b.call("aten::neg.out", &[if reads_itself { above } else { other }, out]);
        b.plan(&RuleSwitches::all_on())
    };
    // A part of it may be all that the second call writes.
    assert!(beneath(true, false).contains("mm"), "{}", beneath(true, false));
    assert!(!beneath(true, true).contains("mm"), "{}", beneath(true, true));
    assert!(!beneath(false, false).contains("mm"), "{}", beneath(false, false));
}
