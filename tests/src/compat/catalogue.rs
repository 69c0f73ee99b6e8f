//! The catalogue of a server beside a recorded one. A later server may have more functions; those that an old host knows
//! must be there as they were. Descriptions are for people, and are not compared.
//!
//! The bytes are taken apart here by their description in docs, not by this project's decoder.

const HEADER: usize = 16;
const FUNCTION: usize = 8;
const PARAMETER: usize = 4;

/// A function without its description.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Function {
    code: u8,
    flags: u8,
    name: Vec<u8>,
    zero: [u8; 2],
    /// Direction, kind and name of each.
    parameters: Vec<(u8, u8, Vec<u8>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Catalogue {
    magic: [u8; 4],
    version: u16,
    zero: [u8; 4],
    functions: Vec<Function>,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (field, rest) = self.0.split_at_checked(len).ok_or("the catalogue ends inside an entry")?;
        self.0 = rest;
        Ok(field)
    }
}

fn read(bytes: &[u8]) -> Result<Catalogue, String> {
    let mut reader = Reader(bytes);
    let header = reader.take(HEADER)?;
    let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let total = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    if total != bytes.len() {
        return Err(format!("the catalogue says it has {total} bytes, and has {}", bytes.len()));
    }
    let functions = (0..word(6)).map(|_| function(&mut reader)).collect::<Result<Vec<_>, _>>()?;
    if !reader.0.is_empty() {
        return Err(format!("{} bytes follow the catalogue", reader.0.len()));
    }
    Ok(Catalogue {
        magic: [header[0], header[1], header[2], header[3]],
        version: word(4),
        zero: [header[12], header[13], header[14], header[15]],
        functions,
    })
}

fn function(reader: &mut Reader<'_>) -> Result<Function, String> {
    let head = reader.take(FUNCTION)?;
    let (code, flags, parameters, zero) = (head[0], head[1], head[2], [head[6], head[7]]);
    let name = reader.take(head[3].into())?.to_vec();
    reader.take(u16::from_le_bytes([head[4], head[5]]).into())?;
    let parameters = (0..parameters).map(|_| parameter(reader)).collect::<Result<_, _>>()?;
    Ok(Function { code, flags, name, zero, parameters })
}

fn parameter(reader: &mut Reader<'_>) -> Result<(u8, u8, Vec<u8>), String> {
    let head = reader.take(PARAMETER)?;
    let name = reader.take(head[2].into())?.to_vec();
    reader.take(head[3].into())?;
    Ok((head[0], head[1], name))
}

/// The first difference that an old host would see.
pub(super) fn compare(recorded: &[u8], live: &[u8]) -> Result<(), String> {
    let (recorded, live) = (read(recorded)?, read(live)?);
    let heads = [&recorded, &live].map(|catalogue| (catalogue.magic, catalogue.version, catalogue.zero));
    if heads[0] != heads[1] {
        return Err(format!("its header has {:?} instead of {:?}", heads[1], heads[0]));
    }
    if !live.functions.is_sorted_by(|one, next| one.code < next.code) {
        return Err("its functions do not ascend by code".into());
    }
    for was in &recorded.functions {
        let name = String::from_utf8_lossy(&was.name);
        let is = live.functions.iter().find(|function| function.code == was.code);
        match is {
            None => return Err(format!("function {} {name} is not in it", was.code)),
            Some(is) if is != was => {
                return Err(format!("function {} {name} is {is:?}, was {was:?}", was.code));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Function codes 1 and 3 with one parameter each, with this description.
    fn table(codes: &[u8], description: &str) -> Vec<u8> {
        let mut body = Vec::new();
        for code in codes {
            body.extend([*code, 0, 1, 2, description.len() as u8, 0, 0, 0]);
            body.extend(format!("f{code}{description}").bytes());
            body.extend([0, 0, 1, 0, b'p']);
        }
        let total = (HEADER + body.len()) as u8;
        let head = [b'N', b'A', b'A', b'C', 1, 0, codes.len() as u8, 0, total, 0, 0, 0, 0, 0, 0, 0];
        [&head[..], &body].concat()
    }

    #[test]
    fn more_functions_and_other_descriptions_are_compatible() {
        let recorded = table(&[1, 3], "adds");
        assert_eq!(compare(&recorded, &recorded), Ok(()));
        assert_eq!(compare(&recorded, &table(&[1, 2, 3, 9], "adds one to each")), Ok(()));
    }

    #[test]
    fn a_function_that_is_gone_or_other_is_found() {
        let recorded = table(&[1, 3], "adds");
        let missing = compare(&recorded, &table(&[1, 2], "adds")).unwrap_err();
        assert!(missing.contains("function 3"), "{missing}");
        let description = HEADER + FUNCTION + 2..HEADER + FUNCTION + 6;
        for at in (0..recorded.len()).filter(|at| !description.contains(at)) {
            let second = HEADER + 19 + FUNCTION + 2;
            if (second..second + 4).contains(&at) {
                continue;
            }
            let mut other = recorded.clone();
            other[at] ^= 1;
            assert!(compare(&recorded, &other).is_err(), "byte {at}");
        }
    }
}
