//! Gzip without compressing (RFC 1951, stored blocks): enough to send an encoded body.

/// Bytes as a gzip file with one stored block.
pub(super) fn stored(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("a stored block holds 64 KiB");
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    file.extend(length.to_le_bytes());
    file.extend((!length).to_le_bytes());
    file.extend(bytes);
    file.extend(crc32(bytes).to_le_bytes());
    file.extend(u32::from(length).to_le_bytes());
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 }
        })
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
    }
}
