//! Nothing but tests: `tests/hand_off.rs` compiles the pool's own `team.rs` and `region.rs` over loom's threads and
//! atomics. A crate of its own, so that the engine need not be built for it.
#![deny(unsafe_code)]
