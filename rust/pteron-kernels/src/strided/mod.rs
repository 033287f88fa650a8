//! The layer of strided memory below all kernels and the runtime: walking ([`loops`]), which elements a view shows
//! ([`views`]), and copying between layouts ([`copy`], with its kernels [`view_copy`] and [`mapped_copy`]).

#[allow(unsafe_code, reason = "copies of elements by address, each checked before")]
pub mod copy;
pub mod loops;
#[allow(unsafe_code, reason = "copies of elements by address, each checked before")]
pub mod mapped_copy;
#[allow(unsafe_code, reason = "copies of elements by address, each checked before")]
pub mod view_copy;
pub mod views;
