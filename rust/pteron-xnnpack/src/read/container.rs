//! The header of a payload: where the graph and the bytes of constants are.

use pteron_core::sizes::checked_range;
use pteron_core::{Error, Result};
use std::ops::Range;

/// Where the magic is, and what it is.
const MAGIC: (Range<usize>, &[u8]) = (4..8, b"XH00");
/// Bytes of the header, the four before the magic included.
const HEADER_LEN: usize = 30;

/// Where the parts of a payload are, within the payload.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Container {
    /// The graph.
    pub graph: Range<usize>,
    /// The bytes of constants.
    pub data: Range<usize>,
}

impl Container {
    /// Reads the header. A payload without one is a graph alone.
    pub(super) fn read(payload: &[u8]) -> Result<Self> {
        if payload.get(MAGIC.0) != Some(MAGIC.1) {
            return Ok(Container { graph: 0..payload.len(), data: 0..0 });
        }
        let length = u16::from_le_bytes(chunk(payload, 8)?);
        if usize::from(length) < HEADER_LEN {
            return Err(Error::program("the header of the XNNPACK payload is too short")
                .expected(format!("at least {HEADER_LEN} bytes"))
                .got(format!("{length} bytes")));
        }
        let graph = (u32::from_le_bytes(chunk(payload, 10)?), u32::from_le_bytes(chunk(payload, 14)?));
        let data = (u32::from_le_bytes(chunk(payload, 18)?), u64::from_le_bytes(chunk(payload, 22)?));
        let data = match data {
            // Weights are named data of the program, as exporters have it today; the offset then says nothing.
            (_, 0) => 0..0,
            (offset, size) => part(u64::from(offset), size, payload, "the bytes of constants")?,
        };
        Ok(Container { graph: part(u64::from(graph.0), u64::from(graph.1), payload, "the graph")?, data })
    }
}

fn part(offset: u64, size: u64, payload: &[u8], what: &str) -> Result<Range<usize>> {
    checked_range(offset, size, payload.len()).map_err(|e| {
        e.with_message(format!("the header of the XNNPACK payload: {what} lie outside of the payload"))
    })
}

fn chunk<const N: usize>(payload: &[u8], at: usize) -> Result<[u8; N]> {
    let found = payload.get(at..).and_then(|rest| rest.first_chunk::<N>());
    found.copied().ok_or_else(|| {
        Error::program("the XNNPACK payload ends within its header")
            .expected(format!("{HEADER_LEN} bytes"))
            .got(format!("{} bytes", payload.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(graph: (u32, u32), data: (u32, u64), total: usize) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend(b"XH00");
        bytes.extend(30u16.to_le_bytes());
        bytes.extend(graph.0.to_le_bytes());
        bytes.extend(graph.1.to_le_bytes());
        bytes.extend(data.0.to_le_bytes());
        bytes.extend(data.1.to_le_bytes());
        bytes.resize(total.max(30), 0);
        bytes
    }

    #[test]
    fn the_header_says_where_the_parts_are() {
        let found = Container::read(&header((32, 16), (48, 8), 56)).unwrap();
        assert_eq!(found, Container { graph: 32..48, data: 48..56 });
        // Without constants their offset says nothing.
        assert_eq!(Container::read(&header((32, 16), (99, 0), 48)).unwrap().data, 0..0);
        assert_eq!(Container::read(b"no header at all").unwrap().graph, 0..16);
    }

    #[test]
    fn parts_lie_within_the_payload() {
        for (graph, data) in
            [((32, 17), (0, 0)), ((u32::MAX, u32::MAX), (0, 0)), ((32, 16), (48, 1)), ((0, 0), (1, u64::MAX))]
        {
            let error = Container::read(&header(graph, data, 48)).unwrap_err().to_string();
            assert!(
                error.contains("lie outside of the payload; expected a range within 48 bytes"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_cut_or_short_header_is_refused() {
        let whole = header((32, 16), (48, 0), 48);
        for end in 8..30 {
            assert!(
                Container::read(&whole[..end]).unwrap_err().to_string().contains("ends within its header")
            );
        }
        let mut short = whole;
        short[8] = 29;
        let error = Container::read(&short).unwrap_err().to_string();
        assert_eq!(
            error,
            "the header of the XNNPACK payload is too short; expected at least 30 bytes; got 29 bytes"
        );
    }
}
