//! The example of the tutorial, word for word from the first import on.

use wholly::Store;

fn main() -> wholly::Result<()> {
    let store = Store::open_or_create("notes")?; // recovers, if there was a crash

    let mut group = store.begin();
    let (notes, index) = (group.open_or_create("notes", 0o644)?, group.open_or_create("index", 0o644)?);
    let at = group.append(&notes, b"buy milk\n")?;
    group.append(&index, format!("note at byte {at}\n").as_bytes())?;
    if std::env::args().nth(1).as_deref() == Some("crash") {
        std::process::abort(); // nothing of the group happens
    }
    group.commit()?; // from here on both lines survive a power failure

    store.close() // writes everything back: other programs see both files
}
