//! Programs that no exporter writes: rewrites change nothing of what they give either.

use crate::{forward, run};
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder};
use pteron_runtime::{RuleSwitches, Runtime, RuntimeOptions, rule_names};

const X: [f32; 8] = [-1.5, 2.0, 0.25, -4.0, 1.0, 3.0, -0.5, 7.0];

/// Results of calls with so many rows, with all rules, with each alone, and with none.
fn check(build: fn(&mut MethodBuilder), rows: &[usize]) {
    let results = |rules: RuleSwitches| -> Vec<String> {
        let runtime = Runtime::new(RuntimeOptions { rules, threads: Some(1), ..Default::default() }).unwrap();
        let mut m = MethodBuilder::new("forward");
        build(&mut m);
        let method = forward(&ProgramBuilder::of(m).load(&runtime));
        let call = |n: &usize| match run(&method, &[(&[*n, 2], &X[..n * 2])]) {
            Ok(out) => out
                .iter()
                .map(|o| o.tensor().unwrap())
                .map(|t| format!("{:?} {:?}", t.meta.shape(), t.elements::<f32>().unwrap()))
                .collect(),
            Err(e) => format!("{:?}", e.kind()),
        };
        rows.iter().map(call).collect()
    };
    let as_file = results(RuleSwitches::all_off());
    assert_eq!(results(RuleSwitches::all_on()), as_file);
    for rule in rule_names() {
        let others = rule_names().filter(|other| *other != rule);
        assert_eq!(
            results(others.fold(RuleSwitches::all_on(), |s, other| s.without(other))),
            as_file,
            "{rule}"
        );
    }
}

fn relu(m: &mut MethodBuilder, x: i32, out: i32) {
    m.call("aten::relu.out", &[x, out, out]);
}

fn neg(m: &mut MethodBuilder, x: i32, out: i32) {
    m.call("aten::neg.out", &[x, out, out]);
}

#[test]
fn freeing_a_tensor_that_shares_its_bytes_with_a_result() {
    let build = |m: &mut MethodBuilder| {
        let (x, y, z) = (m.planned(&[4, 2]), m.planned_at(&[4, 2], 64), m.planned_at(&[4, 2], 128));
        let freed = m.planned_at(&[4, 2], 128);
        m.inputs(&[x]);
        m.outputs(&[z]);
        neg(m, x, y);
        relu(m, y, z);
        m.free(freed);
        m.free(x);
    };
    check(build, &[4, 4]);
}

#[test]
fn reading_before_writing_finds_the_shape_of_the_call_before() {
    let build = |m: &mut MethodBuilder| {
        let (x, y, z, first) =
            (m.bounded(&[4, 2]), m.bounded(&[4, 2]), m.bounded(&[4, 2]), m.bounded(&[4, 2]));
        m.inputs(&[x]);
        m.outputs(&[z, first]);
        neg(m, y, first);
        neg(m, x, y);
        relu(m, y, z);
    };
    check(build, &[2, 3, 1]);
}

#[test]
fn reading_more_than_the_last_write() {
    let build = |m: &mut MethodBuilder| {
        let x = m.bounded(&[4, 2]);
        let whole = m.planned_at(&[4, 2], 64);
        let part = m.bounded_at(&[4, 2], 64);
        let (again, out, part_out) =
            (m.planned_at(&[4, 2], 64), m.planned_at(&[4, 2], 256), m.bounded(&[4, 2]));
        let constant = m.planned_at(&[4, 2], 320);
        let (size, three) = (m.ints(&[4, 2]), m.int(3));
        m.inputs(&[x]);
        m.outputs(&[out, part_out]);
        m.call("aten::full.out", &[size, three, constant, constant]);
        neg(m, constant, whole);
        relu(m, x, part);
        neg(m, part, part_out);
        neg(m, again, out);
    };
    check(build, &[2, 4, 1]);
}

#[test]
fn a_view_that_may_be_larger_than_its_base() {
    let build = |m: &mut MethodBuilder| {
        let (x, y, z) = (m.bounded(&[4, 2]), m.bounded(&[4, 2]), m.bounded(&[4, 2]));
        let flat = m.tensor(pteron_core::DType::Float32, &[4000]).bounded();
        let (flat, flat_out) = (m.value(flat), m.bounded(&[4000]));
        let size = m.ints(&[-1]);
        m.inputs(&[x]);
        m.outputs(&[z, flat_out]);
        neg(m, x, y);
        relu(m, y, z);
        m.call("executorch_prim::et_view.default", &[y, size, flat]);
        relu(m, flat, flat_out);
    };
    check(build, &[2, 4, 1]);
}
