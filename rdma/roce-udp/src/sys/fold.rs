//! Folds memory that others may write at the same time into 128 bytes with the same CRC-32.
//!
//! A slice would promise the compiler that nobody writes, and a copy costs time. So the memory is read by assembler loads,
//! each byte once; a concurrent write changes the result and nothing else. The method is that of Gopal et al., "Fast CRC
//! Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009.

/// Bytes of a block.
pub(super) const BLOCK: usize = 128;

/// Folds `blocks` blocks at `at`. A CRC that starts with the register 0 and takes the result in ends with the register that
/// a CRC ends with that starts with `register` and takes the blocks in. `None` if there are no blocks, or if this processor
/// does not have the instructions.
///
/// # Safety
/// The blocks are readable.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn fold(register: u32, at: *const u8, blocks: usize) -> Option<[u8; BLOCK]> {
    if blocks == 0 || !can_fold() {
        return None;
    }
    // SAFETY: the processor has the instructions; the blocks are readable, by the caller's contract.
    Some(unsafe { x86::fold(register, at, blocks) })
}

#[cfg(target_arch = "x86_64")]
fn can_fold() -> bool {
    std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("vpclmulqdq")
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn fold(_: u32, _: *const u8, _: usize) -> Option<[u8; BLOCK]> {
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::{
        asm,
        x86_64::{
            __m256i, _mm_cvtsi32_si128, _mm256_clmulepi64_epi128, _mm256_set_epi64x, _mm256_xor_si256,
            _mm256_zextsi128_si256,
        },
    };

    use super::BLOCK;

    /// x^(1024 + 32) and x^(1024 - 32) modulo the polynomial, with their bits reversed, times x.
    const BY_A_BLOCK: (i64, i64) = (0x1_e88e_f372, 0x1_4a7f_e880);

    /// # Safety
    /// `blocks` is not 0, and so many blocks are readable at `at`.
    #[target_feature(enable = "avx2,vpclmulqdq")]
    pub(super) unsafe fn fold(register: u32, at: *const u8, blocks: usize) -> [u8; BLOCK] {
        let (low, high) = BY_A_BLOCK;
        let factors = _mm256_set_epi64x(high, low, high, low);
        // SAFETY: the first block is readable.
        let mut lanes = unsafe { load(at) };
        let register = _mm256_zextsi128_si256(_mm_cvtsi32_si128(register.cast_signed()));
        lanes[0] = _mm256_xor_si256(lanes[0], register);
        for block in 1..blocks {
            // SAFETY: one of the blocks that are readable.
            let next = unsafe { load(at.add(block * BLOCK)) };
            for (lane, next) in lanes.iter_mut().zip(next) {
                let low = _mm256_clmulepi64_epi128::<0x00>(*lane, factors);
                let high = _mm256_clmulepi64_epi128::<0x11>(*lane, factors);
                *lane = _mm256_xor_si256(_mm256_xor_si256(low, high), next);
            }
        }
        // SAFETY: both are 128 bytes, and every content is valid.
        unsafe { std::mem::transmute(lanes) }
    }

    /// Reads a block once, also while others write it.
    ///
    /// # Safety
    /// It is readable.
    #[target_feature(enable = "avx2")]
    unsafe fn load(at: *const u8) -> [__m256i; 4] {
        let (a, b, c, d);
        // SAFETY: reads the block and changes nothing.
        unsafe {
            asm!(
                "vmovdqu {a}, [{at}]",
                "vmovdqu {b}, [{at} + 32]",
                "vmovdqu {c}, [{at} + 64]",
                "vmovdqu {d}, [{at} + 96]",
                at = in(reg) at,
                a = out(ymm_reg) a,
                b = out(ymm_reg) b,
                c = out(ymm_reg) c,
                d = out(ymm_reg) d,
                options(readonly, nostack, preserves_flags),
            );
        }
        [a, b, c, d]
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_core::{RngCore, SeedableRng};

    use super::*;

    /// The register after `bytes`, by the definition of zlib's CRC-32.
    fn register_after(mut register: u32, bytes: &[u8]) -> u32 {
        for byte in bytes {
            register ^= u32::from(*byte);
            for _ in 0..8 {
                register = register >> 1 ^ if register & 1 == 1 { 0xedb8_8320 } else { 0 };
            }
        }
        register
    }

    #[test]
    fn a_fold_leaves_the_register_that_the_bytes_leave() {
        if !can_fold() {
            println!("skipped: this processor has no VPCLMULQDQ");
            return;
        }
        let mut random = ChaCha8Rng::seed_from_u64(19);
        let mut bytes = vec![0; 80 * BLOCK];
        random.fill_bytes(&mut bytes);
        for blocks in [1, 2, 3, 16, 17, 64, 79] {
            for offset in [0, 1, 15, 16, 33] {
                let (register, of) = (random.next_u32(), &bytes[offset..offset + blocks * BLOCK]);
                // SAFETY: the blocks are those of the slice.
                let folded = unsafe { fold(register, of.as_ptr(), blocks) }.expect("the processor can fold");
                assert_eq!(register_after(0, &folded), register_after(register, of), "{blocks} at {offset}");
            }
        }
    }
}
