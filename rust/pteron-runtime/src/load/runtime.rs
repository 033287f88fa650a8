//! A runtime owns kernels, backends and the thread pool; programs are loaded into one.

use crate::load::backend_registry::BackendRegistry;
use crate::load::expand::Translate;
use crate::load::kernel_registry::KernelRegistry;
use crate::optimize::rule_names;
use pteron_core::error::printable;
use pteron_core::{Availability, Backend, CpuProfile, Error, Isa, Kernel, OperatorFunction, Result};
use pteron_cpu::plan::RuleSwitches;
use pteron_kernels::vector_math::SimdLevel;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};

/// How a runtime is made; the default suits this machine.
#[derive(Debug, Clone, Default)]
pub struct RuntimeOptions {
    /// Best instruction set that kernels may use; never more than the processor has. NEON is below all of x86-64, AVX2 above
    /// all of ARM.
    pub isa: Option<Isa>,
    /// Threads of a pool of the runtime's own; `None`: the process-wide pool, which has a thread for each processor that
    /// the process may use, at most `PTERON_NUM_THREADS`, else `OMP_NUM_THREADS`.
    pub threads: Option<usize>,
    /// Rewrites that load applies.
    pub rules: RuleSwitches,
}

/// Kernels, backends and threads.
pub struct Runtime {
    kernels: RwLock<Arc<KernelRegistry>>,
    backends: RwLock<BackendRegistry>,
    /// How often a backend took another's place.
    replaced: AtomicU64,
    cpu: CpuProfile,
    rules: RuleSwitches,
    pool: PoolChoice,
}

enum PoolChoice {
    Shared,
    Own(pteron_cpu::pool::Pool),
}

impl Runtime {
    /// A runtime with the built-in kernels, and no backends but those whose payloads load understands (`XnnpackBackend`).
    ///
    /// Errors: `Input` for a pool of no threads, a rule that there is none of, or an environment whose `PTERON_NUM_THREADS`
    /// is no number.
    pub fn new(options: RuntimeOptions) -> Result<Arc<Runtime>> {
        check_rules(&options.rules)?;
        let mut cpu = pteron_kernels::cpu_detect::detect()?;
        if let Some(isa) = options.isa {
            // Of the instruction sets of another architecture, the best weaker one is taken.
            cpu.isa = SimdLevel::at_most(cpu.isa.min(isa)).isa();
        }
        let pool = match options.threads {
            None => {
                pteron_cpu::pool::threads_of_environment()?;
                PoolChoice::Shared
            }
            Some(0) => {
                return Err(Error::input("a runtime cannot have a pool of no threads")
                    .argument("num_threads")
                    .expected("at least 1")
                    .got("0")
                    .hint("leave it out to use the process-wide pool"));
            }
            Some(threads) => PoolChoice::Own(pteron_cpu::pool::Pool::new(threads)),
        };
        cpu.load_threads = match &pool {
            PoolChoice::Shared => pteron_cpu::pool::Pool::shared().threads(),
            PoolChoice::Own(pool) => pool.threads(),
        }
        .max(1);
        Ok(Arc::new(Runtime {
            kernels: RwLock::new(Arc::new(KernelRegistry::built_in())),
            backends: RwLock::default(),
            replaced: AtomicU64::new(0),
            cpu,
            rules: options.rules,
            pool,
        }))
    }

    /// The process-wide default runtime.
    pub fn shared() -> Result<Arc<Runtime>> {
        static SHARED: OnceLock<Arc<Runtime>> = OnceLock::new();
        if let Some(found) = SHARED.get() {
            return Ok(found.clone());
        }
        let made = Runtime::new(RuntimeOptions::default())?;
        Ok(SHARED.get_or_init(|| made).clone())
    }

    /// Makes a backend known to programs. A name that is taken is an error unless `is_replacing`;
    /// methods that are loaded keep the backend they were loaded with, pooled sessions are made anew.
    pub fn register_backend(&self, backend: Arc<dyn Backend>, is_replacing: bool) -> Result<()> {
        // Asked before the lock is taken: the backend's code may panic.
        let name = backend.name().to_string();
        self.backends.write().map_err(|_| poisoned())?.register(name, backend, is_replacing)?;
        if is_replacing {
            self.replaced.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// How often a backend took another's place: a session made before the last time may hold an old one.
    pub(crate) fn replaced_backends(&self) -> u64 {
        self.replaced.load(Ordering::Acquire)
    }

    /// Ids of the registered backends, sorted.
    pub fn backend_names(&self) -> Vec<String> {
        self.backends.read().map(|b| b.names()).unwrap_or_default()
    }

    /// Whether a backend can be used; `None` when it is not registered.
    pub fn backend_availability(&self, name: &str) -> Option<Availability> {
        let backends = self.backends.read().ok()?.clone();
        backends.availability(name)
    }

    /// What translates the payloads of a backend to operators at load; `None` where one is registered under its name.
    pub(crate) fn translator(&self, backend: &str) -> Option<Translate> {
        self.backends.read().ok()?.translator(backend)
    }

    /// Puts a kernel before the built-in ones of its operator, for methods built from now on.
    pub fn register_kernel(&self, kernel: Arc<dyn Kernel>) -> Result<()> {
        let schema = KernelRegistry::schema_of(&*kernel)?;
        Arc::make_mut(&mut *self.kernels.write().map_err(|_| poisoned())?).register(kernel, schema)
    }

    /// Makes `function` the kernel of an operator that no kernel table has, for methods built from now on. `name`:
    /// `my_ns::my_op` for calls of `my_ns::my_op.out`, or any name that programs call. The arguments may be of any
    /// kinds; which are outputs is read from the calls.
    ///
    /// Errors: `Input` for a name of another form; `Kernel` where the operator has a kernel already, unless
    /// `is_replacing`, and for operators of PyTorch that the runtime computes itself.
    pub fn register_function(
        &self,
        name: &str,
        function: Arc<dyn OperatorFunction>,
        is_replacing: bool,
    ) -> Result<()> {
        let mut kernels = self.kernels.write().map_err(|_| poisoned())?;
        Arc::make_mut(&mut *kernels).register_function(name, &function, is_replacing)
    }

    /// Has the operator, as programs call it (`aten::add.out`), a kernel?
    pub fn has_kernel(&self, operator: &str) -> bool {
        self.kernels.read().is_ok_and(|k| k.get(operator).is_some())
    }

    /// Full names of all operators that have a kernel (`aten::add.out`), sorted.
    pub fn operator_names(&self) -> Vec<String> {
        self.kernels.read().map(|k| k.names()).unwrap_or_default()
    }

    /// The processor that kernels are prepared for.
    pub fn cpu(&self) -> &CpuProfile {
        &self.cpu
    }

    /// The rewrites that load applies.
    pub fn rules(&self) -> &RuleSwitches {
        &self.rules
    }

    /// Threads that a session's kernels may use at most.
    pub fn num_threads(&self) -> usize {
        self.pool().threads().max(1)
    }

    /// The pool that kernels run on.
    pub(crate) fn pool(&self) -> &pteron_cpu::pool::Pool {
        match &self.pool {
            PoolChoice::Shared => pteron_cpu::pool::Pool::shared(),
            PoolChoice::Own(pool) => pool,
        }
    }

    /// The usable backend of that name. The lock is not held while the backend works, so a backend may
    /// register others.
    pub(crate) fn backend(&self, name: &str) -> Result<Arc<dyn Backend>> {
        let backends = self.backends.read().map_err(|_| poisoned())?.clone();
        backends.get(name)
    }

    /// The kernels as they are now.
    pub(crate) fn kernels(&self) -> Result<Arc<KernelRegistry>> {
        Ok(self.kernels.read().map_err(|_| poisoned())?.clone())
    }
}

/// A misspelt rule would be left on silently.
fn check_rules(rules: &RuleSwitches) -> Result<()> {
    let Some(unknown) = rules.off().find(|name| !rule_names().any(|known| known == *name)) else {
        return Ok(());
    };
    Err(Error::input("there is no load-time rewrite of this name to switch off")
        .argument("disabled_rules")
        .expected(format!("names out of: {}", rule_names().collect::<Vec<_>>().join(", ")))
        .got(printable(unknown))
        .hint("check the spelling"))
}

#[cold]
fn poisoned() -> Error {
    Error::internal("a registry lock is poisoned by an earlier panic")
}
