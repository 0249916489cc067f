//! Checks that bytes are a complete dynamic library for this machine.
//!
//! The system's loader gives poor messages about a wrong file and crashes on a truncated one: it maps all that the headers
//! declare, and access to a missing part is a bus error.

use super::error::BadImage;

const MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else {
    0
};
const SHARED_OBJECT: u16 = 3;
const LOADED_SEGMENT: u32 = 1;

/// Checks the headers, and that each segment and the table of sections are within the file.
pub(super) fn check(bytes: &[u8]) -> Result<(), BadImage> {
    if !bytes.starts_with(b"\x7fELF") {
        return Err(BadImage::NotALibrary);
    }
    let bytes = Bytes(bytes);
    let (class, order) = (bytes.byte(4)?, bytes.byte(5)?);
    let machine = bytes.u16(18)?;
    // 64 bits, little-endian. For a processor without a constant above, the system's loader decides.
    if MACHINE != 0 && (class, order, machine) != (2, 1, MACHINE) {
        return Err(BadImage::OtherMachine { machine });
    }
    if MACHINE == 0 {
        return Ok(());
    }
    if bytes.u16(16)? != SHARED_OBJECT {
        return Err(BadImage::OtherType);
    }
    let (start, each, count) = (bytes.u64(32)?, bytes.u16(54)?, bytes.u16(56)?);
    for index in 0..u64::from(count) {
        let pos = start
            .checked_add(index * u64::from(each))
            .ok_or(BadImage::Truncated)?;
        if bytes.u32(pos)? == LOADED_SEGMENT {
            let (offset, length) = (bytes.u64_after(pos, 8)?, bytes.u64_after(pos, 32)?);
            let end = offset.checked_add(length).ok_or(BadImage::Truncated)?;
            if end > bytes.0.len() as u64 {
                return Err(BadImage::Truncated);
            }
        }
    }
    // The table of sections is the end of the file. If it is complete, so is the rest.
    let (start, each, count) = (bytes.u64(40)?, bytes.u16(58)?, bytes.u16(60)?);
    let end = start.checked_add(u64::from(each) * u64::from(count));
    if end.is_none_or(|end| end > bytes.0.len() as u64) {
        return Err(BadImage::Truncated);
    }
    Ok(())
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn array<const N: usize>(&self, offset: u64) -> Result<[u8; N], BadImage> {
        let start = usize::try_from(offset).ok();
        let bytes = start.and_then(|start| self.0.get(start..start.checked_add(N)?));
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(BadImage::Truncated)
    }

    fn byte(&self, offset: u64) -> Result<u8, BadImage> {
        self.array(offset).map(u8::from_le_bytes)
    }

    fn u16(&self, offset: u64) -> Result<u16, BadImage> {
        self.array(offset).map(u16::from_le_bytes)
    }

    fn u32(&self, offset: u64) -> Result<u32, BadImage> {
        self.array(offset).map(u32::from_le_bytes)
    }

    fn u64(&self, offset: u64) -> Result<u64, BadImage> {
        self.array(offset).map(u64::from_le_bytes)
    }

    fn u64_after(&self, base: u64, offset: u64) -> Result<u64, BadImage> {
        self.u64(base.checked_add(offset).ok_or(BadImage::Truncated)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn this_test() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn a_whole_image_is_accepted_and_a_cut_one_is_not() {
        let mut image = this_test();
        image[16] = 3;
        assert_eq!(check(&image), Ok(()));
        assert_eq!(check(&image[..100]), Err(BadImage::Truncated));
        assert_eq!(check(&image[..20]), Err(BadImage::Truncated));
        image[16] = 2;
        assert_eq!(check(&image), Err(BadImage::OtherType));
        image[18] = 0x28;
        assert_eq!(check(&image), Err(BadImage::OtherMachine { machine: 0x28 }));
        assert_eq!(check(b"#!/bin/sh"), Err(BadImage::NotALibrary));
        assert_eq!(check(b""), Err(BadImage::NotALibrary));
    }

    proptest! {
        #[test]
        fn any_header_is_taken_or_refused(
            head in proptest::collection::vec(any::<u8>(), 64),
            keep in proptest::collection::vec(any::<bool>(), 64),
        ) {
            let mut image = vec![0; 4096];
            image[..6].copy_from_slice(b"\x7fELF\x02\x01");
            image[16..20].copy_from_slice(&[3, 0, MACHINE as u8, 0]);
            for (pos, byte) in head.into_iter().enumerate().skip(20) {
                if keep[pos] {
                    image[pos] = byte;
                }
            }
            let _ = check(&image);
        }
    }
}
