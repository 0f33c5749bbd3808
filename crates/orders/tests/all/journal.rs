//! Every order that the memory model allows, of small programs over the multi-queue journal.

use wholly_orders::journal;

#[test]
fn nothing_goes_wrong_in_any_order() {
    let is_long = std::env::var_os("WHOLLY_LONG").is_some();
    for model in journal::all() {
        let begun = std::time::Instant::now();
        model.check(is_long).unwrap_or_else(|error| panic!("{}: {error}", model.name));
        println!("{}: {:?}", model.name, begun.elapsed());
    }
}

/// A rig that cannot fail proves nothing.
#[test]
fn a_fresh_block_that_goes_over_one_on_its_way_home_is_seen() {
    let found = journal::with_a_mistake().check(false).expect_err("the mistake is seen");
    println!("{}", found.lines().next().unwrap_or_default());
}
