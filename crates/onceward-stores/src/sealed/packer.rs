//! Compression by zstd, whose contexts are made once: making one costs more than packing most
//! outcomes does.

use parking_lot::Mutex;
use zstd::bulk::{Compressor, Decompressor};

use super::error::SealProblem;

/// The fastest of zstd's usual levels: a reply is waiting.
const LEVEL: i32 = 1;

/// Packs and unpacks. Keeps as many contexts as were ever in use at once.
#[derive(Default)]
pub(super) struct Packer {
    compressors: Mutex<Vec<Compressor<'static>>>,
    decompressors: Mutex<Vec<Decompressor<'static>>>,
}

impl Packer {
    /// `None` where zstd fails, as what is not packed can be stored as well.
    pub(super) fn pack(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let waiting = self.compressors.lock().pop();
        let mut compressor = waiting.map_or_else(|| Compressor::new(LEVEL), Ok).ok()?;
        let packed = compressor.compress(bytes);
        self.compressors.lock().push(compressor);
        packed.ok()
    }

    /// Exactly so many bytes, and never room for more.
    pub(super) fn unpack(&self, packed: &[u8], bytes: usize) -> Result<Vec<u8>, SealProblem> {
        const DAMAGED: SealProblem = SealProblem::Malformed("compression");
        let waiting = self.decompressors.lock().pop();
        let decompressor = waiting.map_or_else(Decompressor::new, Ok);
        let mut decompressor = decompressor.map_err(|_| DAMAGED)?;
        let unpacked = decompressor.decompress(packed, bytes);
        self.decompressors.lock().push(decompressor);
        unpacked.ok().filter(|it| it.len() == bytes).ok_or(DAMAGED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bomb_is_not_unpacked_beyond_what_it_said() {
        let (packer, damaged) = (Packer::default(), Err(SealProblem::Malformed("compression")));
        let bomb = packer.pack(&vec![0; 100 << 20]).unwrap();
        assert!(bomb.len() < 100_000, "{}", bomb.len());
        assert_eq!(packer.unpack(&bomb, 1_000), damaged);
        assert_eq!(packer.unpack(&bomb[..100], 100 << 20), damaged);
    }

    #[test]
    fn contexts_are_used_again_also_after_a_failure() {
        let packer = Packer::default();
        let packed = packer.pack(b"one and two and one and two").unwrap();
        for _ in 0..3 {
            assert!(packer.unpack(b"garbage", 27).is_err());
            assert_eq!(packer.unpack(&packed, 27).unwrap(), b"one and two and one and two");
            assert_eq!(packer.pack(b"one and two and one and two").unwrap(), packed);
        }
        assert_eq!((packer.compressors.lock().len(), packer.decompressors.lock().len()), (1, 1));
    }
}
