//! What a folder states, how its program is called, and the cache of one text.

pub(crate) mod cache;
pub(crate) mod cache_pool;
pub(crate) mod folder;
pub(crate) mod json_file;
pub(crate) mod signature;
