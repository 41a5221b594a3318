//! Compression by zstd. Contexts are reused: making one costs more than compressing most outcomes.

use parking_lot::Mutex;
use zstd::bulk::{Compressor, Decompressor};

use super::error::SealProblem;

/// The fastest of zstd's usual levels, as a reply is waiting.
const LEVEL: i32 = 1;

/// Compresses and decompresses. Keeps as many contexts as were in use at once.
#[derive(Default)]
pub(super) struct ZstdPool {
    compressors: Mutex<Vec<Compressor<'static>>>,
    decompressors: Mutex<Vec<Decompressor<'static>>>,
}

impl ZstdPool {
    /// `None` if zstd fails: the outcome is then stored uncompressed.
    pub(super) fn compress(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let waiting = self.compressors.lock().pop();
        let mut compressor = waiting.map_or_else(|| Compressor::new(LEVEL), Ok).ok()?;
        let packed = compressor.compress(bytes);
        self.compressors.lock().push(compressor);
        packed.ok()
    }

    /// Decompresses to exactly this many bytes, and never allocates more.
    pub(super) fn decompress(&self, packed: &[u8], bytes: usize) -> Result<Vec<u8>, SealProblem> {
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
        let (zstd, damaged) = (ZstdPool::default(), Err(SealProblem::Malformed("compression")));
        let bomb = zstd.compress(&vec![0; 100 << 20]).unwrap();
        assert!(bomb.len() < 100_000, "{}", bomb.len());
        assert_eq!(zstd.decompress(&bomb, 1_000), damaged);
        assert_eq!(zstd.decompress(&bomb[..100], 100 << 20), damaged);
    }

    #[test]
    fn contexts_are_used_again_also_after_a_failure() {
        let zstd = ZstdPool::default();
        let packed = zstd.compress(b"one and two and one and two").unwrap();
        for _ in 0..3 {
            assert!(zstd.decompress(b"garbage", 27).is_err());
            assert_eq!(zstd.decompress(&packed, 27).unwrap(), b"one and two and one and two");
            assert_eq!(zstd.compress(b"one and two and one and two").unwrap(), packed);
        }
        assert_eq!((zstd.compressors.lock().len(), zstd.decompressors.lock().len()), (1, 1));
    }
}
