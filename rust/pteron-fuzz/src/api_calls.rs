//! Target `api_calls`: any sequence of calls of the runtime's interface, failing ones among them. After each
//! failure the next correct call works, and what is dropped in whatever order stays alive as long as needed.

use crate::call_method::{Extents, LIMITS, call};
use crate::choices::Choices;
use crate::files::runtime;
use crate::seed_programs as seeds;
use pteron_core::ErrorKind;
use pteron_runtime::{
    ExecuteOptions, InputValue, Limits, Method, MethodOptions, Outputs, Program, ProgramSource, TensorInput,
};
use std::sync::Arc;
use std::time::Instant;

#[derive(Default)]
struct World {
    programs: Vec<Arc<Program>>,
    methods: Vec<Method>,
    outputs: Vec<Outputs>,
}

/// Runs the target: every byte is a call.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut world = World::default();
    for _ in 0..data.len().min(60) {
        step(&mut world, &mut choices);
    }
    for method in &world.methods {
        // Whatever happened: let go of what was lent, and the method works.
        world.outputs.clear();
        let result = call(method, Extents::Most, 0, ExecuteOptions::default());
        assert!(result.is_ok(), "a correct call fails after others: {:?}", result.err());
    }
}

fn step(world: &mut World, choices: &mut Choices<'_>) {
    let method = |choices: &mut Choices<'_>| choices.below(world.methods.len());
    match choices.below(14) {
        0 => {
            let bytes = [
                seeds::mlp().bytes(),
                seeds::stateful(),
                seeds::with_delegate("ExecutorBackend", &seeds::sum()),
            ];
            let bytes = bytes[choices.below(3)].clone();
            if let Ok(program) = Program::load(runtime(), ProgramSource::Bytes(Arc::new(bytes)), LIMITS) {
                world.programs.push(program);
            }
        }
        1 => load_method(world, choices),
        2 => {
            if let Some(m) = world.methods.get(method(choices)) {
                let result = call(m, Extents::Most, choices.word(), ExecuteOptions::default());
                let is_lent = matches!(&result, Err(e) if e.kind() == ErrorKind::OutputsInUse);
                assert!(result.is_ok() || is_lent, "a correct call fails: {:?}", result.err());
            }
        }
        3 => {
            if let Some(m) = world.methods.get(method(choices)) {
                let wrong =
                    [InputValue::Int(1), InputValue::None, InputValue::Bool(true), InputValue::Double(0.5)];
                let count = choices.below(5);
                let _ = m.execute(&wrong[..count], ExecuteOptions::default());
            }
        }
        4 => {
            if let Some(m) = world.methods.get(method(choices)) {
                let options = ExecuteOptions { budget: Some(choices.below(4) as u64), ..Default::default() };
                let _ = call(m, Extents::Most, choices.word(), options);
            }
        }
        5 => {
            if let Some(m) = world.methods.get(method(choices)) {
                let options = ExecuteOptions { deadline: Some(Instant::now()), ..Default::default() };
                let _ = call(m, Extents::Most, choices.word(), options);
            }
        }
        6 => {
            let at = method(choices);
            if let Some(m) = world.methods.get(at) {
                let x = [1.0f32, 2.0];
                if let Some(input) = TensorInput::from_slice(&[2], &x) {
                    let options = ExecuteOptions { lend_outputs: true, ..Default::default() };
                    if let Ok(outputs) = m.execute(&[InputValue::Tensor(input)], options) {
                        world.outputs.push(outputs);
                    }
                }
            }
        }
        7 => {
            if let Some(m) = world.methods.get(method(choices)) {
                let _ = m.reset_state();
                let _ = m.seed(choices.word());
            }
        }
        8 => {
            if let Some(m) = world.methods.get(method(choices)) {
                set_state(m, choices);
            }
        }
        9 => {
            if let Some(m) = world.methods.get(method(choices)) {
                m.cancel_handle().cancel();
            }
        }
        10 => drop_one(&mut world.programs, choices),
        11 => drop_one(&mut world.methods, choices),
        12 => drop_one(&mut world.outputs, choices),
        _ => {
            if let Some(p) = world.programs.get(choices.below(world.programs.len())) {
                let name = choices.pick(&["forward", "other", "none", ""]);
                let _ = p.run(name, &[], ExecuteOptions::default());
                let _ = p.plan_listing(name);
            }
        }
    }
}

fn load_method(world: &mut World, choices: &mut Choices<'_>) {
    let Some(program) = world.programs.get(choices.below(world.programs.len())) else { return };
    let limits = match choices.below(3) {
        0 => Limits { arena_bytes: Some(choices.below(300)), ..Limits::default() },
        _ => Limits::default(),
    };
    let options = MethodOptions { limits, seed: Some(1), ..Default::default() };
    match choices.below(3) {
        0 => world.methods.extend(program.load_methods(&["forward", "other"], &options).unwrap_or_default()),
        1 => world.methods.extend(program.load_method("forward", options)),
        _ => world.methods.extend(program.load_method(choices.pick(&["other", "none"]), options)),
    }
}

fn set_state(method: &Method, choices: &mut Choices<'_>) {
    let numbers = [1.0f32, 2.0, 3.0];
    let count = 1 + choices.below(3);
    let name = choices.pick(&["sum", "none"]);
    if let Some(tensor) = TensorInput::from_slice(&[count], &numbers[..count]) {
        let _ = method.set_state(&[(name, InputValue::Tensor(tensor))]);
    }
    let _ = method.get_state();
}

fn drop_one<T>(list: &mut Vec<T>, choices: &mut Choices<'_>) {
    if !list.is_empty() {
        let at = choices.below(list.len());
        drop(list.swap_remove(at));
    }
}
