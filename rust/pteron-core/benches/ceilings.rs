//! `cargo bench -p pteron-core --bench ceilings [-- ISA]`: what one thread of this machine can do at most, as a line of
//! JSON, for benchmarks of whole models. Here, and not beside the products that are held against it, because it needs
//! nothing of the engine: it is built in seconds.

#[path = "../../pteron-cpu/benches/gemm/bandwidth.rs"]
mod bandwidth;
#[path = "../../pteron-cpu/benches/gemm/ceiling.rs"]
mod ceiling;
#[path = "../../pteron-cpu/benches/gemm/clock.rs"]
#[allow(dead_code, reason = "the wall's clock is for products on two threads")]
mod clock;

use pteron_core::Isa;

/// The instruction sets that this processor has, of those with kernels of their own.
fn is_available(isa: Isa) -> bool {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => std::arch::is_x86_feature_detected!("avx512f"),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => {
            std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
        }
        isa => isa == Isa::Portable,
    }
}

/// Floating-point operations per second, and pairs of a size and bytes per second of reading so many bytes again and
/// again.
fn main() {
    let named = std::env::args().find_map(|argument| Isa::from_name(&argument));
    let best = [Isa::Avx512, Isa::Avx2].into_iter().find(|isa| is_available(*isa));
    let isa = named.or(best).unwrap_or(Isa::Portable);
    assert!(is_available(isa), "this processor has no {}", isa.name());
    let sizes = std::iter::successors(Some(256usize << 10), |size| size.checked_mul(4))
        .take_while(|size| *size <= bandwidth::BEYOND_CACHES);
    let read: Vec<String> =
        sizes.map(|size| format!("[{size}, {:.4e}]", bandwidth::bytes_per_second(isa, size))).collect();
    println!(
        r#"{{"isa": "{}", "flops": {:.4e}, "read": [{}]}}"#,
        isa.name(),
        ceiling::flops_per_second(isa),
        read.join(", ")
    );
}
