//! Makes parameters and arguments of a call from its settings and files.

use std::ops::Range;

use mrsp::{
    FunctionCode,
    builtin::{self, Arguments, Element, FftDirection, FunctionGroup, SortOrder},
    catalogue::Direction,
    region::MAX_REGION_BYTES,
};

use crate::{Call, CallConfig, Refused, files::InputFile, room};

/// The regions of a function.
#[derive(Debug)]
pub(crate) enum Plan {
    /// A built-in function: argument block, inputs, status block, and one output of `room` bytes.
    Builtin { arguments: Arguments, room: usize },
    /// Another function. The parameters are those of the catalogue in its order, if there is a catalogue.
    Listed(Vec<Listed>),
}

/// A parameter of a function that is not built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// A parameter that is filled from the next input file.
    Input,
    /// A parameter that holds the next result, up to this number of bytes.
    Output(usize),
    /// A parameter that is filled from the next input file and holds the next result.
    InOut,
}

/// Whether the result is printed unless a file is named.
pub(crate) fn is_checksum(function: FunctionCode) -> bool {
    [builtin::SHA256, builtin::CRC32C].contains(&function)
}

/// The number of inputs of one call of `function`; `None` if any number is possible.
pub(crate) fn inputs_of(function: FunctionCode) -> Option<usize> {
    match function {
        builtin::DGEMM | builtin::VECTOR_ADD => Some(2),
        builtin::SHA256
        | builtin::CRC32C
        | builtin::FFT
        | builtin::LZ4_COMPRESS
        | builtin::LZ4_DECOMPRESS
        | builtin::ZSTD_COMPRESS
        | builtin::ZSTD_DECOMPRESS
        | builtin::HISTOGRAM
        | builtin::SORT => Some(1),
        _ => None,
    }
}

/// Whether the size of the output cannot be known before the call.
pub(crate) fn may_grow(settings: &CallConfig, function: FunctionCode) -> bool {
    settings.out_size.is_empty() && [builtin::LZ4_DECOMPRESS, builtin::ZSTD_DECOMPRESS].contains(&function)
}

/// Checks the options that do not depend on the files.
pub(crate) fn check(settings: &CallConfig, function: FunctionCode) -> anyhow::Result<()> {
    match function {
        builtin::VECTOR_ADD | builtin::SORT if settings.element.is_none() => {
            Err(Refused::error("say what the numbers are: --type u8, u32, i32, u64, i64, f32 or f64"))
        }
        builtin::HISTOGRAM => histogram(settings, 0).map(drop),
        _ => Ok(()),
    }
}

impl Plan {
    /// Plans one call that has `outputs` places for its results.
    pub(crate) fn new(
        Call { target, settings, .. }: Call<'_>,
        inputs: &[InputFile],
        outputs: usize,
    ) -> anyhow::Result<Self> {
        let function = target.code;
        if let Some(files) = target.files() {
            let given = (inputs.len(), outputs);
            return listed(&target.name, &target.directions, files, given, &settings.out_size)
                .map(Self::Listed);
        }
        if FunctionGroup::of(function) == FunctionGroup::Naaice {
            return Self::in_out(inputs.len(), outputs);
        }
        let Some(count) = inputs_of(function) else { return Self::raw(settings, inputs.len(), outputs) };
        let [first, ..] = inputs else { return Err(missing_inputs(count)) };
        if is_checksum(function) && inputs.len() > 1 {
            return Err(Refused::error("with --out, give one input; --out-dir takes the results of many"));
        }
        if inputs.len() != count {
            return Err(missing_inputs(count));
        }
        if outputs > 1 || (outputs == 0 && !is_checksum(function)) {
            return Err(Refused::error("name one file for the result: --out FILE"));
        }
        let bytes = first.len() as u64;
        let arguments = match function {
            builtin::SHA256 => Arguments::Sha256 { bytes },
            builtin::CRC32C => Arguments::Crc32c { bytes },
            builtin::LZ4_COMPRESS => Arguments::Lz4Compress { bytes },
            builtin::ZSTD_COMPRESS => Arguments::ZstdCompress { bytes, level: settings.level },
            builtin::LZ4_DECOMPRESS => Arguments::Lz4Decompress { bytes },
            builtin::ZSTD_DECOMPRESS => Arguments::ZstdDecompress { bytes },
            builtin::FFT => transform(settings, first)?,
            builtin::HISTOGRAM => {
                histogram(settings, elements(first, settings.element.unwrap_or(Element::U8))?)?
            }
            builtin::SORT => sort(settings, first)?,
            builtin::VECTOR_ADD => sum(settings, inputs)?,
            _ => return product(settings, inputs),
        };
        Ok(Self::Builtin { arguments, room: room_for(settings, function, first.len()) })
    }

    fn in_out(inputs: usize, outputs: usize) -> anyhow::Result<Self> {
        if inputs == 0 {
            return Err(Refused::error("name the data: --in FILE"));
        }
        if outputs != inputs {
            let text = format!("each --in needs an --out: there are {inputs} inputs and {outputs} outputs");
            return Err(Refused::error(text));
        }
        Ok(Self::Listed(vec![Listed::InOut; inputs]))
    }

    /// Plans one call of a function that is in no catalogue, with all inputs before all outputs.
    fn raw(settings: &CallConfig, inputs: usize, outputs: usize) -> anyhow::Result<Self> {
        let sizes = settings.out_size.len();
        if outputs != sizes {
            let text = format!(
                "this function is not built in, so each --out needs an --out-size: there are {outputs} files and \
                 {sizes} sizes"
            );
            return Err(Refused::error(text));
        }
        let outputs = settings.out_size.iter().copied().map(Listed::Output);
        Ok(Self::Listed(std::iter::repeat_n(Listed::Input, inputs).chain(outputs).collect()))
    }

    /// Arguments of a built-in function.
    pub(crate) fn arguments(&self) -> Option<&Arguments> {
        match self {
            Self::Builtin { arguments, .. } => Some(arguments),
            Self::Listed(_) => None,
        }
    }
}

/// Maps files to the parameters of `name`. `takes` and `given` are the numbers of input files and results that it needs and
/// that there are. An output has a size of its own; what is input and output is as long as its file.
fn listed(
    name: &str,
    directions: &[Direction],
    takes: (usize, usize),
    given: (usize, usize),
    sizes: &[usize],
) -> anyhow::Result<Vec<Listed>> {
    let wanted = directions.iter().filter(|&&direction| direction == Direction::Output).count();
    if directions.contains(&Direction::Internal) {
        let text = format!(
            "{name} has memory of its own at the accelerator, whose size the catalogue does not say; call it from a \
             program, with an internal region"
        );
        return Err(Refused::error(text));
    }
    if takes != given || sizes.len() != wanted {
        let text = format!(
            "{name} takes {} files at --in, {} at --out and {wanted} sizes at --out-size, for those that are no input too; \
             there are {}, {} and {}. `naa functions` lists its parameters",
            takes.0,
            takes.1,
            given.0,
            given.1,
            sizes.len()
        );
        return Err(Refused::error(text));
    }
    let mut sizes = sizes.iter();
    let parameters = directions.iter().filter_map(|direction| match direction {
        Direction::Input => Some(Listed::Input),
        Direction::Output => sizes.next().map(|&room| Listed::Output(room)),
        Direction::InOut => Some(Listed::InOut),
        Direction::Internal => None,
    });
    Ok(parameters.collect())
}

/// The most bytes of the result of a built-in function with one input of `len` bytes, or two inputs of `len` bytes each.
pub(crate) fn room_for(settings: &CallConfig, function: FunctionCode, len: usize) -> usize {
    let room = match function {
        builtin::SHA256 => 32,
        builtin::CRC32C => 4,
        builtin::LZ4_COMPRESS => room::for_lz4(len),
        builtin::ZSTD_COMPRESS => room::for_zstd(len),
        builtin::LZ4_DECOMPRESS | builtin::ZSTD_DECOMPRESS => first_guess(len),
        // Each bin has one count, and there are three counts for the other numbers.
        builtin::HISTOGRAM => settings.bins.saturating_add(3).saturating_mul(8),
        _ => len,
    };
    settings.out_size.first().copied().unwrap_or(room).min(MAX_REGION_BYTES as usize)
}

/// The first guess of the size of decompressed data whose size is not known.
fn first_guess(compressed: usize) -> usize {
    compressed.saturating_mul(4).max(1 << 20)
}

fn missing_inputs(count: usize) -> anyhow::Error {
    match count {
        1 => Refused::error("this function takes one input: --in FILE"),
        _ => Refused::error(format!("this function takes {count} inputs: --in FILE FILE")),
    }
}

/// The number of numbers in a file.
fn whole(input: &InputFile, bytes: usize, what: &str) -> anyhow::Result<u64> {
    let len = input.len();
    if !len.is_multiple_of(bytes) {
        let file = input.path().display();
        let text = format!(
            "{file} has {len} bytes, which is no whole number of {what} of {bytes} bytes; give a file of them and \
             nothing else"
        );
        return Err(Refused::error(text));
    }
    Ok((len / bytes) as u64)
}

fn elements(input: &InputFile, element: Element) -> anyhow::Result<u64> {
    whole(input, element.bytes(), &format!("{}s", element.name()))
}

/// The arguments of a transform. The length of the signal is that of its file.
fn transform(settings: &CallConfig, input: &InputFile) -> anyhow::Result<Arguments> {
    let n = whole(input, 16, "complex f64s")?;
    if let Some(asked) = settings.n.filter(|&asked| asked != n) {
        let file = input.path().display();
        return Err(Refused::error(format!("-n is {asked}, but {file} has {n} complex f64s; leave -n out")));
    }
    let direction = if settings.inverse { FftDirection::Inverse } else { FftDirection::Forward };
    Ok(Arguments::Fft { n, direction })
}

fn histogram(settings: &CallConfig, n: u64) -> anyhow::Result<Arguments> {
    let element = settings.element.unwrap_or(Element::U8);
    let range = settings.range.clone().or((element == Element::U8).then_some(0.0..256.0));
    let Some(Range { start, end }) = range else {
        return Err(Refused::error("say which numbers to count: --range LO:HI"));
    };
    if [Element::U64, Element::I64].contains(&element) {
        return Err(Refused::error("there are histograms of u8, u32, i32, f32 and f64"));
    }
    let bins = settings.bins as u64;
    Ok(Arguments::Histogram { n, element, bins, lo: start.to_bits(), hi: end.to_bits() })
}

fn sort(settings: &CallConfig, input: &InputFile) -> anyhow::Result<Arguments> {
    check(settings, builtin::SORT)?;
    let element = settings.element.unwrap_or(Element::U8);
    let order = if settings.descending { SortOrder::Descending } else { SortOrder::Ascending };
    Ok(Arguments::Sort { n: elements(input, element)?, element, order })
}

fn sum(settings: &CallConfig, inputs: &[InputFile]) -> anyhow::Result<Arguments> {
    check(settings, builtin::VECTOR_ADD)?;
    let element = settings.element.unwrap_or(Element::U8);
    let lens = inputs.iter().map(|input| elements(input, element)).collect::<anyhow::Result<Vec<_>>>()?;
    match lens[..] {
        [n, other] if n == other => Ok(Arguments::VectorAdd { n, element }),
        _ => Err(Refused::error(format!("the vectors have {lens:?} numbers; they must be equally long"))),
    }
}

/// Plans a product of matrices. The third of m, n, k follows from the other two; for square matrices, all three follow from
/// the sizes.
fn product(settings: &CallConfig, inputs: &[InputFile]) -> anyhow::Result<Plan> {
    let [left, right] = inputs else { return Err(missing_inputs(2)) };
    let (a, b) = (elements(left, Element::F64)?, elements(right, Element::F64)?);
    let by = |total: u64, side: Option<u64>| side.and_then(|side| total.checked_div(side));
    // The shape follows from the sizes only if the matrices are square.
    let root =
        Some(a.isqrt()).filter(|r| settings.m.is_none() && settings.n.is_none() && a == b && r * r == a);
    let k = settings.k.or(by(a, settings.m)).or(by(b, settings.n)).or(root);
    let shape = k.and_then(|k| Some((settings.m.or(by(a, Some(k)))?, settings.n.or(by(b, Some(k)))?, k)));
    let fits = |(m, n, k): &(u64, u64, u64)| m.checked_mul(*k) == Some(a) && k.checked_mul(*n) == Some(b);
    let Some((m, n, k)) = shape.filter(fits) else {
        let text = format!(
            "the files have {a} and {b} f64s; give -m, -n and -k so that A has m*k and B has k*n of them"
        );
        return Err(Refused::error(text));
    };
    let room = m.checked_mul(n).and_then(|numbers| numbers.checked_mul(8)).filter(|&r| r <= MAX_REGION_BYTES);
    let room = room.and_then(|room| usize::try_from(room).ok());
    let room = room.ok_or_else(|| Refused::error("the product is larger than a region holds, 2 GiB"))?;
    let room = settings.out_size.first().copied().unwrap_or(room);
    Ok(Plan::Builtin { arguments: Arguments::Dgemm { m, n, k }, room })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_those_of_the_catalogue_in_its_order() {
        use Direction::{InOut, Input, Internal, Output};
        let plan = |directions: &[Direction], takes, given, sizes: &[usize]| {
            listed("axpy", directions, takes, given, sizes).map_err(|error| error.to_string())
        };
        let both = plan(&[Output, Input, InOut], (2, 2), (2, 2), &[5]);
        assert_eq!(both, Ok(vec![Listed::Output(5), Listed::Input, Listed::InOut]));
        for (given, sizes) in [((1, 2), &[5][..]), ((2, 1), &[5]), ((2, 2), &[]), ((2, 2), &[5, 5])] {
            let refused = plan(&[Output, Input, InOut], (2, 2), given, sizes).unwrap_err();
            assert!(refused.contains("2 files at --in, 2 at --out and 1 sizes"), "{refused}");
        }
        assert!(plan(&[Input, Internal], (1, 0), (1, 0), &[]).unwrap_err().contains("internal region"));
    }
}
