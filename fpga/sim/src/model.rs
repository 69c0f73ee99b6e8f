//! The simulation of a module, which is a library that is loaded.
#![allow(unsafe_code, reason = "loads a library and calls it")]

use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    fmt,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process,
    ptr::NonNull,
    sync::atomic::{AtomicUsize, Ordering},
};

use libloading::Library;

use crate::purpose::Purpose;

/// Why a library is no model.
#[derive(Debug, thiserror::Error)]
#[error("{path} is no model of a module; delete it, so that it is made again")]
pub struct OpenError {
    path: PathBuf,
    source: libloading::Error,
}

/// A port of a [`Model`]. It must not be used with another model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port(usize);

/// The variable with a port's value, whose lowest byte is first. Bits beyond the port's width are 0.
struct PortVariable {
    name: String,
    at: NonNull<u8>,
    bytes: usize,
}

type Raw = *mut c_void;

/// A module that is simulated. Outputs and registers change only in [`Model::eval`].
pub struct Model {
    raw: NonNull<c_void>,
    ports: Vec<PortVariable>,
    /// The index of each port in `ports`.
    names: HashMap<String, usize>,
    eval: unsafe extern "C" fn(Raw),
    free: unsafe extern "C" fn(Raw),
    recorder: Option<Recorder>,
    library: Library,
}

/// A file that a model writes while it runs or when it ends.
enum Recorder {
    /// A waveform from a cycle on.
    Waveform { dump: unsafe extern "C" fn(Raw, u64), from: u64 },
    /// The file of coverage that is written when the model is dropped.
    Coverage { write: WriteFile, file: CString },
}

type WriteFile = unsafe extern "C" fn(Raw, *const c_char);

// SAFETY: a model has no threads of its own, and nothing in it belongs to the thread that made it. Only whoever owns it uses it.
unsafe impl Send for Model {}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("library", &self.library).finish_non_exhaustive()
    }
}

impl Model {
    /// Opens a library that was made for `purpose`. The seed is that of the values with which registers and memories begin.
    pub(crate) fn open(path: &Path, purpose: Purpose, seed: c_int) -> Result<Self, OpenError> {
        let failed = |source| OpenError { path: path.to_owned(), source };
        // SAFETY: the library was made by Verilator and our shim: loading it runs no code of anybody else, and the types of
        // the functions are those of the shim.
        unsafe {
            let library = Library::new(path).map_err(failed)?;
            let new = *library.get::<unsafe extern "C" fn(c_int) -> Raw>(b"naa_new\0").map_err(failed)?;
            let eval = *library.get(b"naa_eval\0").map_err(failed)?;
            let free = *library.get(b"naa_free\0").map_err(failed)?;
            type PortOf = unsafe extern "C" fn(Raw, c_uint, *mut *const c_char, *mut c_uint) -> *mut u8;
            let port = *library.get::<PortOf>(b"naa_port\0").map_err(failed)?;
            let raw = NonNull::new(new(seed)).expect("C++'s new returns an object, or ends the program");
            let mut ports = Vec::new();
            let (mut name, mut bytes) = (std::ptr::null(), 0);
            while let Some(at) =
                NonNull::new(port(raw.as_ptr(), ports.len() as c_uint, &raw mut name, &raw mut bytes))
            {
                let name = CStr::from_ptr(name).to_string_lossy().into_owned();
                ports.push(PortVariable { name, at, bytes: bytes as usize });
            }
            let names = ports.iter().enumerate().map(|(at, place)| (place.name.clone(), at)).collect();
            let recorder = match &purpose {
                Purpose::Plain | Purpose::Mutant(_) => None,
                Purpose::Waveform { file, from } => {
                    let trace = *library.get::<WriteFile>(b"naa_trace\0").map_err(failed)?;
                    trace(raw.as_ptr(), c_path(file).as_ptr());
                    let dump = *library.get(b"naa_dump\0").map_err(failed)?;
                    Some(Recorder::Waveform { dump, from: *from })
                }
                Purpose::Coverage(folder) => {
                    let write = *library.get(b"naa_coverage\0").map_err(failed)?;
                    Some(Recorder::Coverage { write, file: c_path(&coverage_file(folder)) })
                }
            };
            let mut model = Self { raw, ports, names, eval, free, recorder, library };
            // Inputs that nobody sets are 0.
            for at in 0..model.ports.len() {
                let zeros = vec![0; model.ports[at].bytes];
                model.write(Port(at), &zeros);
            }
            if let Purpose::Mutant(number) = purpose {
                model.set(model.port("mutsel"), number.into());
            }
            Ok(model)
        }
    }

    /// Adds the values of all signals to the waveform, if the model writes one.
    ///
    /// The time in the waveform is the cycle of the clock, with the falling and the rising edge as its two halves.
    pub(crate) fn record(&mut self, cycle: u64, is_rising: bool) {
        if let Some(Recorder::Waveform { dump, from }) = self.recorder
            && cycle >= from
        {
            // SAFETY: as for `eval`.
            unsafe { dump(self.raw.as_ptr(), 2 * cycle + u64::from(is_rising)) }
        }
    }

    /// # Panics
    /// If there is no port of this name.
    pub fn port(&self, name: &str) -> Port {
        Port(*self.names.get(name).unwrap_or_else(|| panic!("the module has no port {name}")))
    }

    pub fn has_port(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// The number of bytes of the variable that holds a port's value.
    pub fn len(&self, port: Port) -> usize {
        self.ports[port.0].bytes
    }

    /// Computes outputs and registers from the inputs.
    pub fn eval(&mut self) {
        // SAFETY: the model is alive, and nothing else uses it.
        unsafe { (self.eval)(self.raw.as_ptr()) }
    }

    /// The value of a port of at most 64 bits.
    pub fn get(&self, port: Port) -> u64 {
        let mut bytes = [0; 8];
        let len = self.len(port);
        self.read(port, &mut bytes[..len]);
        u64::from_le_bytes(bytes)
    }

    /// Sets an input of at most 64 bits. The value must fit into the input's width.
    pub fn set(&mut self, port: Port, value: u64) {
        let len = self.len(port);
        self.write(port, &value.to_le_bytes()[..len]);
    }

    /// Copies the lowest bytes of a port's value.
    ///
    /// # Panics
    /// If the port is narrower.
    pub fn read(&self, port: Port, into: &mut [u8]) {
        let place = &self.ports[port.0];
        assert!(into.len() <= place.bytes, "{} has {} bytes", place.name, place.bytes);
        // SAFETY: the variable has that many bytes and lives as long as the model; only `eval` changes it, which needs `&mut`.
        unsafe { std::ptr::copy_nonoverlapping(place.at.as_ptr(), into.as_mut_ptr(), into.len()) }
    }

    /// Sets an input's lowest bytes.
    ///
    /// # Panics
    /// If the port is narrower.
    pub fn write(&mut self, port: Port, from: &[u8]) {
        let place = &self.ports[port.0];
        assert!(from.len() <= place.bytes, "{} has {} bytes", place.name, place.bytes);
        // SAFETY: as for `read`; `&mut self` excludes every other access.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), place.at.as_ptr(), from.len()) }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: the model is freed once, and its ports are not looked at any more.
        unsafe {
            if let Some(Recorder::Coverage { write, file }) = &self.recorder {
                write(self.raw.as_ptr(), file.as_ptr());
            }
            (self.free)(self.raw.as_ptr());
        }
    }
}

/// A file in a folder of coverage that no other model writes.
fn coverage_file(folder: &Path) -> PathBuf {
    static MODELS: AtomicUsize = AtomicUsize::new(0);
    folder.join(format!("{}-{}.dat", process::id(), MODELS.fetch_add(1, Ordering::Relaxed)))
}

/// # Panics
/// If the path has a byte 0, which no file has.
fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path has no byte 0")
}
