//! Reads the environment variable `NAA_SPEC`, which lists the accelerators that a batch job may use.
//!
//! ```text
//! <address>:<port>:<function code>:<inputs>[,...]
//! ```
//!
//! The format of `NAA_SPEC` is the same as in the middleware of NAAICE's C library. If an entry of `NAA_SPEC` has an
//! empty port, the accelerator's port is 12345. The field `inputs` of an entry is the number of the function's input
//! parameters. Unlike NAAICE's C library, this module accepts IPv6 addresses, which are in brackets. If an entry of
//! `NAA_SPEC` is not valid, this module fails to read `NAA_SPEC`, whereas NAAICE's C library skips the entry. After a
//! session has ended, this module can use the session's accelerator for another session, whereas NAAICE's C library
//! cannot.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroU16,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use mrsp::{FunctionCode, RegionFlags};

use crate::{Device, Error, Param, Session, SessionConfig};

/// The name of the environment variable that lists the accelerators.
pub const SPEC_VARIABLE: &str = "NAA_SPEC";
/// The default port of accelerators, which is the same as in NAAICE's C library.
pub const DEFAULT_PORT: u16 = 12345;

/// An accelerator for one function, which serves one session at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecEntry {
    /// The address of the accelerator.
    pub peer: SocketAddr,
    /// The function for which the accelerator may be used.
    pub function: FunctionCode,
    /// The number of input parameters of the function.
    pub inputs: usize,
}

/// The reason why `NAA_SPEC` cannot be used: `NAA_SPEC` is not valid, or has no free accelerator for the function. The
/// entries of `NAA_SPEC` are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// `NAA_SPEC` is not set, or has only white space.
    #[error("{SPEC_VARIABLE} is not set; set it to <address>:<port>:<function code>:<inputs>[,...]")]
    Unset,
    /// `NAA_SPEC` is not UTF-8.
    #[error("{SPEC_VARIABLE} is not UTF-8")]
    NotUnicode,
    /// An entry of `NAA_SPEC` does not have four fields.
    #[error(
        "{SPEC_VARIABLE} entry {entry} ({text:?}) has {fields} fields instead of four: \
         <address>:<port>:<function code>:<inputs>"
    )]
    Fields {
        /// The number of the entry, counted from 1.
        entry: usize,
        /// The text of the entry.
        text: String,
        /// The number of fields that the entry has.
        fields: usize,
    },
    /// A field of an entry of `NAA_SPEC` has a value that is not valid.
    #[error("{SPEC_VARIABLE} entry {entry} ({text:?}): {field} cannot be {value:?}; {expected}")]
    Field {
        /// The number of the entry, counted from 1.
        entry: usize,
        /// The text of the entry.
        text: String,
        /// The name of the field, for the text of the error.
        field: &'static str,
        /// The value that the entry has in this field, and that is not valid.
        value: String,
        /// A description of the valid values, for the text of the error.
        expected: &'static str,
    },
    /// `NAA_SPEC` lists no accelerator for this function with this number of inputs.
    #[error("{SPEC_VARIABLE} has no accelerator for function {function} with {inputs} inputs")]
    NoEntry {
        /// The function that the program wants to call.
        function: FunctionCode,
        /// The number of inputs that the program wants to pass to the function.
        inputs: usize,
    },
    /// This process already uses all accelerators that `NAA_SPEC` lists for this function with this number of inputs.
    #[error(
        "all {entries} accelerators of {SPEC_VARIABLE} for function {function} with {inputs} inputs are in use \
         by this process; finalize a session, or add an entry"
    )]
    InUse {
        /// The function that the program wants to call.
        function: FunctionCode,
        /// The number of inputs that the program wants to pass to the function.
        inputs: usize,
        /// The number of accelerators that `NAA_SPEC` lists for this function with this number of inputs.
        entries: usize,
    },
}

/// The accelerators that `NAA_SPEC` lists. Clones of a `Spec` share the record of which accelerators are in use.
#[derive(Clone, Debug)]
pub struct Spec(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    entries: Vec<SpecEntry>,
    in_use: Mutex<Vec<bool>>,
}

/// The exclusive use of an accelerator that a [`Spec`] lists. Until the claim is dropped, the `Spec` and its clones do
/// not give the accelerator to another session.
pub struct Claim {
    spec: Spec,
    at: usize,
}

impl Spec {
    /// Reads `NAA_SPEC`. A program should call this function once and share clones of the result, because two separate
    /// results could claim the same accelerator.
    ///
    /// # Errors
    /// Fails if `NAA_SPEC` is not set or is empty, or if an entry of `NAA_SPEC` is not valid.
    pub fn from_env() -> Result<Self, SpecError> {
        match std::env::var(SPEC_VARIABLE) {
            Ok(text) if text.trim().is_empty() => Err(SpecError::Unset),
            Ok(text) => text.parse(),
            Err(std::env::VarError::NotPresent) => Err(SpecError::Unset),
            Err(std::env::VarError::NotUnicode(_)) => Err(SpecError::NotUnicode),
        }
    }

    /// Returns the entries of `NAA_SPEC` in order.
    pub fn entries(&self) -> &[SpecEntry] {
        &self.0.entries
    }

    /// Connects to a free accelerator whose entry in `NAA_SPEC` names `function` and has as many inputs as `params`.
    /// The accelerator is free again when the session ends.
    ///
    /// # Errors
    /// Fails with [`Error::Spec`] if no accelerator for the function is free, and with the same errors as
    /// [`Device::towards`] and [`Session::connect`].
    pub fn connect(
        &self,
        function: FunctionCode,
        params: &[Param<'_>],
        config: &SessionConfig,
    ) -> Result<Session, Error> {
        let is_input =
            |param: &&Param<'_>| param.flags.intersects(RegionFlags::INPUT | RegionFlags::SINGLE_SEND);
        let claim = self.claim(function, params.iter().filter(is_input).count())?;
        let peer = claim.entry().peer;
        let device = Device::towards(peer)?;
        Ok(Session::connect(&device, peer, params, config)?.holding(claim))
    }

    /// Claims a free accelerator whose entry in `NAA_SPEC` names `function` and has `inputs` inputs. The accelerator is
    /// not free again until the claim is dropped.
    ///
    /// # Errors
    /// Fails if no such accelerator is free.
    pub fn claim(&self, function: FunctionCode, inputs: usize) -> Result<Claim, SpecError> {
        let mut in_use = self.0.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = 0;
        for (at, entry) in self.0.entries.iter().enumerate() {
            if entry.function == function && entry.inputs == inputs {
                entries += 1;
                if !std::mem::replace(&mut in_use[at], true) {
                    return Ok(Claim { spec: self.clone(), at });
                }
            }
        }
        Err(match entries {
            0 => SpecError::NoEntry { function, inputs },
            _ => SpecError::InUse { function, inputs, entries },
        })
    }
}

impl Claim {
    /// Returns the claimed entry of `NAA_SPEC`.
    pub fn entry(&self) -> &SpecEntry {
        &self.spec.0.entries[self.at]
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(self.entry()).finish()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.spec.0.in_use.lock().unwrap_or_else(PoisonError::into_inner)[self.at] = false;
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let entries =
            (1..).zip(text.split(',')).map(|(number, text)| Reading { entry: number, text }.entry());
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        let in_use = Mutex::new(vec![false; entries.len()]);
        Ok(Self(Arc::new(Shared { entries, in_use })))
    }
}

/// An entry of `NAA_SPEC` that is being read.
#[derive(Clone, Copy)]
struct Reading<'a> {
    entry: usize,
    text: &'a str,
}

impl<'a> Reading<'a> {
    fn entry(self) -> Result<SpecEntry, SpecError> {
        const PORT: &str = "it is a number from 1 to 65535, or empty for 12345";
        const CODE: &str = "it is a number from 1 to 127";
        let (address, rest) = self.address()?;
        let fields: Vec<_> = rest.split(':').map(str::trim).collect();
        let [port, function, inputs] = fields[..] else { return Err(self.wrong_fields(1 + fields.len())) };
        let peer = match port {
            "" => SocketAddr::new(address, DEFAULT_PORT),
            port => SocketAddr::new(address, self.parse::<NonZeroU16>("the port", port, PORT)?.get()),
        };
        let code = FunctionCode::new(self.parse("the function code", function, CODE)?);
        let function = code.ok_or_else(|| self.wrong("the function code", function, CODE))?;
        let inputs: u8 = self.parse("the number of inputs", inputs, "it is a number from 0 to 255")?;
        Ok(SpecEntry { peer, function, inputs: inputs.into() })
    }

    /// Splits the entry into its address and the text after the colon that follows the address.
    fn address(self) -> Result<(IpAddr, &'a str), SpecError> {
        const ADDRESS: &str = "it is an IPv4 address, or an IPv6 address in brackets";
        let text = self.text.trim();
        if let Some((address, rest)) = text.strip_prefix('[').and_then(|text| text.split_once("]:")) {
            let address = self.parse::<Ipv6Addr>("the address", address, ADDRESS)?;
            return Ok((address.into(), rest));
        }
        let (address, rest) = text.split_once(':').ok_or_else(|| self.wrong_fields(1))?;
        let address = self.parse::<Ipv4Addr>("the address", address.trim(), ADDRESS)?;
        Ok((address.into(), rest))
    }

    fn parse<T: FromStr>(
        self,
        field: &'static str,
        value: &str,
        expected: &'static str,
    ) -> Result<T, SpecError> {
        value.parse().map_err(|_| self.wrong(field, value, expected))
    }

    fn wrong(self, field: &'static str, value: &str, expected: &'static str) -> SpecError {
        let (entry, text) = (self.entry, self.text.to_owned());
        SpecError::Field { entry, text, field, value: value.to_owned(), expected }
    }

    fn wrong_fields(self, fields: usize) -> SpecError {
        SpecError::Fields { entry: self.entry, text: self.text.to_owned(), fields }
    }
}
