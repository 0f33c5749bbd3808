//! Hashes that can be kept up to date: the hash of a set of places and contents is a sum of terms, one each.

/// Where a term of a hash stands: an object, what of it, and which.
#[derive(Clone, Copy)]
pub(super) struct Place(pub u64);

const WORD: u64 = 0;
const ALLOC: u64 = 1;
const ATTR: u64 = 2;
const NAME: u64 = 3;
const XATTR: u64 = 4;

impl Place {
    fn new(kind: u64, obj: u32, n: u64) -> Place {
        Place((kind << 61) | ((u64::from(obj) << 40) ^ n))
    }

    pub fn word(obj: u32, n: u64) -> Place {
        Place::new(WORD, obj, n)
    }

    pub fn alloc(obj: u32, page: u64) -> Place {
        Place::new(ALLOC, obj, page)
    }

    pub fn attr(obj: u32, n: u64) -> Place {
        Place::new(ATTR, obj, n)
    }

    pub fn name(obj: u32, name: &[u8]) -> Place {
        Place::new(NAME, obj, bytes(name) >> 24)
    }

    pub fn xattr(obj: u32, name: &[u8]) -> Place {
        Place::new(XATTR, obj, bytes(name) >> 24)
    }
}

fn fold(a: u64, b: u64) -> u64 {
    let t = u128::from(a) * u128::from(b);
    (t as u64) ^ ((t >> 64) as u64)
}

/// The term of `value` at `place`. Zero has no term, so that absent and zero bytes are the same.
#[inline]
pub(super) fn term(place: Place, value: u64) -> u64 {
    if value == 0 {
        return 0;
    }
    let a = place.0 ^ 0x9e37_79b9_7f4a_7c15;
    fold(fold(a, value ^ 0xa076_1d64_78bd_642f) ^ 0xe703_7ed1_a0b4_28db, a.rotate_left(32) ^ 0x8ebc_6af0_9c88_c6e3)
}

/// The hash of a short string of bytes.
pub(super) fn bytes(data: &[u8]) -> u64 {
    let mut h = 0x5899_65cc_7537_4cc3 ^ data.len() as u64;
    for part in data.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        h = fold(h ^ u64::from_le_bytes(word), 0x1d8e_4e27_c47d_124f) ^ h.rotate_left(23);
    }
    h
}

/// The hash of a short list of numbers.
pub(super) fn numbers(list: &[u64]) -> u64 {
    let start = 0x2f72_b421_5a3d_8caf ^ list.len() as u64;
    list.iter().fold(start, |h, number| fold(h ^ number, 0x1d8e_4e27_c47d_124f) ^ h.rotate_left(23))
}

/// The hasher of what is a hash already: numbers of 64 bits, and nothing else.
#[derive(Clone, Copy, Default, Debug)]
pub struct Hashed(u64);

impl std::hash::BuildHasher for Hashed {
    type Hasher = Hashed;
    fn build_hasher(&self) -> Hashed {
        Hashed(0)
    }
}

impl std::hash::Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A generator of numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u64
    }

    /// `n` bytes.
    pub fn bytes(&mut self, n: u64) -> Vec<u8> {
        (0..n).map(|_| self.draw() as u8).collect()
    }
}
