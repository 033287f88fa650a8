//! How a program is laid out.

use pteron_core::{Error, Result};

/// Layout choices of the writer. Alignments are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteOptions {
    /// Delegate blobs become segments of their own, which a reader can map and drop one by one;
    /// otherwise they stay inside the program table.
    pub extract_delegate_segments: bool,
    /// Every segment starts at a multiple of this.
    pub segment_alignment: u32,
    /// Every constant starts at a multiple of this.
    pub constant_tensor_alignment: u32,
    /// Every delegate blob inside the program table starts at a multiple of this.
    pub delegate_alignment: u32,
    /// Read the result back and check it. Off only to make illegal files on purpose.
    pub verify: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions {
            extract_delegate_segments: true,
            segment_alignment: 128,
            constant_tensor_alignment: 16,
            delegate_alignment: 16,
            verify: true,
        }
    }
}

/// Largest alignment that can be asked for; a page of any machine in use is smaller.
const MAX_ALIGNMENT: u32 = 1 << 20;

impl WriteOptions {
    /// Refuses alignments that no file can keep.
    pub(super) fn check(&self) -> Result<()> {
        check_alignment("segment_alignment", self.segment_alignment)?;
        check_alignment("constant_tensor_alignment", self.constant_tensor_alignment)?;
        check_alignment("delegate_alignment", self.delegate_alignment)?;
        if !self.constant_tensor_alignment.is_power_of_two() || !self.delegate_alignment.is_power_of_two() {
            return Err(Error::program("alignments of constants and delegates must be powers of two")
                .got(format!("{} and {}", self.constant_tensor_alignment, self.delegate_alignment)));
        }
        Ok(())
    }
}

/// Refuses an alignment of zero or beyond the limit.
pub(super) fn check_alignment(what: &str, alignment: u32) -> Result<()> {
    if alignment == 0 || alignment > MAX_ALIGNMENT {
        return Err(Error::program(format!("{what} is out of range"))
            .expected(format!("1 to {MAX_ALIGNMENT}"))
            .got(alignment.to_string()));
    }
    Ok(())
}
