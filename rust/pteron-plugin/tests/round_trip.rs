//! A backend through its table and back: nothing is lost on the way, nothing that goes wrong gets across.

use pteron_core::{
    AlignedBuffer, ArgView, Availability, Backend, BackendOption, CompileSpec, DType, Delegate,
    DelegateEvent, DelegateState, Dims, Dynamism, Error, ErrorKind, EventId, ExecuteContext, InitContext,
    NamedData, OutputView, OwnedTensor, Result, TensorMeta, TensorSlot, TensorSpec, TensorView,
};
use pteron_plugin::abi::{
    FAILED, GiveBuffer, OK, PteronBackend, PteronBytes, PteronError, PteronInit, PteronTensor,
};
use pteron_plugin::{PluginBackend, table};
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

static DESTROYED: AtomicUsize = AtomicUsize::new(0);

struct Doubling(Arc<dyn NamedData>, Option<Counter>);

/// A buffer of two numbers.
struct Counter([i32; 2]);

impl DelegateState for Counter {
    fn get_state(&self) -> Result<Vec<(String, OwnedTensor)>> {
        let meta = TensorMeta::contiguous(DType::Int32, &Dims::new(&[2, 1])?)?;
        let bytes: Vec<u8> = self.0.iter().flat_map(|v| v.to_ne_bytes()).collect();
        Ok(vec![("count.er".into(), OwnedTensor { meta, data: AlignedBuffer::copy_of(&bytes)? })])
    }

    fn set_state(&mut self, state: &[(&str, TensorView<'_>)]) -> Result<()> {
        let (name, view) = &state[0];
        assert_eq!((*name, state.len(), **view.meta().shape() == [2, 1]), ("count.er", 1, true));
        let values = view.as_slice::<i32>()?;
        if values[0] < 0 {
            return Err(Error::delegate("counts are not negative"));
        }
        self.0.copy_from_slice(values);
        Ok(())
    }

    fn reset_state(&mut self) -> Result<()> {
        match self.0 {
            [13, _] => panic!("unlucky"),
            _ => self.0 = [0, 5],
        }
        Ok(())
    }
}

impl Delegate for Doubling {
    fn state(&mut self) -> Option<&mut dyn DelegateState> {
        self.1.as_mut().map(|counter| counter as &mut dyn DelegateState)
    }

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
        if let Some(report) = &mut ctx.events {
            report(DelegateEvent { id: EventId::Int(-4), start_ns: 1, end_ns: u64::MAX, metadata: b"" });
            report(DelegateEvent { id: EventId::Name("ü"), start_ns: 0, end_ns: 2, metadata: b"\0m" });
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
        assert_eq!((ctx.method, ctx.num_threads), ("forward", 3));
        assert!(processed == b"blob" || processed == b"counting");
        assert_eq!(specs, [CompileSpec { key: "k".into(), value: vec![0, 255] }]);
        assert_eq!(
            ctx.options,
            [
                ("a".to_string(), BackendOption::Bool(true)),
                ("b".to_string(), BackendOption::Int(-7)),
                ("c".to_string(), BackendOption::String("ü".into())),
            ]
        );
        let counter = (processed == b"counting").then_some(Counter([0, 5]));
        Ok(Box::new(Doubling(ctx.named_data.clone(), counter)))
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
    let ctx =
        InitContext { method: "forward", options: &options, named_data: Arc::new(Data), num_threads: 3 };
    backend.init(&ctx, blob, &[CompileSpec { key: "k".into(), value: vec![0, 255] }])
}

/// What a call reports.
fn events(delegate: &mut dyn Delegate) -> Vec<String> {
    let mut told = Vec::new();
    let mut report = |e: DelegateEvent<'_>| {
        told.push(format!("{:?} {} {} {:?}", e.id, e.start_ns, e.end_ns, e.metadata));
    };
    run_with(delegate, 1, ArgView::None, Some(&mut report)).unwrap();
    told
}

fn run(delegate: &mut dyn Delegate, rows: usize, second: ArgView<'_>) -> Result<Vec<f32>> {
    run_with(delegate, rows, second, None)
}

/// Calls the delegate on `rows` x 2 numbers, channels last where asked; what comes out.
fn run_with(
    delegate: &mut dyn Delegate,
    rows: usize,
    second: ArgView<'_>,
    events: Option<&mut dyn FnMut(DelegateEvent<'_>)>,
) -> Result<Vec<f32>> {
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
    let mut ctx =
        ExecuteContext { method: "forward", instruction: 3, is_cancelled: &|| true, poll: None, events };
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
    refused(&|t| t.set_state = None, "lacks set_state or reset_state");
    refused(&|t| t.reset_state = None, "lacks set_state or reset_state");
    refused(&|t| t.name = std::ptr::null(), "lacks");
    // SAFETY: null is allowed, and refused.
    assert!(unsafe { PluginBackend::from_table(std::ptr::null()) }.is_err());
}

/// Changes a copy of the table, which is leaked, as a host demands.
fn changed(change: impl FnOnce(&mut PteronBackend)) -> PluginBackend {
    // SAFETY: a table may be copied.
    let mut copy = Box::new(unsafe { std::ptr::read(table(Box::new(Backends)).unwrap()) });
    change(&mut copy);
    // SAFETY: a table of its own that is never freed.
    unsafe { PluginBackend::from_table(Box::leak(copy)) }.unwrap()
}

unsafe extern "C" fn forgetful_init(
    _: *mut c_void,
    _: *const PteronInit,
    _: *mut *mut c_void,
    _: *mut usize,
    _: *mut PteronError,
) -> i32 {
    OK
}

static FORGOTTEN: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn count_destroyed(delegate: *mut c_void) {
    assert!(delegate.is_null());
    FORGOTTEN.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn an_init_that_does_not_say_how_many_outputs_there_are_is_refused() {
    let backend = changed(|t| {
        t.init = Some(forgetful_init);
        t.destroy = Some(count_destroyed);
    });
    let e = made(&backend, b"").err().unwrap();
    assert!(e.to_string().contains("did not set the number of outputs"), "{e}");
    assert_eq!(FORGOTTEN.load(Ordering::SeqCst), 1);
}

/// Named data of a host that count how often they end.
struct Weights(Vec<u8>);

static ENDED: AtomicUsize = AtomicUsize::new(0);

impl NamedData for Weights {
    fn get(&self, key: &str) -> Option<&[u8]> {
        (key == "weights").then_some(&self.0)
    }
}

impl Drop for Weights {
    fn drop(&mut self) {
        ENDED.fetch_add(1, Ordering::SeqCst);
    }
}

/// Keeps the named data of every delegate that it makes.
struct Keeper(Arc<Mutex<Vec<Arc<dyn NamedData>>>>);

impl Backend for Keeper {
    fn name(&self) -> &str {
        "Keeper"
    }
    fn is_available(&self) -> Availability {
        Availability::Available
    }
    fn init(&self, ctx: &InitContext<'_>, _: &[u8], _: &[CompileSpec]) -> Result<Box<dyn Delegate>> {
        assert_eq!(ctx.num_threads, 1, "what a host of the first version leaves out is one");
        self.0.lock().unwrap().push(ctx.named_data.clone());
        Ok(Box::new(Doubling(Arc::new(Data), None)))
    }
}

#[test]
fn named_data_are_the_hosts_bytes_and_stay_as_long_as_they_are_kept() {
    let kept = Arc::new(Mutex::default());
    // SAFETY: a table of `table` keeps the contract.
    let backend =
        unsafe { PluginBackend::from_table(table(Box::new(Keeper(Arc::clone(&kept)))).unwrap()) }.unwrap();
    let data: Arc<dyn NamedData> = Arc::new(Weights(vec![7; 1000]));
    let place = data.get("weights").unwrap().as_ptr();
    for _ in 0..2 {
        let ctx = InitContext { method: "forward", options: &[], named_data: data.clone(), num_threads: 1 };
        drop(backend.init(&ctx, b"", &[]).unwrap());
    }
    drop(data);
    let held = std::mem::take(&mut *kept.lock().unwrap());
    for named in &held {
        let seen = named.get("weights").unwrap();
        assert_eq!((seen.as_ptr(), seen), (place, &[7; 1000][..]), "no copy");
        assert!(named.get("other").is_none());
    }
    assert_eq!(ENDED.load(Ordering::SeqCst), 0);
    drop(held);
    assert_eq!(ENDED.load(Ordering::SeqCst), 1);
}

/// `named_data` of a host of the first version.
unsafe extern "C" fn early_named_data(host: *mut c_void, _: PteronBytes, out: *mut PteronBytes) -> i32 {
    // SAFETY: `host` is the vector of the test, the place for the result is the plugin's.
    unsafe {
        let bytes = &*host.cast::<Vec<u8>>();
        *out = PteronBytes { data: bytes.as_ptr(), len: bytes.len() };
    }
    OK
}

unsafe extern "C" fn beyond_the_end(_: *mut c_void) -> *mut c_void {
    unreachable!("lies beyond the end of what the host told")
}

#[test]
fn named_data_of_a_host_of_the_first_version_are_copied() {
    let kept = Arc::new(Mutex::default());
    let made = table(Box::new(Keeper(Arc::clone(&kept)))).unwrap();
    let mut weights = vec![1u8, 2, 3];
    let nothing = PteronBytes { data: std::ptr::null(), len: 0 };
    let init = PteronInit {
        struct_size: PteronInit::FIRST_SIZE as u32,
        method: nothing,
        processed: nothing,
        specs: std::ptr::null(),
        spec_count: 0,
        options: std::ptr::null(),
        option_count: 0,
        host: (&raw mut weights).cast(),
        named_data: Some(early_named_data),
        keep_data: Some(beyond_the_end),
        release_data: None,
        num_threads: 7,
    };
    let (mut delegate, mut num_outputs) = (std::ptr::null_mut(), 0);
    let mut error = PteronError { host: std::ptr::null_mut(), set: None };
    // SAFETY: the table is one of `table`; everything lent lives until the calls return.
    unsafe {
        let status =
            ((*made).init.unwrap())((*made).plugin, &init, &mut delegate, &mut num_outputs, &mut error);
        assert_eq!((status, num_outputs), (OK, 1));
    }
    let held = kept.lock().unwrap().pop().unwrap();
    assert_eq!(held.get("weights"), Some(&[1u8, 2, 3][..]));
    // SAFETY: made by `init` of the same table, destroyed once.
    unsafe { ((*made).destroy.unwrap())(delegate) };
    weights.fill(0);
    assert_eq!(held.get("weights"), Some(&[1u8, 2, 3][..]), "a copy");
    assert!(held.get("never asked for").is_none(), "the host is not asked any more");
}

#[test]
fn events_carry_numbers_or_names() {
    let mut delegate = made(&backend(), b"blob").unwrap();
    let told = events(&mut *delegate);
    assert_eq!(told, ["Int(-4) 1 18446744073709551615 []", "Name(\"ü\") 0 2 [0, 109]"]);
}

#[test]
fn state_is_given_set_and_reset() {
    let mut delegate = made(&backend(), b"blob").unwrap();
    assert!(delegate.state().is_none(), "this one gives none");
    let mut delegate = made(&backend(), b"counting").unwrap();
    let state = delegate.state().unwrap();
    assert!(!state.is_empty().unwrap());
    let given = state.get_state().unwrap();
    assert_eq!(given[0].0, "count.er");
    assert_eq!(given[0].1.elements::<i32>().unwrap(), [0, 5]);
    let set = |state: &mut dyn DelegateState, values: [i32; 2]| {
        let view = TensorView::from_raw;
        // SAFETY: the values are what the metadata says, and outlive the view.
        state.set_state(&[("count.er", unsafe { view(values.as_ptr().cast(), &given[0].1.meta) })])
    };
    set(state, [3, 4]).unwrap();
    assert_eq!(state.get_state().unwrap()[0].1.elements::<i32>().unwrap(), [3, 4]);
    let e = set(state, [-1, 0]).unwrap_err();
    assert!(e.to_string().contains("counts are not negative"), "{e}");
    state.reset_state().unwrap();
    assert_eq!(state.get_state().unwrap()[0].1.elements::<i32>().unwrap(), [0, 5]);
    set(state, [13, 0]).unwrap();
    let e = state.reset_state().unwrap_err();
    assert!(e.to_string().contains("panicked: unlucky"), "{e}");
}

#[test]
fn a_table_of_the_first_version_has_no_state_and_is_not_read_beyond_its_end() {
    let backend = changed(|t| {
        t.struct_size = PteronBackend::FIRST_SIZE as u32;
        t.get_state = Some(refuse_state); // lies beyond the end
    });
    let mut delegate = made(&backend, b"counting").unwrap();
    assert!(delegate.state().is_none());
    assert_eq!(run(&mut *delegate, 1, ArgView::None).unwrap(), [0.0, 2.0]);
    let backend = changed(|t| t.struct_size += 64);
    assert!(made(&backend, b"counting").unwrap().state().is_some(), "a later version");
}

unsafe extern "C" fn refuse_state(
    _: *mut std::ffi::c_void,
    _: GiveBuffer,
    _: *mut std::ffi::c_void,
    _: *mut PteronError,
) -> i32 {
    FAILED
}

/// Gives a tensor that is spoilt in the way that `HOW` says.
unsafe extern "C" fn give_spoilt<const HOW: u8>(
    _: *mut std::ffi::c_void,
    give: GiveBuffer,
    host: *mut std::ffi::c_void,
    _: *mut PteronError,
) -> i32 {
    let (mut data, mut shape, mut strides) = ([1f32; 4], [2i64, 2], [2i64, 1]);
    let mut name = b"buffer".to_vec();
    let mut tensor = PteronTensor {
        data: data.as_mut_ptr().cast(),
        dtype: 6,
        ndim: 2,
        shape: shape.as_ptr(),
        strides: strides.as_ptr(),
        nbytes: 16,
    };
    match HOW {
        0 => tensor.dtype = 300,
        1 => tensor.ndim = -1,
        2 => tensor.ndim = 1000,
        3 => shape[1] = -2,
        4 => shape = [i64::MAX, i64::MAX],
        5 => strides = [1, 2],
        6 => tensor.nbytes = 15,
        7 => tensor.data = std::ptr::null_mut(),
        8 => name = vec![0xff],
        9 => tensor.shape = std::ptr::null(),
        _ => {}
    }
    std::hint::black_box((&shape, &strides));
    let name = PteronBytes { data: name.as_ptr(), len: name.len() };
    // SAFETY: the host's function; what is lent lives until it returns.
    let status = unsafe { give(host, name, &tensor) };
    if HOW == 10 { OK } else { status }
}

#[test]
fn buffers_that_are_none_are_refused() {
    let refused = |get: unsafe extern "C" fn(_, GiveBuffer, _, *mut PteronError) -> i32, text: &str| {
        let backend = changed(|t| (t.get_state, t.has_state) = (Some(get), None));
        let mut delegate = made(&backend, b"blob").unwrap();
        let e = delegate.state().unwrap().get_state().err().unwrap();
        assert!(e.to_string().contains(text), "{e}");
    };
    refused(give_spoilt::<0>, "dtype");
    refused(give_spoilt::<1>, "dimensions");
    refused(give_spoilt::<2>, "dimensions");
    refused(give_spoilt::<3>, "negative extent");
    refused(give_spoilt::<4>, "too large");
    refused(give_spoilt::<5>, "row-major");
    refused(give_spoilt::<6>, "shorter");
    refused(give_spoilt::<7>, "shorter");
    refused(give_spoilt::<8>, "UTF-8");
    refused(give_spoilt::<9>, "without extents");
    refused(refuse_state, "get_state failed");
    let backend = changed(|t| {
        t.get_state = Some(give_spoilt::<10>);
        t.has_state = None;
    });
    let mut delegate = made(&backend, b"blob").unwrap();
    assert_eq!(delegate.state().unwrap().get_state().unwrap()[0].1.elements::<f32>().unwrap(), [1.0; 4]);
}
