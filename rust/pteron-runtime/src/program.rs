//! A loaded program: storage, checked methods, packed weights.

use crate::{IoSpec, Limits, Method, MethodOptions, Outputs, Runtime, StableBytes};
use pteron_core::Result;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a program comes from.
pub enum ProgramSource {
    /// A file. Its weights are mapped (private, read-only), or read into owned memory.
    File {
        /// Path of the `.pte` file.
        path: PathBuf,
        /// Map the weights?
        is_mapped: bool,
    },
    /// Bytes that somebody keeps unchanged while the program lives (Python `bytes`, a `Vec<u8>`).
    /// Borrowed when 16-byte aligned, else copied.
    Bytes(Arc<dyn StableBytes>),
}

/// A loaded program. Immutable, shared by all its methods and sessions.
pub struct Program {}

impl Program {
    /// Loads a program and checks all of it.
    pub fn load(_runtime: &Arc<Runtime>, _source: ProgramSource, _limits: Limits) -> Result<Arc<Program>> {
        todo!()
    }
    /// Names of the methods, in file order.
    pub fn methods(&self) -> Vec<&str> {
        todo!()
    }
    /// What a method takes.
    pub fn inputs(&self, _method: &str) -> Result<&[IoSpec]> {
        todo!()
    }
    /// What a method gives.
    pub fn outputs(&self, _method: &str) -> Result<&[IoSpec]> {
        todo!()
    }
    /// Text form of the file.
    pub fn listing(&self) -> String {
        todo!()
    }
    /// Text form of what runs: one line per step of a method.
    pub fn plan_listing(&self, _method: &str) -> Result<String> {
        todo!()
    }
    /// Backend ids that a method's delegates name, in order, each once.
    pub fn backends(&self, _method: &str) -> Result<Vec<&str>> {
        todo!()
    }
    /// Full names of the operators that a method uses.
    pub fn operators(&self, _method: &str) -> Result<Vec<&str>> {
        todo!()
    }
    /// Keys of the named data, sorted.
    pub fn named_data_keys(&self) -> Vec<&str> {
        todo!()
    }
    /// One named blob.
    pub fn named_data(&self, _key: &str) -> Option<&[u8]> {
        todo!()
    }
    /// The stored input and output tree of a method (JSON as in the file; may be empty).
    pub fn trees(&self, _method: &str) -> Result<(&str, &str)> {
        todo!()
    }
    /// Number of packed weights and their bytes.
    pub fn pack_stats(&self) -> (usize, usize) {
        todo!()
    }
    /// A new session of a method.
    pub fn load_method(self: &Arc<Self>, _name: &str, _options: MethodOptions) -> Result<Method> {
        todo!()
    }
    /// Runs a stateless method in a session from a pool; any number of threads.
    pub fn run(
        self: &Arc<Self>,
        _name: &str,
        _inputs: &[crate::InputValue<'_>],
        _options: crate::ExecuteOptions<'_>,
    ) -> Result<Outputs> {
        todo!()
    }
}
