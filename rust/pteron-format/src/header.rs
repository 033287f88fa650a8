//! The container's fixed bytes: file identifier and the optional extended header.

/// Identifier of the format generation, at byte 4 of every file.
pub(crate) const FILE_IDENTIFIER: &str = "ET12";
/// Where the identifier is.
pub(crate) const IDENTIFIER_OFFSET: usize = 4;
/// Where the extended header begins, if there is one.
pub(crate) const HEADER_OFFSET: usize = 8;
/// First bytes of the extended header.
pub(crate) const HEADER_MAGIC: [u8; 4] = *b"eh00";
/// Length of the extended header that we write: magic, length, program size, segment base, segment size.
pub(crate) const HEADER_LEN: usize = 32;
/// Shortest extended header that old writers made (without the segment size).
pub(crate) const HEADER_MIN_LEN: usize = 24;

/// Identifier of data files.
pub(crate) const DATA_IDENTIFIER: &str = "FT01";
/// First bytes of a data file's header.
pub(crate) const DATA_HEADER_MAGIC: [u8; 4] = *b"FH01";
/// Length of a data file's header: magic, length, table offset and size, segment base and size.
pub(crate) const DATA_HEADER_LEN: usize = 40;
/// Identifier of bundled programs.
pub(crate) const BUNDLE_IDENTIFIER: &str = "BP08";
/// Version of bundled programs that we write.
pub(crate) const BUNDLE_VERSION: u32 = 2;
