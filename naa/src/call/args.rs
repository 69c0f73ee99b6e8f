//! The command line of `naa call`.

use std::{ops::Range, path::PathBuf};

use clap::builder::RangedU64ValueParser;
use mrsp::{builtin::Element, region::MAX_REGION_BYTES};
use naa_batch::CallConfig;

use crate::peer;

/// Call a function of an accelerator on files
///
/// Files are read straight into the memory the accelerator's data is sent from. Results appear under their names
/// when they are complete: whatever interrupts a call, no half result is left under a final name.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  naa call sha256 --server 10.9.0.2 --in *.bin > SUMS; sha256sum -c SUMS\n  \
    naa call zstd-compress --server 10.9.0.2 --level 9 --in data.bin --out data.bin.zst\n  \
    tar c data | naa call zstd-compress --server 10.9.0.2 --in - --out - > data.tar.zst\n  \
    naa call dgemm --server 10.9.0.2 -m 100 -n 200 -k 300 --in a.f64 b.f64 --out c.f64\n  \
    naa call vector-add --server 10.9.0.2 --type f32 --in a.f32 b.f32 --out sum.f32\n  \
    naa call histogram --server 10.9.0.2 --type f64 --range 0:1 --bins 100 --in x.f64 --out counts.u64\n  \
    naa call sort --server 10.9.0.2 --type u64 --descending --in keys.u64 --out sorted.u64\n  \
    naa call axpy --server 10.9.0.2 --in a.f64 x.f64 y.f64 --out sum.f64    a plug-in, by its name in the catalogue\n  \
    naa call 96 --server 10.9.0.2 --in x.bin --out y.bin --out-size 64K     by number: inputs, then outputs\n\n\
    Many files, over several sessions at once; again, with --resume, after an interruption:\n  \
    naa call zstd-compress --server 10.9.0.2 --in-dir data --out-dir packed --resume\n  \
    naa call zstd-decompress --server 10.9.0.2 --in-dir packed --out-dir data\n  \
    naa call sha256 --server 10.9.0.2 --in-dir data > SUMS\n  \
    naa call fft --server 10.9.0.2 --in 'signals/*.c128' --out-dir spectra --suffix .spectrum\n  \
    naa call sha256 --server 10.9.0.2 --server 10.9.0.3 --repeat-lost --in-dir data > SUMS    on two accelerators\n\n\
    Built-in functions take and give what usual tools do: zstd and LZ4 frames, little-endian numbers, row-major \
    matrices, complex numbers as pairs of f64s. A histogram is one u64 per bin, then the counts of numbers below the \
    range, above it and of NaNs. `naa functions` lists what a server offers.\n\n\
    One failed file does not stop the others; exit status is 1 in the end. A file is complete for --resume if its \
    result is newer than it. Results survive the death of this process and of the machine: each is on disk \
    before it gets its name, and the names are on disk when naa ends, so after a power failure --resume makes what is \
    missing. --no-sync is faster with many small files. A link at --out that belongs to you is followed, those of \
    others are not; existing files are replaced."
)]
pub(crate) struct Args {
    /// Name or number, as `naa functions` lists them
    pub(super) function: String,
    #[command(flatten)]
    pub(super) peers: peer::ManyArgs,
    #[command(flatten)]
    pub(super) waiting: peer::WaitArgs,
    /// Input files, in the order of the parameters, or patterns such as 'data/**/*.bin'; - is standard input. A parameter
    /// that is input and output (= in `naa functions`) takes the next input, and its result goes to the next output.
    /// Checksums take any number of files, with --out-dir all functions of one input do
    #[arg(short, long = "in", value_name = "FILE", num_args = 1..)]
    pub(super) input: Vec<PathBuf>,
    /// Every file in these folders and below, one call each
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub(super) in_dir: Vec<PathBuf>,
    /// Output files; - is standard output. Checksums are printed, as sha256sum does, unless one is named
    #[arg(short, long, value_name = "FILE", num_args = 1..)]
    pub(super) out: Vec<PathBuf>,
    /// A folder for the result of each input, under the input's name: relative to its --in-dir, else without folders
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub(super) out_dir: Option<PathBuf>,
    /// Added to names in --out-dir; decompression takes it off [default: .zst and .lz4 for these, else none]
    #[arg(long, value_name = "TEXT", requires = "out_dir", conflicts_with = "out", value_parser = suffix)]
    pub(super) suffix: Option<String>,
    /// Leave out inputs whose result in --out-dir is there and newer
    #[arg(long, requires = "out_dir", conflicts_with = "out")]
    pub(super) resume: bool,
    /// Do not wait until results are on disk; after a power failure some may be empty or cut
    #[arg(long)]
    pub(super) no_sync: bool,
    /// Wait until results are on disk; this is so unless --no-sync is given
    #[arg(long, hide = true, conflicts_with = "no_sync")]
    pub(super) sync: bool,
    /// Make the call of a file again, up to N times (3 if N is left out), if its accelerator is lost during the call. The lost
    /// one may have executed it
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_value_t = 0, default_missing_value = "3", hide_default_value = true)]
    pub(super) repeat_lost: u32,
    /// Files at a time, each over a session of its own [default: 4 for each --server, or one per core if there are fewer]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=64))]
    pub(super) sessions: Option<usize>,
    /// Size of each output, such as 64K. Functions that are not built in need one for each parameter that is only an output
    #[arg(long, value_name = "BYTES", num_args = 1.., value_parser = size)]
    pub(super) out_size: Vec<usize>,
    /// zstd: compression level
    #[arg(long, default_value_t = 3, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-7..=19))]
    pub(super) level: i32,
    /// dgemm: rows of A and of the product
    #[arg(short, value_name = "ROWS")]
    pub(super) m: Option<u64>,
    /// dgemm: columns of B and of the product. fft: complex numbers [default: as the files have]
    #[arg(short, value_name = "COLUMNS")]
    pub(super) n: Option<u64>,
    /// dgemm: columns of A and rows of B [default: as the files have]
    #[arg(short, value_name = "INNER")]
    pub(super) k: Option<u64>,
    /// fft: transform back; unscaled, as FFTW: divide by n
    #[arg(long)]
    pub(super) inverse: bool,
    /// vector-add, sort, histogram: what the numbers are: u8, u32, i32, u64, i64, f32, f64 [default: u8 for histograms]
    #[arg(long = "type", value_name = "TYPE", value_parser = element)]
    pub(super) element: Option<Element>,
    /// histogram: bins of equal width
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1 << 28))]
    pub(super) bins: usize,
    /// histogram: count numbers from LO to below HI [default: 0:256 for u8]
    #[arg(long, value_name = "LO:HI", allow_hyphen_values = true, value_parser = range)]
    pub(super) range: Option<Range<f64>>,
    /// sort: largest first
    #[arg(long)]
    pub(super) descending: bool,
    /// Print one JSON object per call; to standard error where --out is -, as standard output has the data
    #[arg(long)]
    pub(super) json: bool,
}

impl Args {
    pub(super) fn settings(&self) -> CallConfig {
        CallConfig {
            out_size: self.out_size.clone(),
            level: self.level,
            m: self.m,
            n: self.n,
            k: self.k,
            inverse: self.inverse,
            element: self.element,
            bins: self.bins,
            range: self.range.clone(),
            descending: self.descending,
            sync: !self.no_sync,
            repeat_lost: self.repeat_lost,
        }
    }
}

/// Reads a range of numbers.
fn range(text: &str) -> Result<Range<f64>, String> {
    let numbers = text.split_once(':').and_then(|(lo, hi)| Some((lo.parse().ok()?, hi.parse().ok()?)));
    let (lo, hi): (f64, f64) = numbers.ok_or("write two numbers, such as -1:1 or 0:1e6")?;
    if lo < hi && (hi - lo).is_finite() {
        Ok(lo..hi)
    } else {
        Err("the second number must be larger, and both finite".into())
    }
}

/// Reads the size of a region.
fn size(text: &str) -> Result<usize, String> {
    let bytes = crate::size::bytes(text).filter(|&bytes| bytes <= MAX_REGION_BYTES);
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| "write a number of bytes up to 2G, such as 65536, 64K or 16M".into())
}

fn element(text: &str) -> Result<Element, String> {
    let found = Element::ALL.into_iter().find(|element| element.name() == text);
    found.ok_or_else(|| {
        let names = Element::ALL.map(Element::name).join(", ");
        format!("write one of {names}")
    })
}

fn suffix(text: &str) -> Result<String, String> {
    if text.contains('/') { Err("a suffix has no /".into()) } else { Ok(text.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_two_finite_numbers() {
        assert_eq!(range("-1:1e3"), Ok(-1.0..1000.0));
        for bad in ["", "1", "1:1", "2:1", "0:inf", "nan:1", "a:b", "-1e308:1e308"] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_those_of_regions() {
        assert_eq!(size("64K"), Ok(65536));
        assert_eq!(size("2G"), Ok(2 << 30));
        assert!(size("3G").unwrap_err().contains("up to 2G"));
    }

    #[test]
    fn types_have_their_names() {
        assert_eq!(element("f64"), Ok(Element::F64));
        assert!(element("float").unwrap_err().contains("u8, u32"));
        assert!(suffix("a/b").is_err());
    }
}
