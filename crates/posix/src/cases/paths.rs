//! The way to the last part of a path.

use wholly_vfs::follow::LINKS_MAX;
use wholly_vfs::{Errno, Ino, OFlags};

use crate::check::{Outcome, fails, same};
use crate::suite::table;
use crate::tree::Tree;

table!("paths";
    an_empty_path_names_nothing, slashes_count_once, dots_stay_and_go_up, dots_need_what_is_before_them,
    absolute_paths_start_at_the_root, links_are_followed_on_the_way, links_at_the_end_are_followed_on_request,
    slashes_follow_links, links_start_where_they_are, absolute_links_start_at_the_root, links_up_stay_beneath_the_root,
    forty_links_are_followed, links_in_a_circle, a_link_to_itself, dangling_links, create_follows_dangling_links,
    create_excl_follows_no_link, nofollow_refuses_links, links_to_files_on_the_way, long_targets_are_walked,
    nul_is_in_no_path;
    users: search_permission_is_asked_on_the_way,
);

fn an_empty_path_names_nothing(t: &Tree<'_>) -> Outcome {
    fails(t.stat(""), Errno::NOENT)?;
    fails(t.create("", 0o644), Errno::NOENT)?;
    fails(t.mkdir("", 0o755), Errno::NOENT)?;
    fails(t.unlink(""), Errno::NOENT)?;
    fails(t.rename("", "x"), Errno::NOENT)
}

fn slashes_count_once(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    let file = t.create("d/f", 0o644)?;
    same(t.stat("d//f")?.ino, file.ino)?;
    same(t.stat("///case////d/./f")?.ino, file.ino)
}

fn dots_stay_and_go_up(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.mkdir("d/e", 0o755)?;
    let file = t.create("f", 0o644)?;
    for path in ["./f", "d/../f", "d/./e/../../f", "d/e/../e/../../f", "../case/f", "../../../../case/f"] {
        same(t.stat(path)?.ino, file.ino)?;
    }
    same(t.stat("d/e/..")?.ino, t.stat("d")?.ino)?;
    same(t.stat("d/e/.")?.ino, t.stat("d/e")?.ino)
}

fn dots_need_what_is_before_them(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    fails(t.stat("f/."), Errno::NOTDIR)?;
    fails(t.stat("f/.."), Errno::NOTDIR)?;
    fails(t.stat("x/.."), Errno::NOENT)
}

fn absolute_paths_start_at_the_root(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    same(t.stat("/case/f")?.ino, file.ino)?;
    same(t.stat("/")?.ino, Ino::ROOT)?;
    t.mkdir("/case/d", 0o755)?;
    Ok(t.rmdir("d")?)
}

fn links_are_followed_on_the_way(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.symlink("l", "d")?;
    t.file("l/f", 0o644, b"abc")?;
    same(t.content("d/f")?, b"abc".to_vec())?;
    t.rename("l/f", "l/g")?;
    t.unlink("l/g")?;
    same(t.names("d")?, vec![])
}

fn links_at_the_end_are_followed_on_request(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    let link = t.symlink("l", "f")?;
    same(t.stat("l")?.ino, link.ino)?;
    same(t.stat_followed("l")?.ino, file.ino)?;
    same(t.content("l")?, b"abc".to_vec())
}

fn slashes_follow_links(t: &Tree<'_>) -> Outcome {
    let dir = t.mkdir("d", 0o755)?;
    t.create("f", 0o644)?;
    t.symlink("to-d", "d")?;
    t.symlink("to-f", "f")?;
    same(t.stat("to-d/")?.ino, dir.ino)?;
    same(t.stat("to-d/.")?.ino, dir.ino)?;
    fails(t.stat("to-f/"), Errno::NOTDIR)?;
    fails(t.stat("f/"), Errno::NOTDIR)
}

fn links_start_where_they_are(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.mkdir("d/e", 0o755)?;
    let file = t.create("d/f", 0o644)?;
    t.symlink("d/e/l", "../f")?;
    t.symlink("m", "d/e/l")?;
    same(t.stat_followed("m")?.ino, file.ino)
}

fn absolute_links_start_at_the_root(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    t.mkdir("d", 0o755)?;
    t.symlink("d/l", "/case/f")?;
    t.symlink("d/r", "/")?;
    same(t.stat_followed("d/l")?.ino, file.ino)?;
    same(t.stat_followed("d/r")?.ino, Ino::ROOT)?;
    same(t.stat("d/r/case/f")?.ino, file.ino)
}

fn links_up_stay_beneath_the_root(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    t.symlink("l", "../../../../../case/f")?;
    t.symlink("m", "/../../case/f")?;
    same((t.stat_followed("l")?.ino, t.stat_followed("m")?.ino), (file.ino, file.ino))
}

fn forty_links_are_followed(t: &Tree<'_>) -> Outcome {
    t.mkdir("0", 0o755)?;
    let file = t.file("0/f", 0o644, b"abc")?;
    for number in 1..=LINKS_MAX + 1 {
        t.symlink(format!("{number}"), format!("{}", number - 1))?;
    }
    same(LINKS_MAX, 40)?;
    same(t.stat_followed("40")?.ino, t.stat("0")?.ino)?;
    same(t.stat("40/f")?.ino, file.ino)?;
    fails(t.stat_followed("41"), Errno::LOOP)?;
    fails(t.stat("41/f"), Errno::LOOP)?;
    // They are counted along the whole path.
    same(t.stat("20/../20/f")?.ino, file.ino)?;
    fails(t.stat("20/../21/f"), Errno::LOOP)?;
    // The last one is not followed, so not counted.
    same(t.readlink("41")?, b"40".to_vec())
}

fn links_in_a_circle(t: &Tree<'_>) -> Outcome {
    t.symlink("a", "b")?;
    t.symlink("b", "a")?;
    fails(t.stat_followed("a"), Errno::LOOP)?;
    fails(t.stat("a/x"), Errno::LOOP)?;
    fails(t.open_with("a", OFlags::RDWR | OFlags::CREATE, 0o644), Errno::LOOP)?;
    fails(t.rename("a/x", "y"), Errno::LOOP)?;
    t.rename("a", "c")?;
    fails(t.stat_followed("b"), Errno::NOENT)
}

fn a_link_to_itself(t: &Tree<'_>) -> Outcome {
    t.symlink("a", "a")?;
    t.symlink("b", "./b/c")?;
    fails(t.stat_followed("a"), Errno::LOOP)?;
    fails(t.stat_followed("b"), Errno::LOOP)?;
    Ok(t.unlink("a")?)
}

fn dangling_links(t: &Tree<'_>) -> Outcome {
    t.symlink("l", "x")?;
    fails(t.stat_followed("l"), Errno::NOENT)?;
    fails(t.open("l", OFlags::RDONLY), Errno::NOENT)?;
    fails(t.stat("l/y"), Errno::NOENT)?;
    fails(t.mkdir("l", 0o755), Errno::EXIST)
}

fn create_follows_dangling_links(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.symlink("l", "d/m")?;
    t.symlink("d/m", "n")?;
    let file = t.open_with("l", OFlags::RDWR | OFlags::CREATE, 0o644)?;
    same(t.stat("d/n")?.ino, file.ino)?;
    t.symlink("e", "x/y")?;
    fails(t.open_with("e", OFlags::RDWR | OFlags::CREATE, 0o644), Errno::NOENT)
}

fn create_excl_follows_no_link(t: &Tree<'_>) -> Outcome {
    t.symlink("l", "x")?;
    fails(t.create("l", 0o644), Errno::EXIST)?;
    fails(t.stat("x"), Errno::NOENT)
}

fn nofollow_refuses_links(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.symlink("l", "f")?;
    t.symlink("m", "x")?;
    fails(t.open("l", OFlags::RDONLY | OFlags::NOFOLLOW), Errno::LOOP)?;
    fails(t.open_with("l", OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW, 0o644), Errno::LOOP)?;
    fails(t.open_with("m", OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW, 0o644), Errno::LOOP)
}

fn links_to_files_on_the_way(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.symlink("l", "f")?;
    fails(t.stat("l/x"), Errno::NOTDIR)?;
    fails(t.mkdir("l/x", 0o755), Errno::NOTDIR)
}

fn long_targets_are_walked(t: &Tree<'_>) -> Outcome {
    // Together longer than a path may be.
    t.mkdir("d", 0o755)?;
    t.symlink("d/l", [&b"./".repeat(2000)[..], b"../d"].concat())?;
    let file = t.create("d/f", 0o644)?;
    same(t.stat("d/l/l/l/l/f")?.ino, file.ino)
}

fn nul_is_in_no_path(t: &Tree<'_>) -> Outcome {
    fails(t.stat(b"a\0b"), Errno::INVAL)?;
    fails(t.create(b"a\0b", 0o644), Errno::INVAL)?;
    same(t.names(".")?, vec![])
}

fn search_permission_is_asked_on_the_way(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o666)?;
    t.mkdir("d/e", 0o777)?;
    t.symlink("l", "d/e")?;
    let ann = t.user(super::ANN);
    fails(ann.stat("d/e"), Errno::ACCESS)?;
    fails(ann.stat("d/."), Errno::ACCESS)?;
    fails(ann.stat("d/.."), Errno::ACCESS)?;
    fails(ann.stat("d/x"), Errno::ACCESS)?;
    fails(ann.stat("l/"), Errno::ACCESS)?;
    same(ann.stat("d/")?.ino, t.stat("d")?.ino)?;
    t.chmod("d", 0o711)?;
    same(ann.stat("l/")?.ino, t.stat("d/e")?.ino)
}
