//! A buffer that is kept for the next write.

use sync::Mutex;
use wholly_media::disk::AlignedBuf;

/// New memory is slow.
#[derive(Default)]
pub struct Spare(Mutex<Option<AlignedBuf>>);

impl Spare {
    /// Calls `work` with so many bytes. What they hold is of an earlier write.
    pub fn with<T>(&self, len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let spare = self.0.lock().unwrap().take().filter(|spare| spare.len() >= len);
        let mut bytes = spare.unwrap_or_else(|| AlignedBuf::zeroed(len));
        let done = work(&mut bytes[..len]);
        *self.0.lock().unwrap() = Some(bytes);
        done
    }
}
