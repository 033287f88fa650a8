//! Where memory is, as program files state it.

use std::fmt;

/// A device with memory of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub enum Device {
    /// The CPU: the memory that kernels read and write.
    #[default]
    Cpu,
    /// The GPU of this index, from 0.
    Cuda(u8),
}

impl Device {
    /// Is its memory the host's?
    pub const fn is_cpu(self) -> bool {
        matches!(self, Device::Cpu)
    }
}

impl fmt::Display for Device {
    /// As PyTorch spells it: `cpu`, `cuda:0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_spelled_as_in_pytorch() {
        assert_eq!(
            [Device::Cpu, Device::Cuda(0), Device::Cuda(12)].map(|d| d.to_string()),
            ["cpu", "cuda:0", "cuda:12"]
        );
        assert!(Device::default().is_cpu() && !Device::Cuda(0).is_cpu());
    }
}
