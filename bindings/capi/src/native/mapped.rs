//! Whether memory that a program names is there.

use std::io;

/// What the device will do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

/// Whether `len` bytes, at least 1, at `addr` are mapped for `usage`: all pages mapped, the first and the last with the
/// permission. A kernel that cannot say it is believed to agree.
pub(crate) fn check(addr: usize, len: usize, usage: Use) -> Result<(), String> {
    if addr == 0 {
        return Err("addr is NULL; only regions of 0 bytes and internal ones may have none".to_owned());
    }
    let page = region::page_size();
    let end = addr.checked_add(len).filter(|_| isize::try_from(len).is_ok());
    let Some(end) = end.and_then(|end| end.checked_next_multiple_of(page)) else {
        return Err(format!("{len} bytes at {addr:#x} go beyond the address space"));
    };
    let start = addr - addr % page;
    // SAFETY: with MS_ASYNC nothing happens but a look at the mappings.
    let whole = unsafe { libc::msync(std::ptr::without_provenance_mut(start), end - start, libc::MS_ASYNC) };
    if whole != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM) {
        return Err(format!("the program has no memory at all of {addr:#x} to {:#x}", addr + len));
    }
    for at in [start, end - page] {
        permitted(at, page, usage)?;
    }
    Ok(())
}

fn permitted(at: usize, page: usize, usage: Use) -> Result<(), String> {
    let advice = match usage {
        Use::Read => libc::MADV_POPULATE_READ,
        Use::Write => libc::MADV_POPULATE_WRITE,
    };
    // SAFETY: makes the kernel do what an access to the page would make it do; no byte changes.
    if unsafe { libc::madvise(std::ptr::without_provenance_mut(at), page, advice) } == 0 {
        return Ok(());
    }
    if io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM) {
        return Err(format!("the program has no memory at {at:#x}"));
    }
    // EINVAL, or a kernel before 5.14, or memory of a device. The list of mappings tells, for more time.
    match (permissions(at), usage) {
        (Some([read, _]), Use::Read) if read != b'r' => {
            Err(format!("the program may not read the memory at {at:#x}"))
        }
        (Some([_, write]), Use::Write) if write != b'w' => {
            Err(format!("the program may not write the memory at {at:#x}; outputs are written"))
        }
        _ => Ok(()),
    }
}

/// "rw", with "-" for what is not permitted, of the mapping that has `at`.
fn permissions(at: usize) -> Option<[u8; 2]> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16));
        (start.ok()?..end.ok()?).contains(&at).then(|| rest.as_bytes().first_chunk().copied())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    static CONSTANT: [u8; 10_000] = [1; 10_000];

    #[test]
    fn nonsense_is_told_from_memory() {
        let mut stack = [0_u8; 3];
        let heap = vec![0_u8; 100_000];
        for usage in [Use::Read, Use::Write] {
            check((&raw mut stack).addr(), 3, usage).unwrap();
            check(heap.as_ptr().addr() + 1, heap.len() - 1, usage).unwrap();
            for (addr, len) in
                [(0, 1), (1, 1), (usize::MAX, 1), (heap.as_ptr().addr(), 1 << 46), (8, usize::MAX)]
            {
                check(addr, len, usage).unwrap_err();
            }
        }
    }

    #[test]
    fn constants_can_only_be_read() {
        check(CONSTANT.as_ptr().addr(), CONSTANT.len(), Use::Read).unwrap();
        let problem = check(CONSTANT.as_ptr().addr(), CONSTANT.len(), Use::Write).unwrap_err();
        assert!(problem.contains("may not write"), "{problem}");
    }
}
