//! What the transactions of blocks are made of, as far as the engine recovers it and writes it back.

use std::sync::Arc;

use wholly_blocks::log::{LogDevice, RingSeed};
use wholly_error::Result;
use wholly_media::Region;

use super::{recover, ring_of};
use crate::format::Seed;
use crate::format::log::{LogArea, LogSeed};

/// See the module. The defaults are those of a medium that needs nothing of it.
pub trait Below: Send + Sync {
    /// Brings home what a crash has left.
    ///
    /// # Errors
    /// Damage; the medium's.
    fn recover(&self) -> Result<()> {
        Ok(())
    }

    /// A new incarnation is durable: what was there is void.
    ///
    /// # Errors
    /// The medium's.
    fn start(&self, incarnation: u64) -> Result<()> {
        let _ = incarnation;
        Ok(())
    }

    /// All is home: nothing is ordered any more.
    ///
    /// # Errors
    /// The medium's.
    fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Brings home all that is ordered.
    ///
    /// # Errors
    /// The medium's.
    fn write_back(&self) -> Result<()> {
        Ok(())
    }

    /// The same, if it is much.
    ///
    /// # Errors
    /// The medium's.
    fn write_back_due(&self) -> Result<()> {
        Ok(())
    }

    /// Whether it is much.
    fn has_much(&self) -> bool {
        false
    }

    /// The most images that it has room for.
    fn images(&self) -> Option<u64> {
        None
    }

    /// The log, if it is one.
    #[cfg(test)]
    fn log(&self) -> Option<&LogDevice> {
        None
    }
}

/// On the volume's log.
pub struct OnLog {
    pub region: Arc<dyn Region>,
    pub log: Arc<LogDevice>,
    pub area: LogArea,
    pub volume: Seed,
}

impl Below for OnLog {
    fn recover(&self) -> Result<()> {
        recover::recover(&*self.region, &self.area, self.log.seed())
    }

    fn start(&self, incarnation: u64) -> Result<()> {
        self.log.start(LogSeed::of(self.volume, incarnation).ring(), incarnation);
        Ok(())
    }

    fn write_back(&self) -> Result<()> {
        self.log.write_back()
    }

    fn write_back_due(&self) -> Result<()> {
        self.log.write_back_due()
    }

    fn has_much(&self) -> bool {
        self.log.has_much()
    }

    fn images(&self) -> Option<u64> {
        Some(ring_of(&self.area).blocks)
    }

    #[cfg(test)]
    fn log(&self) -> Option<&LogDevice> {
        Some(&self.log)
    }
}

/// On a medium with transactions of its own.
pub struct OnMedium {
    pub region: Arc<dyn Region>,
    /// The log of a volume that was on a medium without transactions before, and its seed.
    pub former: Option<(LogArea, RingSeed)>,
}

impl Below for OnMedium {
    fn recover(&self) -> Result<()> {
        self.former.as_ref().map_or(Ok(()), |(area, seed)| recover::recover(&*self.region, area, *seed))
    }
}
