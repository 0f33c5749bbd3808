//! Programs of an ordinary user in a view and in a plain directory: the same exit codes, and the same files afterwards.
//! What differs is said and tried, too.

use super::{Rig, is_root};
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// Each line is a script, whose exit code is compared.
const SCRIPTS: &str = r#"
cat rootfile
echo a >> rootfile
cat secret
cat shared
echo a >> shared
chmod 600 rootfile
touch secret
cat others/in
echo a > others/b
rm -f others/in
rmdir others
test -r secret
ln rootfile lroot
cat own27
echo a >> own27
echo a >> own100
chmod 600 own27
chmod g+s own27
chmod g+s own100
cat old000
cat old200
cat old400
echo a >> old000
echo a >> old200
echo a >> old400
echo a >> old444
chmod 600 old444 && echo more >> old444 && chmod 444 old444
chmod 600 old000 && echo more >> old000 && chmod 000 old000
chmod 600 old400 && echo more >> old400 && chmod 400 old400
echo a >> old4755
echo a >> old2755
for m in 0 200 400 444; do python3 -c "import os; fd = os.open('new$m', os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o$m); os.write(fd, b'$m'); os.pread(fd, 3, 0)" || exit 1; done
for m in 0 200 400 444; do python3 -c "import os; fd = os.open('big$m', os.O_CREAT | os.O_RDWR, 0o$m); os.write(fd, b'$m' * 700000)" || exit 1; done
mv new0 moved0
cat moved0
chmod 640 moved0 && cat moved0
echo hi > new200
cat new200
echo a >> new400
truncate -s 3 new200
python3 -c "import os, mmap; fd = os.open('mm', os.O_RDWR | os.O_CREAT, 0o400); os.ftruncate(fd, 8192); m = mmap.mmap(fd, 8192); m[0:4] = b'mmap'"
python3 -c "import os; fd = os.open('old600', os.O_RDWR); os.fchmod(fd, 0); os.pwrite(fd, b'zz', 0); os.fchmod(fd, 0o600)"
mkdir ro && echo a > ro/a && chmod 555 ro
echo b > ro/b
rm ro/a
echo aa > ro/a
chmod 400 oldro/a && mv oldro oldro2
chmod 755 oldro2 && echo b > oldro2/b && chmod 000 oldro2
cat oldro2/b
mkdir nox && echo a > nox/a && chmod 600 nox
cat nox/a
ls nox
mkdir wx && echo a > wx/a && chmod 300 wx
cat wx/a
ls wx
echo c > wx/c
mkdir none && echo a > none/a && chmod 000 none
cat none/a
mv none none2
mkdir stk && chmod 1777 stk && echo a > stk/a && rm stk/a && echo b > stk/b
echo a > sg/file
mkdir -p sg/p/q/r
test -g sg/p/q/r
chgrp 1000 sg/file
chmod 2755 sg/file
chmod g-s sg
chmod g+s sg
chgrp 100 old600
chown 1000 old600
chown 0 old600
chown 65534 old600
ln old600 lold
ln old400 l400
ln -s nowhere sl
ln -s old600 sl2 && cat sl2
ln sl lsl
python3 -c "import os; os.setxattr('old600', 'user.a', b'v'); os.setxattr('old600', 'user.b', b''); os.removexattr('old600', 'user.b')"
python3 -c "import os; os.setxattr('old400', 'user.a', b'v')"
python3 -c "import os; os.setxattr('old600', 'trusted.a', b'v')"
python3 -c "import os; os.setxattr('sl', 'user.a', b'v', follow_symlinks=False)"
python3 -c "import os; os.getxattr('old200', 'user.a')"
python3 -c "import os, struct; os.setxattr('old600', 'system.posix_acl_access', struct.pack('<IHHIHHIHHIHHIHHI', 2, 1, 6, 2**32-1, 2, 4, 1000, 4, 4, 2**32-1, 16, 6, 2**32-1, 32, 0, 2**32-1))"
python3 -c "import os, struct; os.mkdir('dacl'); os.setxattr('dacl', 'system.posix_acl_default', struct.pack('<IHHIHHIHHIHHIHHI', 2, 1, 7, 2**32-1, 4, 5, 2**32-1, 8, 6, 1000, 16, 7, 2**32-1, 32, 0, 2**32-1)); open('dacl/made', 'w').write('x')"
echo a >> named && chmod 640 named
mkfifo fifo
mkfifo -m 000 fifo0
mknod nul c 1 3
python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('sock')"
mkdir -p a/b/c/d
rm -r a/b
touch -d 2001-02-03 old444
touch -d 2001-02-03 old000
chmod u+s old600 && test -u old600
echo a >> old600 && test ! -u old600
test -x old400
test -w old400
echo '#!/bin/sh' > prog; chmod 111 prog; ./prog
chmod 755 prog; ./prog
install -m 0444 old600 inst
install -d -m 0711 instd
sed -i s/o/0/ old600
sed -i s/o/0/ old444
mkdir src; echo 1 > src/1; chmod 400 src/1; echo 2 > src/2; chmod 000 src/2; mkdir src/d; echo 3 > src/d/3; chmod 555 src/d; ln -s 1 src/l; ln src/1 src/h; mkfifo src/f; touch -d 2001-02-03 src/1 src/d
cp -a src dst
rsync -a src/ rs/
tar cf t.tar src; mkdir un && tar xf t.tar -C un; chmod -R u+w un
rm t.tar
git init -q g && cd g && git config user.email a@b && git config user.name n && echo 1 > 1 && git add . && git commit -qm 1 && git gc -q && git clone -q . ../g2
rm -rf g/.git g2/.git
"#;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// A list of permissions that names somebody whom the namespace of the view does not have.
fn names_somebody_else() -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in [(1u16, 6u16, u32::MAX), (2, 4, 33), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)]
    {
        list.extend([&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    list
}

/// Makes what the scripts find, with as much of others' as may be had.
fn prepare(dir: &Path) {
    let write = |name: &str, mode: u32, owner: Option<(u32, u32)>| {
        let path = dir.join(name);
        std::fs::write(&path, format!("{name}\n")).unwrap();
        if let Some((uid, gid)) = owner.filter(|_| is_root()) {
            chown(&path, Some(uid), Some(gid)).unwrap();
        }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    };
    let mine = Some((1000, 1000));
    for name in ["others", "sg", "oldro"] {
        std::fs::create_dir(dir.join(name)).unwrap();
    }
    write("rootfile", 0o644, None);
    write("secret", 0o600, None);
    write("shared", 0o640, Some((0, 27)));
    write("others/in", 0o644, None);
    write("own27", 0o640, Some((1000, 27)));
    write("own100", 0o640, Some((1000, 100)));
    for mode in [0, 0o200, 0o400, 0o444, 0o600, 0o4755, 0o2755] {
        write(&format!("old{mode:03o}"), mode, mine);
    }
    write("oldro/a", 0o600, mine);
    write("named", 0o600, mine);
    lsetxattr(dir.join("named"), ACCESS, &names_somebody_else(), XattrFlags::empty()).unwrap();
    for (name, owner, mode) in [("sg", (1000, 27), 0o2770), ("oldro", (1000, 1000), 0o555)] {
        if is_root() {
            chown(dir.join(name), Some(owner.0), Some(owner.1)).unwrap();
        }
        std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
}

/// Of each path: type and bits, owner, group, names, content or target, attributes, and its time where the scripts have
/// set that.
type Tree = BTreeMap<PathBuf, (u32, u32, u32, u64, Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>, Option<i64>)>;

fn tree(dir: &Path) -> Tree {
    let (mut all, mut todo) = (Tree::new(), vec![dir.to_owned()]);
    while let Some(at) = todo.pop() {
        for entry in std::fs::read_dir(&at).into_iter().flatten() {
            let path = entry.unwrap().path();
            let stat = std::fs::symlink_metadata(&path).unwrap();
            let kind = stat.file_type();
            let content = match () {
                () if kind.is_file() => std::fs::read(&path).unwrap_or_default(),
                () if kind.is_symlink() => std::fs::read_link(&path).unwrap().into_os_string().into_vec(),
                () => Vec::new(),
            };
            if kind.is_dir() {
                todo.push(path.clone());
            }
            let names = if kind.is_dir() { 0 } else { stat.nlink() };
            let time = Some(stat.mtime()).filter(|time| *time < 1_000_000_000);
            let seen = (stat.mode(), stat.uid(), stat.gid(), names, content, attributes(&path), time);
            all.insert(path.strip_prefix(dir).unwrap().into(), seen);
        }
    }
    all
}

fn attributes(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0; 4096];
    let length = llistxattr(path, &mut names[..]).unwrap_or(0);
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut all: Vec<_> = names
        .map(|name| {
            let mut value = vec![0; 4096];
            let length = lgetxattr(path, OsString::from_vec(name.to_vec()), &mut value[..]).unwrap_or(0);
            (name.to_vec(), value[..length].to_vec())
        })
        .collect();
    all.sort();
    all
}

/// A script that runs each line of `scripts` by itself and prints how it has ended.
fn each(scripts: &str) -> String {
    let lines = scripts.lines().filter(|line| !line.is_empty()).enumerate();
    let quoted =
        lines.map(|(i, line)| format!("sh -c '{}' >/dev/null 2>&1; echo \"{i}: $?\"\n", line.replace('\'', "'\\''")));
    format!("umask 022\n{}", quoted.collect::<String>())
}

/// What ended otherwise: the script, and the two lines.
fn differences(scripts: &str, plain: &str, view: &str) -> Vec<String> {
    let lines: Vec<&str> = scripts.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!((plain.lines().count(), view.lines().count()), (lines.len(), lines.len()), "{plain}\n{view}");
    let pairs = lines.iter().zip(plain.lines().zip(view.lines()));
    pairs
        .filter(|(_, (plain, view))| plain != view)
        .map(|(line, (plain, view))| format!("{plain}, {view}: {line}"))
        .collect()
}

#[test]
fn calls_end_as_without_it_and_leave_the_same() {
    let Some(rig) = Rig::new("calls") else { return };
    let (plain, view) = (rig.dir("plain", ""), rig.dir("view", ""));
    for dir in [&plain, &view] {
        prepare(dir);
    }
    let script = each(SCRIPTS);
    let of_plain = rig.as_user(&plain, &["sh", "-c", &script]).output().unwrap();
    let of_view = rig.run(&view, &[], &script);
    assert!(of_plain.status.success() && of_view.status.success(), "{of_plain:?} {of_view:?}");
    let (said, wanted) = (String::from_utf8(of_view.stdout).unwrap(), String::from_utf8(of_plain.stdout).unwrap());
    assert_eq!(differences(SCRIPTS, &wanted, &said), Vec::<String>::new());
    let (is, wanted) = (tree(&view), tree(&plain));
    let all: Vec<_> = is.keys().chain(wanted.keys()).filter(|path| is.get(*path) != wanted.get(*path)).collect();
    let told: Vec<_> = all.iter().map(|path| (path, is.get(*path), wanted.get(*path))).collect();
    assert!(all.is_empty(), "{told:?}");
    assert!(is.len() > 60, "the scripts have done something");
}

/// What the kernel does not let a mount of a user namespace have, and docs/run.md says.
#[test]
fn what_differs_is_known() {
    let Some(rig) = Rig::new("differs") else { return };
    if !is_root() {
        println!("skipped: it takes the superuser to make files of others");
        return;
    }
    const DIFFERS: &str = "rm -f rootfile\nmv shared shared2\nchgrp 27 old600\n\
                           python3 -c \"import os; os.getxattr('named', 'system.posix_acl_access')\"\n\
                           test $(stat -c %u rootfile) = 0\ntest $(stat -c %g own27) = 27\n";
    let (plain, view) = (rig.dir("plain", ""), rig.dir("view", ""));
    for dir in [&plain, &view] {
        prepare(dir);
    }
    let of_view = rig.run(&view, &[], &each(DIFFERS));
    let of_plain = rig.as_user(&plain, &["sh", "-c", &each(DIFFERS)]).output().unwrap();
    let (said, wanted) = (String::from_utf8(of_view.stdout).unwrap(), String::from_utf8(of_plain.stdout).unwrap());
    let differ = differences(DIFFERS, &wanted, &said);
    assert_eq!(differ.len(), DIFFERS.lines().count(), "{differ:?}");
    assert!(view.join("rootfile").exists() && std::fs::metadata(view.join("own27")).unwrap().gid() == 27);
}

/// A program that copies a file with its list is told that it cannot. Whatever else it does, lists stay, and new files
/// get their directory's.
#[test]
fn lists_that_name_others_are_kept_or_the_call_is_refused() {
    let Some(rig) = Rig::new("lists") else { return };
    let dir = rig.dir("dir", "umask 022; echo old > named; mkdir with; echo old > with/there");
    for (path, name) in [("named", ACCESS), ("with", DEFAULT)] {
        lsetxattr(dir.join(path), name, &names_somebody_else(), XattrFlags::empty()).unwrap();
    }
    let script = "export LC_ALL=C\n\
                  for call in 'cp -a named copy' 'echo new > with/new' 'mkdir with/dir' 'cp named plain' \
                  'echo new >> named' 'echo new >> with/there' 'chmod 640 named'; do\n\
                  sh -c \"$call\" 2>&1; echo \"$call: $?\"; done";
    let run = rig.run(&dir, &[], script);
    let said = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{said}");
    let failed: Vec<&str> = said.lines().filter(|line| line.contains(": ") && !line.ends_with(": 0")).collect();
    assert_eq!(failed.len(), 2, "{said}");
    assert!(failed[0].ends_with("Value too large for defined data type"), "{said}");
    assert_eq!(failed[1], "cp -a named copy: 1");
    for (path, name) in [("named", ACCESS), ("with", DEFAULT), ("with/new", ACCESS), ("with/dir", DEFAULT)] {
        let names = |list: Vec<(Vec<u8>, Vec<u8>)>| list.into_iter().find(|one| one.0 == name.as_bytes()).unwrap().1;
        let list = names(attributes(&dir.join(path)));
        assert_eq!(list[12..20], names_somebody_else()[12..20], "{path}");
    }
    assert_eq!(std::fs::read(dir.join("named")).unwrap(), b"old\nnew\n");
}

/// `sed -i` goes on where it cannot copy the list, and exits with 0.
#[test]
fn a_file_that_is_replaced_by_a_new_one_keeps_a_list_that_names_others() {
    let Some(rig) = Rig::new("replaced-list") else { return };
    let dir = rig.dir("dir", "umask 022; echo old > named; echo old > other; echo old > plain");
    for path in ["named", "other"] {
        lsetxattr(dir.join(path), ACCESS, &names_somebody_else(), XattrFlags::empty()).unwrap();
    }
    let before = std::fs::metadata(dir.join("named")).unwrap().mode();
    // An access list is brought over only if a program has asked for it.
    let script = "sed -i s/old/new/ named plain; echo new > n; mv n other";
    assert!(rig.run(&dir, &[], script).status.success());
    assert_eq!(std::fs::read(dir.join("named")).unwrap(), b"new\n");
    assert_eq!(std::fs::metadata(dir.join("named")).unwrap().mode(), before);
    let has = |path: &str| attributes(&dir.join(path)).iter().any(|one| one.0 == ACCESS.as_bytes());
    assert_eq!(["named", "other", "plain"].map(has), [true, false, false]);
}
