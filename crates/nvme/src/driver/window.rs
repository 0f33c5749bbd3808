//! The window of each queue: entries from its head up to its tail, which the region keeps. After a crash these are the
//! transactions that may be on the medium wholly, in part, or not at all (ccNVMe, section 4.4).
//!
//! The window is read as a value. Reading changes nothing, so recovery can be interrupted and repeated.

use wholly_blocks::{BLOCK, Lba, Run, Txid};
use wholly_error::Result;
use zerocopy::FromBytes;

use super::layout::{LINE, Layout, Life};
use crate::spec::{Command, io};
use crate::transport::PersistentRegion;

/// What the region tells of the life that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Window {
    /// What was not finished, of each queue. A transaction that is not there is on the medium wholly, or none of it is.
    Known {
        /// The life that it is the window of. It tells something only about this volume in this incarnation.
        life: Life,
        /// A window for each queue.
        queues: Vec<QueueWindow>,
    },
    /// The region does not tell, for this reason: any transaction may be on the medium in part.
    Unknown(String),
}

/// The unfinished transactions of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueWindow {
    /// In their order.
    pub transactions: Vec<Unfinished>,
    /// Entries that tell of no transaction. They had not all arrived when the power failed, so the device was never
    /// told of them: nothing of their transactions is on the medium.
    pub unreadable: u32,
}

/// A transaction that had not been completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Its number.
    pub txid: Txid,
    /// Whether its commit is there, too. If not, not all of it was handed to the device.
    pub is_committed: bool,
    /// The blocks that its entries write.
    pub runs: Vec<Run>,
}

impl Window {
    /// Reads it. Fails only if the region cannot be read at all.
    ///
    /// # Errors
    /// The transport's.
    pub fn read(region: &dyn PersistentRegion) -> Result<Window> {
        let mut line = [0; LINE as usize];
        if region.len() < LINE {
            return Ok(Window::Unknown(format!("the region has {} bytes", region.len())));
        }
        region.read(0, &mut line)?;
        let (layout, life) = match Layout::read(&line, region.len()) {
            Ok(found) => found,
            Err(why) => return Ok(Window::Unknown(why)),
        };
        let mut queues = Vec::with_capacity(layout.queues.into());
        for queue in 0..layout.queues {
            let word = |at| {
                let mut bytes = [0; 4];
                region.read(at, &mut bytes).map(|()| u32::from_le_bytes(bytes))
            };
            let (head, tail) = (word(layout.head(queue))?, word(layout.tail(queue))?);
            let length = tail.wrapping_sub(head);
            if length >= layout.depth {
                let why = format!("queue {queue} has its head at {head} and its tail at {tail}, of {}", layout.depth);
                return Ok(Window::Unknown(why));
            }
            let entry = |count: u32| {
                let mut bytes = [0; Command::BYTES];
                region.read(layout.entry(queue, count), &mut bytes)?;
                Ok(Command::read_from_bytes(&bytes).expect("as many bytes"))
            };
            // The slot before the head is never used while the head stands there: it has the last finished transaction.
            let finished = entry(head.wrapping_sub(1))?.txid.get();
            let entries: Result<Vec<Command>> = (0..length).map(|i| entry(head.wrapping_add(i))).collect();
            queues.push(QueueWindow::of(&entries?, finished, layout.lba_bytes));
        }
        Ok(Window::Known { life, queues })
    }
}

impl QueueWindow {
    /// Of entries that come after the transaction `finished`. Numbers increase in a queue: an entry whose number is not
    /// greater is one of an earlier round.
    fn of(entries: &[Command], finished: u64, lba_bytes: u32) -> QueueWindow {
        let mut window = QueueWindow::default();
        let mut last = finished;
        for entry in entries {
            let txid = entry.txid.get();
            let open = window.transactions.last_mut().filter(|tx| tx.txid.0 == txid && !tx.is_committed);
            let is_next = open.is_some() || txid > last;
            if entry.opcode != io::WRITE || !entry.is_of_transaction() || !is_next {
                window.unreadable += 1;
                continue;
            }
            last = txid;
            let bytes = |blocks: u64| blocks.saturating_mul(lba_bytes.into());
            let start = bytes(entry.start()) / BLOCK as u64;
            let run = Run { start: Lba(start), count: bytes(entry.count().into()).div_ceil(BLOCK as u64) };
            match open {
                Some(tx) => {
                    tx.runs.push(run);
                    tx.is_committed = entry.is_commit();
                }
                None => window.transactions.push(Unfinished {
                    txid: Txid(txid),
                    is_committed: entry.is_commit(),
                    runs: vec![run],
                }),
            }
        }
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(txid: u64, block: u64, is_commit: bool) -> Command {
        Command::transfer(io::WRITE, 1, 8 * block, 8).of_transaction(Txid(txid), is_commit)
    }

    #[test]
    fn entries_are_grouped_by_transaction() {
        let entries = [entry(5, 1, false), entry(5, 7, true), entry(9, 2, true), entry(11, 3, false)];
        let window = QueueWindow::of(&entries, 4, 512);
        let found: Vec<_> = window.transactions.iter().map(|tx| (tx.txid.0, tx.is_committed, tx.runs.len())).collect();
        assert_eq!(found, [(5, true, 2), (9, true, 1), (11, false, 1)]);
        assert_eq!(window.transactions[0].runs, [Run { start: Lba(1), count: 1 }, Run { start: Lba(7), count: 1 }]);
        assert_eq!(window.unreadable, 0);
    }

    /// A new tail arrived, and not all entries before it.
    #[test]
    fn entries_of_an_earlier_round_are_no_transactions() {
        let flush = Command::new(io::FLUSH, 1);
        let window = QueueWindow::of(&[entry(3, 1, true), entry(9, 2, true), flush, entry(4, 1, true)], 4, 512);
        assert_eq!(window.transactions.iter().map(|tx| tx.txid.0).collect::<Vec<_>>(), [9]);
        assert_eq!(window.unreadable, 3);
    }
}
