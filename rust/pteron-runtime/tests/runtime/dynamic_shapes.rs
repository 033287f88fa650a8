//! Extents that change from call to call, views, and how inputs come in.

use crate::{forward, run, run_one};
use pteron_core::{DType, ErrorKind};
use pteron_format::write::ValueDraft;
use pteron_fuzz::builder::{MethodBuilder, ProgramBuilder, runtime};
use pteron_runtime::{ExecuteOptions, Extent, InputValue, IoKind, OutputValue, TensorInput};

const INTERFACE: &str = r#"{"version":1,"methods":{"forward":{
    "inputs":[{"name":"x","shape":[{"symbol":"s0","min":1,"max":8},2]},{"name":"y","shape":[{"symbol":"s0","min":1,"max":8},2]}],
    "outputs":[{"name":"sum","shape":[{"symbol":"s0","min":1,"max":8},2]}]}}}"#;

/// out = x + y with a dynamic first extent, x in planned memory, y in the caller's.
fn dynamic_add(interface: &str) -> ProgramBuilder {
    let mut m = MethodBuilder::new("forward");
    let (x, out) = (m.bounded(&[8, 2]), m.bounded(&[8, 2]));
    let y = m.tensor(DType::Float32, &[8, 2]).bounded();
    let y = m.value(y);
    m.inputs(&[x, y]);
    m.outputs(&[out]);
    m.add(x, y, out);
    let mut p = ProgramBuilder::of(m);
    if !interface.is_empty() {
        p.named("pteron.interface", interface.as_bytes());
    }
    p
}

#[test]
fn shapes_follow_the_inputs_from_call_to_call() {
    let method = forward(&dynamic_add(INTERFACE).load(&runtime()));
    for n in [3usize, 8, 1, 5] {
        let x: Vec<f32> = (0..n * 2).map(|i| i as f32).collect();
        let out = run(&method, &[(&[n, 2], &x), (&[n, 2], &x)]).unwrap();
        let t = out[0].tensor().unwrap();
        assert_eq!(&**t.meta.shape(), &[n, 2]);
        assert_eq!(t.elements::<f32>().unwrap(), x.iter().map(|v| v * 2.0).collect::<Vec<_>>());
    }
}

#[test]
fn the_interface_states_names_ranges_and_symbols() {
    let program = dynamic_add(INTERFACE).load(&runtime());
    let specs = program.inputs("forward").unwrap();
    assert_eq!(specs[0].name, "x");
    let IoKind::Tensor(t) = &specs[0].kind else { panic!() };
    assert_eq!(
        t.extents,
        [Extent::Range { min: 1, max: 8, symbol: Some("s0".into()), expression: None }, Extent::Static(2)]
    );
    assert_eq!(specs[0].kind.to_string(), "float32[s0=1..8, 2]");
    let plain = dynamic_add("").load(&runtime());
    assert_eq!(plain.inputs("forward").unwrap()[1].name, "input1");
    assert_eq!(plain.inputs("forward").unwrap()[1].kind.to_string(), "float32[0..8, 0..2]");
}

#[test]
fn ranges_and_relations_are_checked_before_anything_is_touched() {
    let method = forward(&dynamic_add(INTERFACE).load(&runtime()));
    let call = |m: usize, n: usize| {
        let (x, y) = (vec![1.0f32; m * 2], vec![1.0f32; n * 2]);
        run(&method, &[(&[m, 2], &x), (&[n, 2], &y)]).map(|_| ())
    };
    let e = call(9, 9).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Input);
    assert!(e.to_string().contains("argument 'x': dimension 0") && e.to_string().contains("s0=1..8"), "{e}");
    let e = call(3, 4).unwrap_err();
    assert!(e.to_string().contains("argument 'y'") && e.to_string().contains("as in input 'x'"), "{e}");
    call(4, 4).unwrap();
}

#[test]
fn a_contradictory_interface_is_refused_at_load() {
    for (from, to, expected) in [
        ("\"version\":1", "\"version\":9", "version"),
        ("\"max\":8},2]},{\"name\":\"y\"", "\"max\":9},2]},{\"name\":\"y\"", "extent"),
        ("\"max\":8},2]},{\"name\":\"y\"", "\"max\":8}]},{\"name\":\"y\"", "rank"),
        ("\"outputs\":[{", "\"outputs\":[{},{", "outputs"),
    ] {
        let text = INTERFACE.replace(from, to);
        assert_ne!(text, INTERFACE);
        let e = dynamic_add(&text).try_load(&runtime()).err().unwrap();
        assert_eq!(e.kind(), ErrorKind::Program);
        assert!(e.to_string().contains(expected), "{e}");
    }
}

#[test]
fn symbolic_integers_are_free_within_their_range_and_others_are_not() {
    let build = |interface: &str| {
        let mut m = MethodBuilder::new("forward");
        let (n, two, out) = (m.int(4), m.int(2), m.int(0));
        m.inputs(&[n]);
        m.outputs(&[out]);
        m.call("executorch_prim::mul.Scalar", &[n, two, out]);
        let mut p = ProgramBuilder::of(m);
        if !interface.is_empty() {
            p.named("pteron.interface", interface.as_bytes());
        }
        forward(&p.load(&runtime()))
    };
    let free = build(
        r#"{"version":1,"methods":{"forward":{"inputs":[{"name":"n","range":[1,10],"symbol":"s0"}],"outputs":[{"name":"m"}]}}}"#,
    );
    for n in [1, 7, 10] {
        let out = free.execute(&[InputValue::Int(n)], ExecuteOptions::default()).unwrap();
        assert!(matches!(out[0], OutputValue::Int(v) if v == 2 * n));
    }
    let e = free.execute(&[InputValue::Int(11)], ExecuteOptions::default()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Input);
    let fixed = build("");
    fixed.execute(&[InputValue::Int(4)], ExecuteOptions::default()).unwrap();
    let e = fixed.execute(&[InputValue::Int(5)], ExecuteOptions::default()).unwrap_err();
    assert!(e.to_string().contains("expected 4; got 5"), "{e}");
    let e = fixed.execute(&[InputValue::Double(4.0)], ExecuteOptions::default()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InputType);
}

#[test]
fn views_follow_their_base_in_caller_and_planned_memory() {
    // et_view of an unplanned input and of a planned intermediate, both with a computed extent.
    let mut m = MethodBuilder::new("forward");
    let x = m.tensor(DType::Float32, &[8, 2]).bounded();
    let x = m.value(x);
    let (flat, twice, back) = (m.bounded(&[16]), m.bounded(&[16]), m.bounded(&[8, 2]));
    let minus = m.int(-1);
    let two = m.int(2);
    let to_flat = m.value(ValueDraft::IntList([i64::from(minus)].into()));
    let to_pairs = m.value(ValueDraft::IntList([i64::from(minus), i64::from(two)].into()));
    m.inputs(&[x]);
    m.outputs(&[back]);
    m.call("executorch_prim::et_view.default", &[x, to_flat, flat]);
    m.add(flat, flat, twice);
    m.call("executorch_prim::et_view.default", &[twice, to_pairs, back]);
    let method = forward(&ProgramBuilder::of(m).load(&runtime()));
    for n in [2usize, 8, 1] {
        let data: Vec<f32> = (0..n * 2).map(|i| i as f32).collect();
        let out = run(&method, &[(&[n, 2], &data)]).unwrap();
        let t = out[0].tensor().unwrap();
        assert_eq!(&**t.meta.shape(), &[n, 2]);
        assert_eq!(t.elements::<f32>().unwrap(), data.iter().map(|v| v * 2.0).collect::<Vec<_>>());
    }
}

#[test]
fn strided_misaligned_and_reversed_inputs_are_copied_right() {
    let mut m = MethodBuilder::new("forward");
    let (x, y, out) = (m.unplanned(&[2, 3]), m.planned(&[2, 3]), m.unplanned(&[2, 3]));
    m.inputs(&[x, y]);
    m.outputs(&[out]);
    m.add(x, y, out);
    let method = forward(&ProgramBuilder::of(m).load(&runtime()));
    let base: Vec<f32> = (0..6).map(|i| i as f32).collect();
    let mut bytes = [0u8; 25];
    bytes[1..].copy_from_slice(bytemuck::cast_slice(&base));
    let shape = [2usize, 3];
    // SAFETY: every element of these layouts lies in `base` or `bytes`.
    let inputs = unsafe {
        [
            TensorInput::new(DType::Float32, &shape, Some(&[1, 2]), base.as_ptr().cast()),
            TensorInput::new(DType::Float32, &shape, None, bytes.as_ptr().add(1)),
            TensorInput::new(DType::Float32, &shape, Some(&[-3, -1]), base.as_ptr().add(5).cast()),
            TensorInput::new(DType::Float32, &shape, Some(&[0, 1]), base.as_ptr().cast()),
        ]
    };
    let expected = [
        [0.0, 2.0, 4.0, 1.0, 3.0, 5.0],
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
        [5.0, 4.0, 3.0, 2.0, 1.0, 0.0],
        [0.0, 1.0, 2.0, 0.0, 1.0, 2.0],
    ];
    for (i, a) in inputs.iter().enumerate() {
        for (j, b) in inputs.iter().enumerate() {
            let out = method
                .execute(&[InputValue::Tensor(*a), InputValue::Tensor(*b)], ExecuteOptions::default())
                .unwrap();
            let sum: Vec<f32> = expected[i].iter().zip(expected[j]).map(|(a, b)| a + b).collect();
            assert_eq!(out[0].tensor().unwrap().elements::<f32>().unwrap(), sum, "{i} {j}");
        }
    }
}

#[test]
fn empty_tensors_pass_through() {
    let method = forward(&dynamic_add("").load(&runtime()));
    let out = run(&method, &[(&[0, 2], &[]), (&[0, 2], &[])]).unwrap();
    assert_eq!(&**out[0].tensor().unwrap().meta.shape(), &[0, 2]);
    assert_eq!(run_one(&method, &[(&[1, 2], &[1.0, 2.0]), (&[1, 2], &[1.0, 2.0])]), [2.0, 4.0]);
}
