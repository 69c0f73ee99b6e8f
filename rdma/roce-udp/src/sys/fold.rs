//! Folds memory into a block of 128 bytes that has the same CRC-32 as the memory. Other threads and other processes may
//! write the memory while it is folded.
//!
//! A slice would be wrong here, because the compiler may assume that a slice's memory does not change, and a copy would
//! cost time. Assembler instructions read the memory without a slice and without a copy, and load each byte exactly
//! once. If a thread or a process writes the memory during the fold, the result is wrong, but there is no other effect.
//! The memory is folded by the method of Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
//! Instruction", Intel, 2009.

/// The size of a block in bytes.
pub(super) const BLOCK: usize = 128;

/// Folds `blocks` blocks at `at` into one block. With the initial CRC register 0, the returned block has the same CRC
/// as the blocks at `at` with the initial CRC register `register`. Returns `None` if `blocks` is 0, or if this
/// processor lacks AVX2 or VPCLMULQDQ.
///
/// # Safety
/// `blocks` blocks must be readable at `at`.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn fold(register: u32, at: *const u8, blocks: usize) -> Option<[u8; BLOCK]> {
    if blocks == 0 || !can_fold() {
        return None;
    }
    // SAFETY: `can_fold` and `can_fold_wide` have checked that the processor has the instructions of the called
    // function. The caller guarantees that the blocks are readable.
    Some(unsafe {
        if blocks > 1 && can_fold_wide() {
            x86::fold_wide(register, at, blocks)
        } else {
            x86::fold(register, at, blocks)
        }
    })
}

#[cfg(target_arch = "x86_64")]
fn can_fold_wide() -> bool {
    std::is_x86_feature_detected!("avx512f")
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
            __m256i, __m512i, _mm_cvtsi32_si128, _mm256_clmulepi64_epi128, _mm256_set_epi64x,
            _mm256_xor_si256, _mm256_zextsi128_si256, _mm512_clmulepi64_epi128, _mm512_set4_epi64,
            _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
        },
    };

    use super::BLOCK;

    /// The factors by which a block is multiplied before the next block is added. In each 16 bytes of the block, the
    /// first 8 bytes are multiplied by x^(1024 + 32), and the other 8 bytes by x^(1024 - 32). Both factors are reduced
    /// modulo the CRC polynomial. The 32 bits of each factor are stored in reversed order and shifted left by one bit.
    const BY_A_BLOCK: (i64, i64) = (0x1_e88e_f372, 0x1_4a7f_e880);

    /// The factors by which a block is multiplied before the block after the next one is added: x^(2048 + 32) and
    /// x^(2048 - 32). These factors are used, reduced and stored like the factors of `BY_A_BLOCK`.
    const BY_TWO_BLOCKS: (i64, i64) = (0x1_1542_778a, 0x1_322d_1430);

    /// Folds like [`fold`], but with registers of 64 bytes, so that fewer instructions are needed for each byte.
    ///
    /// # Safety
    /// `blocks` must be at least 2, and `blocks` blocks must be readable at `at`. The processor must have the
    /// instructions AVX-512F and VPCLMULQDQ.
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    pub(super) unsafe fn fold_wide(register: u32, at: *const u8, blocks: usize) -> [u8; BLOCK] {
        let factors = |(low, high)| _mm512_set4_epi64(high, low, high, low);
        let (by_one, by_two) = (factors(BY_A_BLOCK), factors(BY_TWO_BLOCKS));
        // SAFETY: the caller guarantees that at least two blocks are readable at `at`.
        let (mut first, mut second) = unsafe { (load_wide(at), load_wide(at.add(BLOCK))) };
        let register = _mm512_zextsi128_si512(_mm_cvtsi32_si128(register.cast_signed()));
        first[0] = _mm512_xor_si512(first[0], register);
        for pair in 1..blocks / 2 {
            // SAFETY: the caller guarantees that `blocks` blocks are readable at `at`. The two blocks that are loaded
            // here are among these blocks, because `pair` is less than `blocks / 2`.
            let (next, behind) = unsafe {
                let at = at.add(pair * 2 * BLOCK);
                (load_wide(at), load_wide(at.add(BLOCK)))
            };
            first = [step(first[0], by_two, next[0]), step(first[1], by_two, next[1])];
            second = [step(second[0], by_two, behind[0]), step(second[1], by_two, behind[1])];
        }
        let mut lanes = [step(first[0], by_one, second[0]), step(first[1], by_one, second[1])];
        if blocks % 2 == 1 {
            // SAFETY: the caller guarantees that `blocks` blocks are readable at `at`. The last of them has the index
            // `blocks - 1`.
            let last = unsafe { load_wide(at.add((blocks - 1) * BLOCK)) };
            lanes = [step(lanes[0], by_one, last[0]), step(lanes[1], by_one, last[1])];
        }
        // SAFETY: both types are 128 bytes long, and every content is valid.
        unsafe { std::mem::transmute(lanes) }
    }

    /// Multiplies the polynomials in `lane` by the powers of x in `factors`, and adds `next`.
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn step(lane: __m512i, factors: __m512i, next: __m512i) -> __m512i {
        /// The truth table by which `_mm512_ternarylogic_epi64` computes the exclusive or of its three operands.
        const XOR: i32 = 0x96;
        let low = _mm512_clmulepi64_epi128::<0x00>(lane, factors);
        let high = _mm512_clmulepi64_epi128::<0x11>(lane, factors);
        _mm512_ternarylogic_epi64::<XOR>(low, high, next)
    }

    /// Reads the block at `at`, each byte exactly once. Another thread or another process may write the block while the
    /// function reads it.
    ///
    /// # Safety
    /// `at` must point to [`BLOCK`] readable bytes.
    #[target_feature(enable = "avx512f")]
    unsafe fn load_wide(at: *const u8) -> [__m512i; 2] {
        let (a, b);
        // SAFETY: the caller guarantees that the block is readable. The instructions read only the block, and change no
        // memory.
        unsafe {
            asm!(
                "vmovdqu64 {a}, [{at}]",
                "vmovdqu64 {b}, [{at} + 64]",
                at = in(reg) at,
                a = out(zmm_reg) a,
                b = out(zmm_reg) b,
                options(readonly, nostack, preserves_flags),
            );
        }
        [a, b]
    }

    /// # Safety
    /// `blocks` must be at least 1, and `blocks` blocks must be readable at `at`.
    #[target_feature(enable = "avx2,vpclmulqdq")]
    pub(super) unsafe fn fold(register: u32, at: *const u8, blocks: usize) -> [u8; BLOCK] {
        let (low, high) = BY_A_BLOCK;
        let factors = _mm256_set_epi64x(high, low, high, low);
        // SAFETY: the caller guarantees that at least one block is readable at `at`.
        let mut lanes = unsafe { load(at) };
        let register = _mm256_zextsi128_si256(_mm_cvtsi32_si128(register.cast_signed()));
        lanes[0] = _mm256_xor_si256(lanes[0], register);
        for block in 1..blocks {
            // SAFETY: the caller guarantees that `blocks` blocks are readable at `at`, and `block` is less than
            // `blocks`.
            let next = unsafe { load(at.add(block * BLOCK)) };
            for (lane, next) in lanes.iter_mut().zip(next) {
                let low = _mm256_clmulepi64_epi128::<0x00>(*lane, factors);
                let high = _mm256_clmulepi64_epi128::<0x11>(*lane, factors);
                *lane = _mm256_xor_si256(_mm256_xor_si256(low, high), next);
            }
        }
        // SAFETY: both types are 128 bytes long, and every content is valid.
        unsafe { std::mem::transmute(lanes) }
    }

    /// Reads the block at `at`, each byte exactly once. Another thread or another process may write the block while the
    /// function reads it.
    ///
    /// # Safety
    /// `at` must point to [`BLOCK`] readable bytes.
    #[target_feature(enable = "avx2")]
    unsafe fn load(at: *const u8) -> [__m256i; 4] {
        let (a, b, c, d);
        // SAFETY: the caller guarantees that the block is readable. The instructions read only the block, and change no
        // memory.
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

    /// Computes zlib's CRC-32 bit by bit. Returns the value of the CRC register after `bytes`; `register` is the value
    /// before `bytes`.
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
                // SAFETY: the slice `of` has `blocks` blocks, and `can_fold` has checked that the processor has AVX2
                // and VPCLMULQDQ.
                let narrow = unsafe { x86::fold(register, of.as_ptr(), blocks) };
                // SAFETY: the slice `of` has `blocks` blocks.
                let folded = unsafe { fold(register, of.as_ptr(), blocks) }.expect("the processor can fold");
                for folded in [narrow, folded] {
                    assert_eq!(
                        register_after(0, &folded),
                        register_after(register, of),
                        "{blocks} at {offset}"
                    );
                }
            }
        }
    }
}
