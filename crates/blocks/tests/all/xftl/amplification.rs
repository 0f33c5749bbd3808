//! Write amplification of greedy collection by uniform random overwrites, against the closed form a / (a + W(-a e^-a)),
//! where a is the over-provisioning factor 1 / utilisation and W is Lambert's function. All figures are a model's.
//!
//! The device has 1,024 blocks of 128 pages for content, filled to 70 and 90 %; with `WHOLLY_LONG=1` to 80 and 93 %,
//! too.

use super::*;
use wholly_blocks::xftl::Programs;

/// Lambert's W, the branch through 0, by Newton.
fn lambert(x: f64) -> f64 {
    let mut w = x;
    for _ in 0..200 {
        w -= (w * w.exp() - x) / (w.exp() * (w + 1.0));
    }
    w
}

fn closed_form(utilisation: f64) -> f64 {
    let a = 1.0 / utilisation;
    a / (a + lambert(-a * (-a).exp()))
}

#[test]
fn the_closed_form_is_the_papers() {
    let forms = [0.70, 0.80, 0.90, 0.93].map(|u| (closed_form(u) * 100.0).round() / 100.0);
    assert_eq!(forms, [1.88, 2.69, 5.18, 7.32]);
}

fn content(programs: Programs) -> f64 {
    (programs.data + programs.plain + programs.collection) as f64
}

/// Programs of content for each page that the host writes, once that has become steady: over one capacity it changes by
/// less than 1 %.
fn amplification(blocks: u32, pages: u32, utilisation: f64) -> f64 {
    let logical = (f64::from(blocks * pages) * utilisation) as u32;
    // One of them is the block that is collected into.
    let (geometry, config) = sizes(1, pages, logical, blocks - 1);
    let config = Config { reserve: 16, ..config };
    let geometry = Geometry { blocks: config.blocks(1, pages), ..geometry };
    let flash: Arc<dyn Flash> = Rules::of_flash_only(Ram::new(geometry)).unwrap();
    Device::format(&flash, &config, ID).unwrap();
    let device = Device::open(flash).unwrap();
    let page = Page::zeros();
    let write = |lpn: u64| device.plain_write(SITE, Lba(lpn), &page).unwrap();
    (0..u64::from(logical)).for_each(write);
    let (mut random, mut last) = (Random(42), 0.0);
    loop {
        let before = device.programs();
        (0..blocks * pages).for_each(|_| write(random.below(logical.into())));
        let done = device.programs();
        let host = (done.data + done.plain - before.data - before.plain) as f64;
        let now = (content(done) - content(before)) / host;
        if (now / last - 1.0_f64).abs() < 0.01 {
            let map = done.map - before.map;
            println!(
                "{blocks} blocks of {pages} at {utilisation}: {now:.3} programs a write, closed form {:.3}, ratio {:.3}; \
                 beside them {map} of the map for {host} writes (model)",
                closed_form(utilisation),
                now / closed_form(utilisation)
            );
            return now;
        }
        last = now;
    }
}

#[test]
fn greedy_collection_programs_what_the_closed_form_says() {
    let all: &[f64] = match std::env::var_os("WHOLLY_LONG") {
        Some(_) => &[0.70, 0.80, 0.90, 0.93],
        None => &[0.70, 0.90],
    };
    for utilisation in all {
        let ratio = amplification(1024, 128, *utilisation) / closed_form(*utilisation);
        assert!((0.95..1.05).contains(&ratio), "{ratio} of the closed form at {utilisation}");
    }
}
