//! Limits on what a program may use.

use crate::load::available_memory::available_memory;
use pteron_core::error::printable;
use pteron_core::{Error, MAX_RANK, Result};
use pteron_format::{MethodDef, ProgramFile};
use std::cell::Cell;
use std::time::Duration;

/// Most programs inside each other when the caller says nothing.
const DEFAULT_NESTING: usize = 8;
/// Most values of a method when the caller says nothing: a hundred times what large models have.
const DEFAULT_VALUES: usize = 1 << 20;

/// Limits for loading and running. `None` means the default. Reaching one is an error of kind
/// [`pteron_core::ErrorKind::LimitExceeded`] (of kind `DeadlineExceeded` for `time`) that names the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Most bytes of planned memory of one session, sessions of programs inside it included, and of the scratch
    /// of its kernels where that is more than 16 MiB. Default: half of the machine's memory, or of the least limit of the control groups that hold the process.
    pub arena_bytes: Option<usize>,
    /// Most instructions that one call may execute, those of programs inside included. Default: no limit.
    pub instructions: Option<u64>,
    /// Longest time that one call may take. Default: no limit.
    pub time: Option<Duration>,
    /// Most programs inside each other: a delegate may run a program whose delegate runs a program. 1 allows
    /// none inside. Default: 8. The limit of the outermost program holds.
    pub nesting: Option<usize>,
    /// Most values of a method, and most instructions in its file, with those that a delegate becomes at load.
    /// Default: 1,048,576.
    pub values: Option<usize>,
    /// Largest rank of a tensor. Default, and never more: 16.
    pub rank: Option<usize>,
}

impl Limits {
    /// `self` where it is set, `other` elsewhere.
    #[must_use]
    pub fn or(self, other: Limits) -> Limits {
        Limits {
            arena_bytes: self.arena_bytes.or(other.arena_bytes),
            instructions: self.instructions.or(other.instructions),
            time: self.time.or(other.time),
            nesting: self.nesting.or(other.nesting),
            values: self.values.or(other.values),
            rank: self.rank.or(other.rank),
        }
    }

    /// The arena limit in bytes.
    pub(crate) fn arena_limit(&self) -> usize {
        self.arena_bytes.unwrap_or_else(default_arena_limit)
    }

    /// Checks what load can see of a file.
    ///
    /// Errors: `LimitExceeded` for too many values or instructions, or too large a rank.
    pub(crate) fn check_file(&self, file: &ProgramFile) -> Result<()> {
        file.methods.iter().try_for_each(|m| self.check_method(m).map_err(|e| e.method(m.name.as_str())))
    }

    /// As [`Limits::check_file`] for one method.
    pub(crate) fn check_method(&self, method: &MethodDef) -> Result<()> {
        self.check_counts(method.values.len(), method.instructions.len())?;
        let most = self.rank.unwrap_or(MAX_RANK).min(MAX_RANK);
        let tensors = || method.tensors().map(|(_, tensor)| tensor);
        match tensors().map(|t| t.spec.shape.len()).max() {
            Some(rank) if rank > most => {
                let name = tensors().filter(|t| t.spec.shape.len() > most).find_map(|t| t.name.as_deref());
                Err(reached("rank", "a tensor has too many dimensions")
                    .expected(format!("rank at most {most}"))
                    .got(match name {
                        Some(name) => format!("rank {rank} (tensor '{}')", printable(name)),
                        None => format!("rank {rank}"),
                    }))
            }
            _ => Ok(()),
        }
    }

    /// Checks the numbers of values and instructions of a method, those of expanded delegates included.
    pub(crate) fn check_counts(&self, values: usize, instructions: usize) -> Result<()> {
        let most = self.values.unwrap_or(DEFAULT_VALUES);
        for (what, count) in [("values", values), ("instructions", instructions)] {
            if count > most {
                return Err(reached("values", &format!("the method has too many {what}"))
                    .expected(format!("at most {most} {what}"))
                    .got(count.to_string()));
            }
        }
        Ok(())
    }

    /// No looser than those of the program that this thread is in, if it is in one: a file cannot escape the limits
    /// of its caller through a delegate that runs a program.
    #[must_use]
    pub(crate) fn inside(self) -> Limits {
        let Some(outer) = ENCLOSING.get().map(|e| e.limits) else { return self };
        fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            }
        }
        Limits {
            arena_bytes: least(self.arena_bytes, outer.arena_bytes),
            instructions: least(self.instructions, outer.instructions),
            time: least(self.time, outer.time),
            nesting: least(self.nesting, outer.nesting),
            values: least(self.values, outer.values),
            rank: least(self.rank, outer.rank),
        }
    }

    /// Enters a program; an error when that is one inside the other too often. Programs inside of this one
    /// count, on this thread, while the guard lives.
    pub(crate) fn enter(&self) -> Result<Nested> {
        let outer = ENCLOSING.get();
        let depth = outer.map_or(1, |e| e.depth.saturating_add(1));
        let most = outer.map_or(self.nesting.unwrap_or(DEFAULT_NESTING), |e| e.most);
        if depth > most {
            return Err(reached("nesting", "too many programs run inside each other")
                .expected(format!("at most {most}"))
                .got(format!("{depth}, the outermost one included")));
        }
        let limit = self.arena_limit();
        let arena_left = outer.map_or(limit, |e| e.arena_left.min(limit));
        ENCLOSING.set(Some(Enclosing { depth, most, limits: *self, arena_left }));
        Ok(Nested { outer, arena_left })
    }
}

/// The programs that a thread is in while it makes a session.
#[derive(Clone, Copy)]
struct Enclosing {
    depth: usize,
    /// Most of them.
    most: usize,
    /// Of the innermost.
    limits: Limits,
    /// Bytes of planned memory that may still be taken.
    arena_left: usize,
}

thread_local! {
    static ENCLOSING: Cell<Option<Enclosing>> = const { Cell::new(None) };
}

/// Takes planned memory from what the programs that this thread is in may have; an error, with what is left, where
/// that is less.
pub(crate) fn take_arena(nbytes: usize) -> std::result::Result<(), usize> {
    let Some(enclosing) = ENCLOSING.get() else { return Ok(()) };
    let arena_left = enclosing.arena_left.checked_sub(nbytes).ok_or(enclosing.arena_left)?;
    ENCLOSING.set(Some(Enclosing { arena_left, ..enclosing }));
    Ok(())
}

/// See [`Limits::enter`].
pub(crate) struct Nested {
    outer: Option<Enclosing>,
    // At the start.
    arena_left: usize,
}

impl Drop for Nested {
    fn drop(&mut self) {
        let taken = self.arena_left.saturating_sub(ENCLOSING.get().map_or(0, |e| e.arena_left));
        ENCLOSING.set(self.outer.map(|e| Enclosing { arena_left: e.arena_left.saturating_sub(taken), ..e }));
    }
}

/// The error for a limit called `name`, which says how to raise it.
#[cold]
pub(crate) fn reached(name: &str, message: &str) -> Error {
    Error::limit(message)
        .argument(format!("limits.{name}"))
        .hint(format!("raise the limit if the program is trusted: Limits({name}=...)"))
}

fn default_arena_limit() -> usize {
    use std::sync::OnceLock;
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        // A machine that tells nothing (not Linux): 8 GiB is assumed.
        available_memory().unwrap_or(8 << 30) / 2
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_half_of_something_real() {
        let limit = Limits::default().arena_limit();
        assert!(limit > 64 << 20, "{limit}");
        assert_eq!(Limits { arena_bytes: Some(5), ..Limits::default() }.arena_limit(), 5);
    }

    #[test]
    fn set_fields_win() {
        let outer = Limits { arena_bytes: Some(1), instructions: Some(2), ..Limits::default() };
        let inner = Limits { instructions: Some(3), rank: Some(4), ..Limits::default() };
        let both = Limits { arena_bytes: Some(1), instructions: Some(3), rank: Some(4), ..Limits::default() };
        assert_eq!(inner.or(outer), both);
    }

    #[test]
    fn the_outermost_program_sets_the_nesting() {
        let outer = Limits { nesting: Some(2), ..Limits::default() };
        let first = outer.enter().unwrap();
        let second = Limits { nesting: Some(100), ..Limits::default() }.enter().unwrap();
        let text = Limits::default().enter().err().unwrap().to_string();
        assert!(text.contains("limits.nesting") && text.contains("at most 2; got 3"), "{text}");
        drop(second);
        drop(Limits::default().enter().unwrap());
        drop(first);
        assert!(ENCLOSING.get().is_none());
    }

    #[test]
    fn programs_inside_share_the_limits_of_the_outermost() {
        let outer = Limits { arena_bytes: Some(100), rank: Some(3), ..Limits::default() };
        assert_eq!(outer.inside(), outer);
        let first = outer.enter().unwrap();
        take_arena(40).unwrap();
        let inner = Limits { arena_bytes: Some(1000), rank: Some(2), ..Limits::default() }.inside();
        assert_eq!((inner.arena_bytes, inner.rank, inner.instructions), (Some(100), Some(2), None));
        for left in [60, 10] {
            let second = inner.enter().unwrap();
            assert_eq!(take_arena(left + 1), Err(left));
            take_arena(left.min(50)).unwrap();
            drop(second);
        }
        assert_eq!(take_arena(1), Err(0));
        drop(first);
        assert!(take_arena(usize::MAX).is_ok() && ENCLOSING.get().is_none());
    }
}
