//! A loaded program: storage, checked methods, packed weights.

use crate::api::builds::Builds;
use crate::api::describe;
use crate::api::fork_lock::ForkLock;
use crate::api::method_instance::MethodInstance;
use crate::load::build_progress::{Watch, share_of, stored_bytes};
use crate::load::external_file::ExternalFiles;
use crate::load::interface::{INTERFACE_KEY, Interface};
use crate::load::method_code::{BuildInput, MethodCode};
use crate::load::packed_weights::PackedWeights;
use crate::load::program_data::ProgramData;
use crate::load::storage::{BundledProgram, Storage};
use crate::session::shared_state::SharedState;
use crate::{
    DataSource, ExecuteOptions, Extent, InputValue, IoKind, IoSpec, Limits, MethodOptions, Outputs,
    ProgramSource, Runtime, TensorIo,
};
use pteron_core::error::{panic_text, printable};
use pteron_core::memory_reserve::within_memory_limit;
use pteron_core::{Error, NamedData, PackStore, Result, StableBytes};
use pteron_format::{BundleFile, MethodDef};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// A loaded program. Immutable, shared by all its methods and sessions.
pub struct Program {
    runtime: Arc<Runtime>,
    data: Arc<ProgramData>,
    // The file around the program, if it came in a bundled program.
    bundle: Option<Arc<BundleFile>>,
    packs: PackStore,
    limits: Limits,
    methods: Vec<MethodEntry>,
    builds: Builds,
}

/// What the program keeps per method, index-aligned with the file's methods.
struct MethodEntry {
    inputs: Arc<[IoSpec]>,
    outputs: Arc<[IoSpec]>,
    delegate_buffers: Arc<[(usize, Vec<String>)]>,
    delegate_outputs: Arc<[(usize, usize)]>,
    parameters: Vec<String>,
    // Built when first needed. The lock is held while building, so it happens once.
    code: ForkLock<Option<Arc<MethodCode>>>,
    // Sessions of stateless methods, idle: at most `Program::most_idle`.
    pool: ForkLock<Vec<MethodInstance>>,
}

impl Program {
    /// Loads a program and checks the whole file. Kernels are resolved and weights packed when a
    /// method is first used.
    ///
    /// Errors: `NotFound` for a file that is not there, `Program` for one that breaks a rule of the
    /// format, `LimitExceeded` for one beyond `limits` or when memory cannot be had.
    pub fn load(runtime: &Arc<Runtime>, source: ProgramSource, limits: Limits) -> Result<Arc<Program>> {
        Self::load_with_data(runtime, source, Vec::new(), limits)
    }

    /// As [`Program::load`] for a program that keeps tensors or named data in data files (`.ptd`). Which of
    /// them a method needs is checked when the method is first used.
    ///
    /// Errors: `ExternalData` for a data file that breaks a rule of its format, or where one key stands for
    /// two things.
    pub fn load_with_data(
        runtime: &Arc<Runtime>,
        source: ProgramSource,
        data: Vec<DataSource>,
        limits: Limits,
    ) -> Result<Arc<Program>> {
        catching(|| {
            let storage = match source {
                ProgramSource::File { path, is_mapped } => Storage::open(&path, is_mapped)?,
                ProgramSource::Bytes(bytes) => Storage::borrow(bytes)?,
            };
            let (storage, bundle) = unpack(storage)?;
            let data = Arc::new(ProgramData::new(storage, ExternalFiles::open(data)?)?);
            let limits = limits.inside();
            limits.check_file(data.file())?;
            let interface = Interface::parse(data.own(INTERFACE_KEY))?;
            let methods = data
                .file()
                .methods
                .iter()
                .map(|m| {
                    Ok(MethodEntry {
                        inputs: interface.inputs(m)?.into(),
                        outputs: interface.outputs(m)?.into(),
                        parameters: interface.parameters(m)?,
                        delegate_buffers: interface.delegate_buffers(m)?.into(),
                        delegate_outputs: interface.delegate_outputs(m)?.into(),
                        code: ForkLock::new(None),
                        pool: ForkLock::new(vec![]),
                    })
                })
                .collect::<Result<Vec<_>>>()?;
            let packs = data.pack_store()?;
            Ok(Arc::new(Program {
                runtime: runtime.clone(),
                data,
                bundle,
                packs,
                limits,
                methods,
                builds: Builds::default(),
            }))
        })
    }

    /// The runtime it was loaded into.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    /// Names of the methods, in file order.
    pub fn methods(&self) -> Vec<&str> {
        self.data.file().methods.iter().map(|m| m.name.as_str()).collect()
    }

    fn method(&self, name: &str) -> Result<(&MethodDef, &MethodEntry)> {
        let found = self.data.file().methods.iter().zip(&self.methods).find(|(m, _)| m.name == name);
        found.ok_or_else(|| {
            let known: Vec<String> = self.methods().into_iter().map(printable).collect();
            Error::method_not_found("the program has no such method")
                .method(name)
                .expected(format!("one of {}", known.join(", ")))
                .got(printable(name))
                .hint("program.methods lists the methods; load_method() without a name loads \"forward\"")
        })
    }

    /// What a method takes, in flat order.
    pub fn inputs(&self, method: &str) -> Result<&[IoSpec]> {
        Ok(&self.method(method)?.1.inputs)
    }

    /// What a method gives, in flat order.
    pub fn outputs(&self, method: &str) -> Result<&[IoSpec]> {
        Ok(&self.method(method)?.1.outputs)
    }

    /// Names of the positional parameters of a method, as its model calls them; empty where the file has none.
    pub fn parameters(&self, method: &str) -> Result<&[String]> {
        Ok(&self.method(method)?.1.parameters)
    }

    /// Text form of the file; an error when memory for it cannot be had.
    pub fn listing(&self) -> Result<String> {
        pteron_format::listing(self.data.file())
    }

    /// Text form of a method after load's rewrites: one line per step.
    pub fn plan_listing(&self, method: &str) -> Result<String> {
        self.code(method)?.listing()
    }

    /// The file as JSON, for tools: sizes, byte ranges, values, instructions.
    ///
    /// # Errors
    /// `ErrorKind::LimitExceeded` when memory for it cannot be had.
    pub fn description(&self) -> Result<String> {
        within_memory_limit(|| Ok(describe::program(self.data.file())))
    }

    /// A method after load's rewrites as JSON, for tools: values, calls, steps with kernels and the bytes that they
    /// move (at the largest shapes).
    ///
    /// # Errors
    /// Those of preparing the method; `ErrorKind::LimitExceeded` when memory for the text cannot be had.
    pub fn plan_description(&self, method: &str) -> Result<String> {
        let code = self.code(method)?;
        within_memory_limit(|| Ok(describe::plan(&code)))
    }

    /// Bytes of the program file, without data files.
    pub fn file_bytes(&self) -> usize {
        self.data.file_bytes()
    }

    /// The kernel of every step of a method, in order.
    pub fn kernels(&self, method: &str) -> Result<Vec<String>> {
        let code = self.code(method)?;
        Ok(code.steps.iter().map(|s| s.name(&code.ir.delegates).to_string()).collect())
    }

    /// Backend ids that a method's delegates name, each once, in order of appearance.
    pub fn backends(&self, method: &str) -> Result<Vec<&str>> {
        let mut out: Vec<&str> = Vec::new();
        for d in &self.method(method)?.0.delegates {
            if !out.contains(&d.backend.as_str()) {
                out.push(&d.backend);
            }
        }
        Ok(out)
    }

    /// Full names of the operators that a method uses.
    pub fn operators(&self, method: &str) -> Result<Vec<&str>> {
        Ok(self.method(method)?.0.operators.iter().map(String::as_str).collect())
    }

    /// The bundled program that the program came in: its test cases.
    pub fn bundle(&self) -> Option<&BundleFile> {
        self.bundle.as_deref()
    }

    /// Keys of the named data, of the program and of its data files, sorted.
    pub fn named_data_keys(&self) -> Vec<&str> {
        self.data.keys()
    }

    /// One named blob.
    pub fn named_data(&self, key: &str) -> Option<&[u8]> {
        self.data.get(key)
    }

    /// The stored input and output tree of a method: JSON as in the file, empty where it has none.
    pub fn trees(&self, method: &str) -> Result<(&str, &str)> {
        let m = self.method(method)?.0;
        Ok((&m.input_tree, &m.output_tree))
    }

    /// Number of packed weights in use that load made, and their bytes.
    pub fn pack_stats(&self) -> (usize, usize) {
        self.packs.totals().made
    }

    /// Number of packed weights in use that the file brought along, and their bytes.
    pub fn stored_pack_stats(&self) -> (usize, usize) {
        self.packs.totals().stored
    }

    /// Checks, optimises and prepares every method, and returns what is wrong: at most one error per method,
    /// each with the line of the model that it comes from where the file tells.
    pub fn check_methods(&self) -> Vec<Error> {
        self.data.file().methods.iter().filter_map(|method| self.code(&method.name).err()).collect()
    }

    /// Prepares every method and returns the packed weights that this made, so that a writer can store
    /// them with the program.
    ///
    /// Errors: those of preparing a method.
    pub fn pack_all(&self) -> Result<PackedWeights> {
        self.pack_all_watched(&|_, _| Ok(()))
    }

    /// As [`Program::pack_all`]; after each step of each method `watch` is told (bytes of weights that are done,
    /// bytes of weights in all).
    ///
    /// Errors: those of preparing a method; what `watch` returns, which ends the work.
    pub fn pack_all_watched(&self, watch: &dyn Fn(u64, u64) -> Result<()>) -> Result<PackedWeights> {
        let methods = &self.data.file().methods;
        let total = methods.iter().fold(0u64, |sum, method| sum.saturating_add(stored_bytes(method)));
        let mut before = 0u64;
        for method in methods {
            let bytes = stored_bytes(method);
            let within = |done, of| watch(before.saturating_add(share_of(bytes, done, of)), total);
            self.code_watched(&method.name, Some(&within))?;
            before = before.saturating_add(bytes);
        }
        catching(|| PackedWeights::new(self.packs.made(), self.data.file()))
    }

    /// Bytes of planned memory that one session of a method needs.
    pub fn arena_bytes(&self, method: &str) -> Result<usize> {
        Ok(self.code(method)?.layout.nbytes)
    }

    /// Mutable buffers that a method keeps itself, in order: tensors by name. Those of its delegates are not
    /// among them.
    pub fn buffers(&self, method: &str) -> Result<Vec<IoSpec>> {
        let mut found = Vec::new();
        for (_, tensor) in self.method(method)?.0.tensors() {
            if tensor.is_state() {
                let name = tensor.name.clone().unwrap_or_else(|| format!("state{}", found.len()));
                let kind = IoKind::Tensor(TensorIo {
                    dtype: tensor.spec.dtype,
                    extents: tensor.spec.shape.iter().map(|n| Extent::Static(*n)).collect(),
                    dim_order: tensor.spec.dim_order,
                    bound: tensor.spec.shape,
                    is_planned: true,
                });
                found.push(IoSpec { name, kind, is_computed: false });
            }
        }
        Ok(found)
    }

    /// The executable of a method, built the first time.
    pub(crate) fn code(&self, name: &str) -> Result<Arc<MethodCode>> {
        self.code_watched(name, None)
    }

    fn code_watched(&self, name: &str, watch: Option<Watch<'_>>) -> Result<Arc<MethodCode>> {
        let (def, entry) = self.method(name)?;
        if self.builds.is_cut_off() {
            let built = entry.code.lock_within(Duration::ZERO).and_then(|slot| slot.clone());
            return built.ok_or_else(|| Builds::error().method(name));
        }
        let mut slot = loop {
            match entry.code.lock_within(Duration::from_secs(1)) {
                Some(slot) => break slot,
                None if self.builds.are_running_here() => {}
                None => return Err(Builds::error().method(name)),
            }
        };
        if let Some(code) = &*slot {
            return Ok(code.clone());
        }
        let _building = self.builds.begin();
        let built = catching(|| {
            MethodCode::build(BuildInput {
                runtime: &self.runtime,
                data: &self.data,
                packs: &self.packs,
                method: def,
                inputs: entry.inputs.clone(),
                outputs: entry.outputs.clone(),
                delegate_buffers: entry.delegate_buffers.clone(),
                delegate_outputs: entry.delegate_outputs.clone(),
                limits: &self.limits,
                watch,
            })
        });
        let code = Arc::new(built.map_err(|e| e.method(name))?);
        *slot = Some(code.clone());
        Ok(code)
    }

    fn instance(&self, name: &str, options: &MethodOptions) -> Result<MethodInstance> {
        self.instance_of(self.code(name)?, options, None)
    }

    /// A session of a method of this program, within its limits. `shared`: what it has in common with others.
    pub(crate) fn instance_of(
        &self,
        code: Arc<MethodCode>,
        options: &MethodOptions,
        shared: Option<&SharedState>,
    ) -> Result<MethodInstance> {
        catching(|| MethodInstance::new(code, options, self.limits, shared))
    }

    /// Runs a stateless method in a session from a pool; any number of threads may do so at once, and as many sessions
    /// stay in the pool as the runtime has threads, at least two. A method whose calls depend on each other is refused.
    pub fn run(&self, name: &str, inputs: &[InputValue<'_>], options: ExecuteOptions<'_>) -> Result<Outputs> {
        let mut outputs = Outputs::new();
        self.run_into(name, inputs, options, &mut outputs)?;
        Ok(outputs)
    }

    /// As [`Program::run`], into a list of the caller's, which is emptied first and empty after an error.
    pub fn run_into(
        &self,
        name: &str,
        inputs: &[InputValue<'_>],
        options: ExecuteOptions<'_>,
        outputs: &mut Outputs,
    ) -> Result<()> {
        outputs.clear();
        let entry = self.method(name)?.1;
        if options.lend_outputs {
            return Err(Error::input("outputs of pooled sessions cannot be lent").method(name).hint(
                "use load_method, which gives a session of its own, or take outputs that own their memory",
            ));
        }
        let take = || entry.pool.lock_within(Duration::ZERO).and_then(|mut pool| pool.pop());
        let mut pooled = take();
        while pooled.as_ref().is_some_and(MethodInstance::is_outdated) {
            pooled = take();
        }
        let instance = match pooled {
            Some(instance) => instance,
            None => self.instance(name, &MethodOptions::default())?,
        };
        if instance.is_stateful() {
            return Err(Error::input(
                "the method keeps state between calls, so it cannot run in pooled sessions",
            )
            .method(name)
            .hint("use load_method, which gives a session of its own, and call that"));
        }
        let result = instance.execute(inputs, options, outputs);
        let is_usable = !matches!(&result, Err(e) if e.kind() == pteron_core::ErrorKind::Internal
            || e.detail().is_memory_kept);
        if is_usable {
            self.keep(&entry.pool, instance);
        }
        result
    }

    /// Keeps an idle session, unless the pool has as many as it may keep.
    fn keep(&self, pool: &ForkLock<Vec<MethodInstance>>, instance: MethodInstance) {
        let Some(mut pool) = pool.lock_within(Duration::ZERO) else { return };
        if pool.len() < self.most_idle() {
            pool.push(instance);
            return;
        }
        // Its memory is given back while others may use the pool.
        drop(pool);
        drop(instance);
    }

    /// Idle sessions of a method that are kept for calls to come: as many as the runtime has threads, at least two. More
    /// calls at once make sessions of their own, whose memory is given back behind the call.
    fn most_idle(&self) -> usize {
        self.runtime.num_threads().max(2)
    }

    /// Idle sessions of a method in the pool of [`Program::run`].
    ///
    /// Errors: `MethodNotFound` for a method that is not there.
    pub fn idle_sessions(&self, name: &str) -> Result<usize> {
        let pool = &self.method(name)?.1.pool;
        Ok(pool.lock_within(Duration::ZERO).map_or(0, |pool| pool.len()))
    }
}

/// The program in a bundled program, and the bundled program; any other file as it is.
fn unpack(storage: Storage) -> Result<(Storage, Option<Arc<BundleFile>>)> {
    if !BundleFile::is_bundle(storage.bytes()) {
        return Ok((storage, None));
    }
    let bundle = Arc::new(BundleFile::parse(storage.bytes())?);
    Ok((Storage::borrow(Arc::new(BundledProgram(bundle.clone())))?, Some(bundle)))
}

/// Turns a panic into an internal error, and memory that ran out on the way into one that says so.
fn catching<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(|| within_memory_limit(f))).unwrap_or_else(|panic| {
        Err(Error::internal("the loader panicked; this is a bug in pteron")
            .got(panic_text(&*panic))
            .hint("please report this with the program"))
    })
}
