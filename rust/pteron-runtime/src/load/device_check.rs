//! Memory of devices. No backend serves any, so a method that needs some is refused before a kernel of it is
//! prepared; other methods of its program load.

use pteron_core::{Device, Error, Instruction, Result, ValueId};
use pteron_format::{MethodDef, Placement, SpecText, TensorDef};

/// Refuses a method that plans memory of a device, or takes or gives a tensor in such memory.
///
/// Errors: `MissingBackend` that names the device, the memory and the delegate that asks for it.
pub(crate) fn check_devices(method: &MethodDef) -> Result<()> {
    if let Some((arena, device)) = method.arena_devices.first() {
        let nbytes = method.arenas.get(*arena as usize).copied().unwrap_or(0);
        let is_inside =
            |t: &TensorDef| matches!(&t.placement, Placement::Planned { arena: a, .. } if a == arena);
        let tensor = method.tensors().find(|(_, t)| is_inside(t)).map(|(id, t)| described(id, t));
        return Err(refused(method, *device, is_inside).got(format!(
            "{nbytes} bytes on device {device} (arena {arena}){}",
            tensor.map_or(String::new(), |t| format!(", for {t}"))
        )));
    }
    // The memory of other tensors is the host's: constants are in the file, arenas are the CPU's, whatever the
    // tensors in them say.
    let is_given = |t: &TensorDef| !t.device.is_cpu() && matches!(t.placement, Placement::Unplanned);
    match method.tensors().find(|(_, t)| is_given(t)) {
        Some((id, tensor)) => Err(refused(method, tensor.device, is_given).got(format!(
            "{}{} on device {}",
            role(method, id),
            described(id, tensor),
            tensor.device
        ))),
        None => Ok(()),
    }
}

#[cold]
fn refused(method: &MethodDef, device: Device, is_there: impl Fn(&TensorDef) -> bool) -> Error {
    let error = Error::missing_backend(format!(
        "the method needs memory on device {device}, and no backend here serves that device"
    ))
    .expected("memory of the CPU alone")
    .hint(
        "export without the compile spec 'target_device', or with \
         ExecutorchBackendConfig(enable_non_cpu_memory_planning=False), which plans all memory on the CPU",
    );
    let wants = |id: &ValueId| method.tensor(*id).is_some_and(&is_there);
    let call = method.instructions.iter().enumerate().find_map(|(at, instruction)| match instruction {
        Instruction::Delegate { delegate, args } if args.iter().any(wants) => {
            Some((at, method.delegates.get(*delegate as usize)?))
        }
        _ => None,
    });
    match call {
        Some((at, delegate)) => error.instruction(at).backend(delegate.backend.as_str()),
        None => error,
    }
}

fn role(method: &MethodDef, id: ValueId) -> String {
    let at = |list: &[ValueId]| list.iter().position(|v| *v == id);
    match (at(&method.inputs), at(&method.outputs)) {
        (Some(at), _) => format!("input {at}, "),
        (None, Some(at)) => format!("output {at}, "),
        (None, None) => String::new(),
    }
}

fn described(id: ValueId, tensor: &TensorDef) -> String {
    format!("value {}, {}", id.0, SpecText(&tensor.spec))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_core::{DType, ErrorKind, TensorSpec};
    use pteron_format::DelegateDef;

    fn tensor(placement: Placement, device: Device) -> TensorDef {
        let spec = TensorSpec::contiguous(DType::Float32, &[4]).unwrap();
        TensorDef { spec, placement, device, name: None }
    }

    fn planned(arena: u32) -> Placement {
        Placement::Planned { arena, offset: 0, initial: None }
    }

    /// A delegate call on one tensor in each of two arenas.
    fn method(first: TensorDef, second: TensorDef) -> MethodDef {
        MethodDef {
            values: vec![first.into(), second.into()],
            inputs: vec![ValueId(0)],
            outputs: vec![ValueId(1)],
            arenas: vec![16, 32],
            delegates: vec![DelegateDef { backend: "Gpu".into(), blob: 0..0, specs: vec![] }],
            instructions: vec![
                Instruction::Free { value: ValueId(0) },
                Instruction::Delegate { delegate: 0, args: [ValueId(1)].into() },
            ],
            ..MethodDef::default()
        }
    }

    fn text(method: &MethodDef) -> String {
        let error = check_devices(method).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingBackend);
        error.to_string()
    }

    #[test]
    fn an_arena_on_a_device_is_refused_with_the_delegate_that_asks_for_it() {
        let mut method = method(tensor(planned(0), Device::Cpu), tensor(planned(1), Device::Cuda(3)));
        check_devices(&method).unwrap();
        method.arena_devices = vec![(1, Device::Cuda(3))];
        let text = text(&method);
        for part in [
            "instruction 1, backend Gpu",
            "memory on device cuda:3",
            "32 bytes",
            "arena 1",
            "value 1, float32[4]",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_tensor_of_the_caller_on_a_device_is_refused() {
        let given = |device| tensor(Placement::Unplanned, device);
        let inputs = method(given(Device::Cuda(0)), given(Device::Cpu));
        assert!(text(&inputs).contains("got input 0, value 0, float32[4] on device cuda:0"));
        assert!(!text(&inputs).contains("backend Gpu"));
        let outputs = method(given(Device::Cpu), given(Device::Cuda(0)));
        assert!(text(&outputs).contains("got output 0, value 1, float32[4] on device cuda:0"));
        check_devices(&method(given(Device::Cpu), given(Device::Cpu))).unwrap();
    }

    #[test]
    fn a_device_that_only_the_tensor_names_leaves_its_memory_where_the_file_planned_it() {
        let constant = Placement::Constant(pteron_format::StoredBytes::InFile(0..16));
        check_devices(&method(tensor(planned(0), Device::Cuda(0)), tensor(constant, Device::Cuda(0))))
            .unwrap();
    }
}
