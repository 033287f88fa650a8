//! What a caller can set when a method is loaded.

use crate::Limits;
use pteron_core::BackendOption;
use std::collections::HashMap;

/// Options of one session; the default sets nothing.
#[derive(Debug, Clone, Default)]
pub struct MethodOptions {
    /// Most threads that kernels of this session use, at least 1; `None`: all of the runtime's pool.
    pub num_threads: Option<usize>,
    /// Options per backend id, handed to its `init` in order. Only backends that the method uses.
    pub backend_options: HashMap<String, Vec<(String, BackendOption)>>,
    /// Limits that replace the program's where they are set.
    pub limits: Limits,
    /// The seed of random operators; `None`: one that the operating system draws for this session.
    pub seed: Option<u64>,
}
