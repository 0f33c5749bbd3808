//! The tools by which a system is built, as one group: `dpkg` and `apt-get`, in a Debian system of its own in a
//! directory. It takes minutes, and so happens only with `WHOLLY_LONG=1`. Nothing is asked of the network but for that
//! system, which is kept.

use super::common::programs::{NOTHING, Program};
use super::common::proof::wholly_or_not_at_all;
use super::common::root::Root;
use super::common::run::{Rig, shell, succeeds};
use super::common::{has_debian, may_run, skipped};

/// Two packages, of which one needs the other, with scripts and a file of configuration, and a repository of them.
const TOOLS: &str = r##"
build() {
    mkdir -p $1/DEBIAN
    printf 'Package: %s\nVersion: 1.0\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\nDescription: for a test\n%s' $1 "$2" > $1/DEBIAN/control
    find $1 -exec touch -h -d 2001-02-03 {} +
    SOURCE_DATE_EPOCH=981173106 dpkg-deb --root-owner-group -Znone -b $1 $1.deb > $1.log
    { dpkg-deb -f $1.deb; printf 'Filename: ./%s.deb\nSize: %s\nSHA256: %s\n\n' $1 $(stat -c %s $1.deb) $(sha256sum $1.deb | cut -d' ' -f1); } >> Packages
}
mkdir -p greeting/usr/share/greeting greeting/etc greeting/DEBIAN greeter/usr/bin
for i in $(seq 300); do seq $i > greeting/usr/share/greeting/$i; done
ln greeting/usr/share/greeting/7 greeting/usr/share/greeting/linked
ln -s 8 greeting/usr/share/greeting/link
echo 'greeting = hello' > greeting/etc/greeting.conf
echo /etc/greeting.conf > greeting/DEBIAN/conffiles
printf '#!/bin/sh\nset -e\nmkdir -p /var/lib/greeting\necho $1 > /var/lib/greeting/state\n' > greeting/DEBIAN/postinst
printf '#!/bin/sh\nset -e\nrm -rf /var/lib/greeting\n' > greeting/DEBIAN/prerm
chmod 755 greeting/DEBIAN/postinst greeting/DEBIAN/prerm
build greeting ''
printf '#!/bin/sh\ncat /usr/share/greeting/2\n' > greeter/usr/bin/greeter
chmod 755 greeter/usr/bin/greeter
build greeter 'Depends: greeting (>= 1.0)
'
cp -a $CACHE/debian root
mkdir root/packages
cp greeting.deb greeter.deb Packages root/packages
rm -f root/etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/packages ./' > root/etc/apt/sources.list
echo 'APT::Sandbox::User "root";' > root/etc/apt/apt.conf.d/99test
chroot root apt-get -q update > update.log
"##;

/// What has times in it, or hashes of paths and times.
const VARIES: &[&str] = &[
    "var/log/dpkg.log",
    "var/log/apt/history.log",
    "var/log/apt/term.log",
    "var/log/apt/eipp.log.xz",
    "var/cache/apt/pkgcache.bin",
    "var/cache/apt/srcpkgcache.bin",
];

const PACKAGES: Program = Program {
    tools: TOOLS,
    needs: &["dpkg-deb", "chroot"],
    varies: VARIES,
    before: "cp -a $TOOLS/root/. .",
    asks: "chroot . dpkg -l && chroot . dpkg --audit && chroot . dpkg --verify && if [ -e usr/bin/greeter ]; then chroot . greeter; fi",
    ..NOTHING
};

fn as_one_group(program: &'static Program) {
    let _turn = crate::PACKAGES_TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if has_debian() {
        wholly_or_not_at_all(program, 2);
    }
}

#[test]
fn dpkg_installs() {
    const PROGRAM: Program = Program { name: "dpkg-i", script: "chroot . dpkg -i /packages/greeting.deb", ..PACKAGES };
    as_one_group(&PROGRAM);
}

#[test]
fn apt_get_installs() {
    const PROGRAM: Program =
        Program { name: "apt-get-install", script: "chroot . apt-get -q -y install greeter", ..PACKAGES };
    as_one_group(&PROGRAM);
}

#[test]
fn apt_get_removes() {
    const PROGRAM: Program = Program {
        name: "apt-get-remove",
        before: "cp -a $TOOLS/root/. . && chroot . apt-get -q -y install greeter > /dev/null",
        script: "chroot . apt-get -q -y remove greeter greeting",
        ..PACKAGES
    };
    as_one_group(&PROGRAM);
}

/// As a user of that system does it: the root directory is the group.
#[test]
fn apt_get_installs_and_removes_in_the_root_directory() {
    let _turn = crate::PACKAGES_TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let Some(rig) = Rig::new("apt-get-root").filter(|_| has_debian() && may_run(PACKAGES.needs)) else { return };
    let tools = rig.dir("tools", "");
    succeeds(shell(&tools, TOOLS).env("CACHE", env!("CARGO_TARGET_TMPDIR")));
    let dir = tools.join("root");
    std::fs::create_dir(dir.join("var/inner")).unwrap();
    std::fs::write(dir.join("usr/bin/wholly"), "").unwrap();
    let root = Root::of(&dir);
    if !root.command(&["wholly", "--version"]).status().unwrap().success() {
        return skipped("this binary does not run in that system");
    }
    let before = root.does("dpkg -l; ls -A / /usr/bin /usr/share");
    let runs = |script: &str, code: i32| {
        let output = root.run(&[], script);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    };
    runs("apt-get -q -y install greeter && greeter && exit 9", 9);
    assert_eq!(root.does("dpkg -l; ls -A / /usr/bin /usr/share"), before);
    runs("apt-get -q -y install greeter", 0);
    assert_eq!(
        root.does("greeter; cat /var/lib/greeting/state; dpkg --audit; dpkg --verify greeter greeting"),
        "1\n2\nconfigure\n"
    );
    runs("apt-get -q -y purge greeter greeting", 0);
    assert_eq!(root.does("dpkg -l; ls -A / /usr/bin /usr/share"), before);
}
