//! Fuzzer bytes read as a program: operation codes and their operands. Reads past the end return zeros.

use roce::Entropy;

pub(crate) struct Program<'a>(&'a [u8]);

impl<'a> Program<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    /// Up to `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from(self.u32()) | u64::from(self.u32()) << 32
    }

    /// From 0 to `end`, exclusive, which is at most 65536.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let number: usize = if end <= 256 { self.byte().into() } else { self.u16().into() };
        number % end
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// True for one byte of `n`, and not for 0.
    pub(crate) fn rarely(&mut self, n: u8) -> bool {
        self.byte() % n == n - 1
    }

    pub(crate) fn pick<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[self.below(choice.len())]
    }

    /// Changes some bytes, perhaps the length.
    pub(crate) fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            if !bytes.is_empty() {
                let at = self.below(bytes.len().min(1 << 16));
                bytes[at] ^= self.byte();
            }
        }
        match self.byte() % 8 {
            1 => bytes.truncate(self.below(1 << 13)),
            2 => {
                let len = self.below(40);
                bytes.extend(self.bytes(len));
            }
            _ => {}
        }
    }
}

/// Random numbers of a simple kind (xorshift): keys and the like need to differ, no more.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u16) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ u64::from(seed))
    }
}

impl Entropy for Numbers {
    fn next_u32(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }
}
