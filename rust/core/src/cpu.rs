//! The vector instructions of this CPU.

/// Returns the widest instructions that signing uses on this CPU: `AVX-512`, `AVX2+SHA`, `AVX2`, `SHA`, `SSE2`, or
/// `portable` on other architectures.
#[must_use]
#[cfg(target_arch = "x86_64")]
pub fn simd_level() -> &'static str {
    use crate::simd::Lanes;
    let lanes = Lanes::detect();
    let has_sha = is_x86_feature_detected!("sha");
    match lanes {
        Some(lanes) if lanes.are_sixteen() => "AVX-512",
        Some(_) if has_sha => "AVX2+SHA",
        Some(_) => "AVX2",
        None if has_sha => "SHA",
        None => "SSE2",
    }
}

/// Returns `portable`: the vector code is for x86-64.
#[must_use]
#[cfg(not(target_arch = "x86_64"))]
pub fn simd_level() -> &'static str {
    "portable"
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_what_the_cpu_has() {
        let level = simd_level();
        assert_eq!(level == "AVX-512", is_x86_feature_detected!("avx512bw"));
        assert_eq!(level.starts_with("AVX"), is_x86_feature_detected!("avx2"));
    }
}
