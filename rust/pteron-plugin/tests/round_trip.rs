//! A backend through its table and back: nothing is lost on the way, nothing that goes wrong gets across.

use pteron_core::{
    ArgView, Availability, Backend, BackendOption, CompileSpec, DType, Delegate, Dims, Dynamism, Error,
    ErrorKind, ExecuteContext, InitContext, NamedData, OutputView, Result, TensorMeta, TensorSlot,
    TensorSpec, TensorView,
};
use pteron_plugin::abi::PteronBackend;
use pteron_plugin::{PluginBackend, table};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

static DESTROYED: AtomicUsize = AtomicUsize::new(0);

struct Doubling(Arc<dyn NamedData>);

impl Delegate for Doubling {
    fn num_outputs(&self) -> usize {
        1
    }

    fn execute(
        &mut self,
        ctx: &mut ExecuteContext<'_>,
        inputs: &[ArgView<'_>],
        outputs: &mut [OutputView<'_>],
    ) -> Result<()> {
        assert!(self.0.get("weights") == Some(&[1, 2, 3][..]) && self.0.get("other").is_none());
        match inputs.get(1) {
            Some(ArgView::Int(1)) => panic!("asked to"),
            Some(ArgView::Int(2)) => return Err(Error::delegate("no").debug_handle(9)),
            Some(ArgView::String("cancelled?")) if (ctx.is_cancelled)() => {
                return Err(Error::delegate(format!("stopped at {} of {}", ctx.instruction, ctx.method)));
            }
            _ => {}
        }
        let given = inputs[0].tensor()?;
        outputs[0].resize(given.shape())?;
        let doubled: Vec<f32> = given.as_slice::<f32>()?.iter().map(|v| v * 2.0).collect();
        outputs[0].view_mut().into_slice::<f32>()?.copy_from_slice(&doubled);
        Ok(())
    }
}

impl Drop for Doubling {
    fn drop(&mut self) {
        DESTROYED.fetch_add(1, Ordering::SeqCst);
    }
}

struct Backends;

impl Backend for Backends {
    fn name(&self) -> &str {
        "Doubling"
    }
    fn is_available(&self) -> Availability {
        Availability::Unavailable("it rains".into())
    }
    fn init(
        &self,
        ctx: &InitContext<'_>,
        processed: &[u8],
        specs: &[CompileSpec],
    ) -> Result<Box<dyn Delegate>> {
        match processed {
            b"panic" => panic!("in init"),
            b"refuse" => return Err(Error::delegate("a bad blob")),
            _ => {}
        }
        assert_eq!((ctx.method, processed), ("forward", &b"blob"[..]));
        assert_eq!(specs, [CompileSpec { key: "k".into(), value: vec![0, 255] }]);
        assert_eq!(
            ctx.options,
            [
                ("a".to_string(), BackendOption::Bool(true)),
                ("b".to_string(), BackendOption::Int(-7)),
                ("c".to_string(), BackendOption::String("ü".into())),
            ]
        );
        Ok(Box::new(Doubling(ctx.named_data.clone())))
    }
}

struct Data;

impl NamedData for Data {
    fn get(&self, key: &str) -> Option<&[u8]> {
        (key == "weights").then_some(&[1, 2, 3])
    }
}

fn backend() -> PluginBackend {
    // SAFETY: a table of `table` keeps the contract.
    unsafe { PluginBackend::from_table(table(Box::new(Backends)).unwrap()) }.unwrap()
}

fn made(backend: &PluginBackend, blob: &[u8]) -> Result<Box<dyn Delegate>> {
    let options = [
        ("a".to_string(), BackendOption::Bool(true)),
        ("b".to_string(), BackendOption::Int(-7)),
        ("c".to_string(), BackendOption::String("ü".into())),
    ];
    let ctx = InitContext { method: "forward", options: &options, named_data: Arc::new(Data) };
    backend.init(&ctx, blob, &[CompileSpec { key: "k".into(), value: vec![0, 255] }])
}

/// Calls the delegate on `rows` x 2 numbers, channels last where asked; what comes out.
fn run(delegate: &mut dyn Delegate, rows: usize, second: ArgView<'_>) -> Result<Vec<f32>> {
    let shape = Dims::new(&[rows, 2]).unwrap();
    let data: Vec<f32> = (0..rows * 2).map(|i| i as f32).collect();
    let meta = TensorMeta::contiguous(DType::Float32, &shape).unwrap();
    // SAFETY: `data` holds what `meta` says, and lives as long as the view.
    let view = unsafe { TensorView::from_raw(data.as_ptr().cast(), &meta) };
    let spec = TensorSpec {
        dynamism: Dynamism::Bounded,
        ..TensorSpec::contiguous(DType::Float32, &[8, 2]).unwrap()
    };
    let mut memory = [0f32; 16];
    let mut slot = TensorSlot::new(&spec).unwrap();
    // SAFETY: `memory` outlives the slot and is used through it alone.
    unsafe { slot.set_data(memory.as_mut_ptr().cast(), 64) };
    let mut ctx = ExecuteContext { method: "forward", instruction: 3, is_cancelled: &|| true, events: None };
    delegate.execute(&mut ctx, &[ArgView::Tensor(view), second], &mut [OutputView::new(&mut slot)])?;
    assert_eq!(**slot.meta().shape(), [rows, 2]);
    Ok(slot.view().as_slice::<f32>().unwrap().to_vec())
}

#[test]
fn a_backend_works_through_its_table() {
    let backend = backend();
    assert_eq!(backend.name(), "Doubling");
    assert!(
        matches!(backend.is_available(), Availability::Unavailable(reason) if reason.contains("it rains"))
    );
    let mut delegate = made(&backend, b"blob").unwrap();
    assert_eq!(delegate.num_outputs(), 1);
    assert_eq!(run(&mut *delegate, 2, ArgView::None).unwrap(), [0.0, 2.0, 4.0, 6.0]);
    assert_eq!(run(&mut *delegate, 0, ArgView::Double(1.5)).unwrap(), [0f32; 0]);
    assert_eq!(run(&mut *delegate, 8, ArgView::Bool(true)).unwrap().len(), 16);
    let e = run(&mut *delegate, 9, ArgView::None).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Delegate);
    let e = run(&mut *delegate, 1, ArgView::String("cancelled?")).unwrap_err();
    assert!(e.to_string().contains("stopped at 3 of forward"), "{e}");
    let before = DESTROYED.load(Ordering::SeqCst);
    drop(delegate);
    assert_eq!(DESTROYED.load(Ordering::SeqCst), before + 1);
}

#[test]
fn errors_and_panics_come_back_as_errors() {
    let backend = backend();
    for (blob, text) in [(&b"panic"[..], "panicked: in init"), (b"refuse", "a bad blob")] {
        let e = made(&backend, blob).err().unwrap();
        assert_eq!(e.kind(), ErrorKind::Delegate);
        assert!(e.to_string().contains(text), "{e}");
    }
    let mut delegate = made(&backend, b"blob").unwrap();
    let e = run(&mut *delegate, 1, ArgView::Int(1)).unwrap_err();
    assert!(e.to_string().contains("panicked: asked to"), "{e}");
    let e = run(&mut *delegate, 1, ArgView::Int(2)).unwrap_err();
    assert_eq!(e.detail().debug_handle, Some(9));
    assert_eq!(run(&mut *delegate, 1, ArgView::Int(0)).unwrap(), [0.0, 2.0]);
}

#[test]
fn tables_of_other_versions_or_with_holes_are_refused() {
    let good = table(Box::new(Backends)).unwrap();
    let refused = |change: &dyn Fn(&mut PteronBackend), text: &str| {
        // SAFETY: a table may be copied; the copy is leaked, as a host demands.
        let mut copy = Box::new(unsafe { std::ptr::read(good) });
        change(&mut copy);
        // SAFETY: a table of its own that is never freed.
        let e = unsafe { PluginBackend::from_table(Box::leak(copy)) }.err().unwrap();
        assert!(e.to_string().contains(text), "{e}");
    };
    refused(&|t| t.abi_major = 2, "another version");
    refused(&|t| t.struct_size = 16, "too short");
    refused(&|t| t.execute = None, "lacks");
    refused(&|t| t.name = std::ptr::null(), "lacks");
    // SAFETY: null is allowed, and refused.
    assert!(unsafe { PluginBackend::from_table(std::ptr::null()) }.is_err());
}
