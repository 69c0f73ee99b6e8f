//! Writes and reads packed structs at ports, field by field.

use crate::{Model, Port};

/// A value for a port. It is filled from its lowest bit on; the last field of a packed struct of SystemVerilog is the lowest.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    bits: usize,
}

impl Writer {
    #[must_use]
    pub fn field(mut self, value: u128, bits: usize) -> Self {
        self.bytes.resize((self.bits + bits).div_ceil(8), 0);
        for bit in 0..bits {
            let at = self.bits + bit;
            self.bytes[at / 8] |= ((value >> bit) as u8 & 1) << (at % 8);
        }
        self.bits += bits;
        self
    }

    pub fn give(&self, model: &mut Model, port: Port) {
        model.write(port, &self.bytes);
    }
}

/// A value that was read from a port. Its fields are taken from the lowest bit on.
#[derive(Clone, Debug)]
pub struct Reader {
    bytes: Vec<u8>,
    at: usize,
}

impl Reader {
    pub fn new(model: &Model, port: Port) -> Self {
        let mut bytes = vec![0; model.len(port)];
        model.read(port, &mut bytes);
        Self { bytes, at: 0 }
    }

    /// The next field. It has at most 128 bits.
    pub fn field(&mut self, bits: usize) -> u128 {
        let bit = |at: usize| u128::from(self.bytes[at / 8] >> (at % 8) & 1);
        let value = (0..bits).fold(0, |value, i| value | bit(self.at + i) << i);
        self.at += bits;
        value
    }
}
