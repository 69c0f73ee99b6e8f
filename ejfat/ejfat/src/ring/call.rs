//! The call of function `subscribe`: its code, its parameters, and its refusal.

use super::{BLOCK, Geometry, Malformed, SubscribeRefusal, SubscribeResponse};

/// The function code of `subscribe`.
pub const CODE: u8 = 80;

named! {
    /// The parameters of a call of `subscribe`: first the inputs, then the outputs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Parameter {
        /// Input 0, a [`Subscription`](super::Subscription).
        Subscription = "subscription",
        /// Input 1, the worker's credits, which the worker goes on writing after the call.
        Credits = "credits",
        /// Output 0, a [`SubscribeResponse`].
        Response = "answer",
        /// Output 1, the [`Descriptor`](super::Descriptor)s, which the bridge writes after the call.
        Descriptors = "descriptors",
        /// Output 2, the ring, which the bridge writes after the call.
        Ring = "ring",
    }

    /// All parameters: first the inputs, then the outputs.
    ALL;
    /// Returns the parameter's name in the catalogue.
    name;
}

impl Parameter {
    /// Returns the number of the parameter among all parameters of the call: 0 or 1 for an input, and 2, 3 or 4 for an
    /// output.
    pub const fn number(self) -> usize {
        self as usize
    }

    /// Returns true if the worker sends the parameter, and false if the bridge writes the parameter.
    pub const fn is_input(self) -> bool {
        matches!(self, Self::Subscription | Self::Credits)
    }

    /// Returns the length of the parameter in bytes if the worker's ring has the geometry `geometry`.
    pub fn bytes(self, geometry: Geometry) -> usize {
        match self {
            Self::Subscription | Self::Response => BLOCK,
            Self::Credits => geometry.credits_bytes(),
            Self::Descriptors => geometry.descriptors_bytes(),
            Self::Ring => geometry.ring_bytes(),
        }
    }
}

/// Decodes the reason why a bridge refused a call of `subscribe`. Output 0 contains a [`SubscribeResponse`] that
/// refuses the subscription. `detail` is the first eight bytes of output 0, read as a little-endian integer.
///
/// # Errors
/// Fails with [`Malformed`] if `detail` is not the first eight bytes of a [`SubscribeResponse`] that refuses a
/// subscription.
pub fn refusal(detail: u64) -> Result<SubscribeRefusal, Malformed> {
    let mut block = [0; BLOCK];
    block[..8].copy_from_slice(&detail.to_le_bytes());
    SubscribeResponse::decode(&block)?.err().ok_or(Malformed::Field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_fits_into_the_detail_of_an_error() {
        for known in [SubscribeRefusal::Version, SubscribeRefusal::Full, SubscribeRefusal::Memory] {
            let block = SubscribeResponse::encode(&Err(known));
            let (detail, rest) = block.split_first_chunk().unwrap();
            assert_eq!(refusal(u64::from_le_bytes(*detail)), Ok(known));
            assert!(rest.iter().all(|byte| *byte == 0));
        }
        assert_eq!(refusal(0), Err(Malformed::Version(0)));
        assert_eq!(refusal(1), Err(Malformed::Field));
    }

    #[test]
    fn parameters_are_numbered_in_the_order_of_the_call() {
        assert!(Parameter::ALL.iter().enumerate().all(|(number, parameter)| parameter.number() == number));
    }
}
