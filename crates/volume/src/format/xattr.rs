//! The extended attributes of an inode: one run of bytes, with its checksum in the inode.
//!
//! For each attribute, by name: length of the name (1 byte), reserved (3 bytes), length of the value (4 bytes), name,
//! value. A change writes all of them to new blocks; one line of the inode then names these.

use super::Fault;

/// The longest value, in bytes.
pub const VALUE_MAX: usize = 65_536;
/// The most bytes that all attributes of an inode can take.
pub const TOTAL_MAX: usize = 1 << 20;

const HEAD: usize = 8;

/// Attributes by name.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// As it stands on media.
pub fn encode(xattrs: &Xattrs) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in xattrs {
        bytes.extend_from_slice(&[name.len() as u8, 0, 0, 0]);
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(value);
    }
    bytes
}

/// From the medium.
///
/// # Errors
/// If lengths make no sense.
pub fn decode(mut bytes: &[u8]) -> Result<Xattrs, Fault> {
    const SENSELESS: Fault = Fault("extended attributes make no sense");
    let mut xattrs = Xattrs::new();
    while !bytes.is_empty() {
        let head = bytes.first_chunk::<HEAD>().ok_or(SENSELESS)?;
        let name_len = usize::from(head[0]);
        let value_len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let end = HEAD + name_len + value_len;
        if name_len == 0 || value_len > VALUE_MAX || bytes.len() < end {
            return Err(SENSELESS);
        }
        xattrs.push((bytes[HEAD..HEAD + name_len].to_vec(), bytes[HEAD + name_len..end].to_vec()));
        bytes = &bytes[end..];
    }
    Ok(xattrs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back() {
        let xattrs = vec![(b"user.a".to_vec(), b"1".to_vec()), (b"user.b".to_vec(), vec![7; VALUE_MAX])];
        let bytes = encode(&xattrs);
        assert_eq!(decode(&bytes), Ok(xattrs));
        for len in [1, 8, 13, bytes.len() - 1] {
            assert!(decode(&bytes[..len]).is_err(), "cut to {len}");
        }
    }
}
