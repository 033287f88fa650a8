//! Limits on what a program may use.

/// Limits for loading and running. `None` means the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Most bytes of planned memory of one session. Default: half of the smaller of the machine's
    /// memory and the control group's limit.
    pub arena_bytes: Option<usize>,
    /// Most instructions that one call may execute. Default: no limit.
    pub instructions: Option<u64>,
}

impl Limits {
    /// `self` where it is set, `other` elsewhere.
    #[must_use]
    pub fn or(self, other: Limits) -> Limits {
        Limits {
            arena_bytes: self.arena_bytes.or(other.arena_bytes),
            instructions: self.instructions.or(other.instructions),
        }
    }

    /// The arena limit in bytes.
    pub(crate) fn arena_limit(&self) -> usize {
        self.arena_bytes.unwrap_or_else(default_arena_limit)
    }
}

fn default_arena_limit() -> usize {
    use std::sync::OnceLock;
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let ram = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
            let kib: usize = text
                .lines()
                .find_map(|l| l.strip_prefix("MemTotal:"))?
                .split_whitespace()
                .next()?
                .parse()
                .ok()?;
            kib.checked_mul(1024)
        });
        let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
            .iter()
            .find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<usize>().ok());
        let known = match (ram, group) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) | (None, Some(a)) => a,
            // A machine that tells neither (not Linux): 8 GiB is assumed.
            (None, None) => 8 << 30,
        };
        known / 2
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_half_of_something_real() {
        let limit = Limits::default().arena_limit();
        assert!(limit > 64 << 20, "{limit}");
        assert_eq!(Limits { arena_bytes: Some(5), instructions: None }.arena_limit(), 5);
    }

    #[test]
    fn set_fields_win() {
        let outer = Limits { arena_bytes: Some(1), instructions: Some(2) };
        let inner = Limits { arena_bytes: None, instructions: Some(3) };
        assert_eq!(inner.or(outer), Limits { arena_bytes: Some(1), instructions: Some(3) });
    }
}
