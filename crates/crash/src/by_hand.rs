//! Workloads on names that are written by hand: name, what could go wrong, [script](crate::script).

pub(crate) const BY_HAND: &[(&str, &str, &str)] = &[
    (
        "replace-ten-times",
        "a new file takes the name of the one before, again and again, home and not",
        "bare,create-foo+append-foo+rename-foo-A/foo,create-foo+append-foo+rename-foo-A/foo,home,\
         create-foo+append-foo+rename-foo-A/foo,create-foo+append-foo+rename-foo-A/foo,create-foo+rename-foo-A/foo,kill,\
         create-foo+append-foo+rename-foo-A/foo,create-foo+append-foo+rename-foo-A/foo,create-foo+append-foo+rename-foo-A/foo,\
         create-foo+append-foo+rename-foo-A/foo,create-foo+append-foo+rename-foo-A/foo,home",
    ),
    (
        "circle-of-files",
        "three names swap their files, in a circle, through a fourth",
        "bare,create-foo+append-foo,create-bar+append-bar,home,\
         rename-foo-baz+rename-bar-foo+rename-A/foo-bar+rename-baz-A/foo,home,append-foo",
    ),
    (
        "circle-of-directories",
        "two directories swap names, a third goes where they were",
        "dirs,create-B/foo,home,rename-A-C+rename-B-A+rename-C-B+rename-B/C-C,home,append-A/foo+append-B/foo",
    ),
    (
        "out-of-the-old-into-the-new",
        "a directory moves out of one that is removed, into one that is made",
        "bare,mkdir-A/C+create-A/C/foo+append-A/C/foo,home,mkdir-B+rename-A/C-B/C+unlink-A/foo+rmdir-A,home,append-B/C/foo",
    ),
    (
        "out-and-again",
        "a file moves out, its directory is removed and made again, with another file of that name",
        "dirs,rename-A/foo-B/foo,rmdir-A/C+rmdir-A,mkdir-A,create-A/foo+append-A/foo,home,write-B/foo",
    ),
    (
        "out-and-again-at-once",
        "the same in one group, and again while nothing is home",
        "dirs,rename-A/foo-B/foo+rmdir-A/C+rmdir-A+mkdir-A+create-A/foo+append-A/foo,\
         rename-A/foo-B/bar+rmdir-A+mkdir-A+rename-B/foo-A/foo,home",
    ),
    (
        "second-name",
        "a file loses the name that it was known by, and is written to by its other one",
        "bare,link-A/foo-foo,home,unlink-A/foo,write-foo,kill,append-foo,home",
    ),
    (
        "second-name-not-home",
        "the same before anything is home, and the directory goes too",
        "bare,link-A/foo-foo+write-foo,unlink-A/foo+rmdir-A,append-foo,kill,link-foo-bar+unlink-foo,home,write-bar",
    ),
    (
        "open-without-a-name",
        "a file is written to after its last name has gone, while that goes home and while the process dies",
        "bare,unlink-A/foo,write-@A/foo,home,append-@A/foo,create-A/foo+append-A/foo,kill,write-A/foo,home",
    ),
    (
        "born-without-a-name",
        "a new file loses its name at once and is written to; another is replaced",
        "bare,create-foo+append-foo+unlink-foo,append-@foo,home,append-@foo,\
         create-bar+append-bar,create-foo,rename-foo-bar,append-@bar+append-bar,home",
    ),
    (
        "come-and-gone",
        "what comes and goes between two checkpoints never gets home",
        "bare,create-foo+append-foo,unlink-foo,mkdir-B+create-B/foo,unlink-B/foo+rmdir-B,fifo-foo,unlink-foo,home,\
         symlink-A-foo+unlink-foo,create-foo,home",
    ),
    (
        "kinds",
        "one name for a file, a link, a FIFO, a directory, and a file again",
        "bare,create-foo+append-foo,home,unlink-foo+symlink-A/foo-foo,home,unlink-foo,fifo-foo,kill,\
         unlink-foo+mkdir-foo,home,rmdir-foo+create-foo,home",
    ),
    (
        "through-a-link",
        "paths that lead through a symbolic link, which then moves",
        "bare,symlink-A-B,write-B/foo,create-B/bar+append-B/bar,home,rename-B-C,create-A/C,unlink-C,mkdir-B,kill,link-A/bar-B/bar,home",
    ),
    (
        "tree-dies",
        "a tree is made, and the process dies before any of it is home",
        "bare,mkdir-B+mkdir-B/C+create-B/C/foo+append-B/C/foo+link-B/C/foo-foo,kill,append-foo,rename-B/C-C,kill,\
         home,unlink-foo,home",
    ),
    (
        "tree-moves",
        "a tree that is home moves, with what is new in it and what moved into it before",
        "dirs,create-A/bar+append-A/bar,rename-A/foo-A/C/foo,rename-A-B/C,append-B/C/bar,home,create-foo",
    ),
    (
        "in-each-other",
        "directories change who is in whom",
        "dirs,rename-A/C-C,rename-A-B/C,home,rename-B/C-A,rename-B-A/C,kill,home,write-A/foo",
    ),
    (
        "exchanges",
        "files, a file and a directory, two directories change places",
        "dirs,create-foo+append-foo,exchange-A/foo-foo,exchange-B-foo,home,exchange-A-foo,append-B,exchange-A-foo+exchange-A/C-B,home",
    ),
    (
        "emptied",
        "a directory is emptied in one way each, and removed",
        "dirs,rename-A/foo-foo+rmdir-A/C+rmdir-A,home,mkdir-A+rename-foo-A/foo,link-A/foo-B/foo,unlink-A/foo,rmdir-A,kill,home",
    ),
    (
        "names-alone",
        "calls outside of groups",
        "bare,call.create-foo,call.append-foo,call.mkdir-B,call.rename-foo-B/foo,call.link-B/foo-foo,call.symlink-B-bar,\
         call.unlink-B/foo,home,call.fifo-A/bar,call.rmdir-B,call.exchange-foo-A/foo,kill,call.noreplace-A-B,home",
    ),
    (
        "names-aborted",
        "groups that abort, and the same names for others",
        "bare,abort.create-foo+append-foo+rename-A/foo-bar,create-foo+append-foo,abort.unlink-foo+mkdir-foo+create-B,\
         abort.rename-A-B,mkdir-B,rename-A/foo-B/foo,home",
    ),
    (
        "names-at-once",
        "groups that run at the same time in one directory",
        "dirs,create-A/bar%rename-A/foo-B/foo,create-foo+append-foo%create-bar,unlink-foo%link-bar-A/foo,home,\
         rmdir-A/C%create-B/bar,unlink-A/bar%unlink-bar,home",
    ),
    (
        "names-in-parts",
        "groups that change names and fill several segments",
        "bare,create-foo+fill-foo+rename-A/foo-bar+fill-bar+mkdir-B+create-B/foo+fill-B/foo+link-foo-B/bar,\
         unlink-foo+fill-B/bar+fill-B/foo+fill-bar+rename-bar-foo,kill,rename-B-A/C,home",
    ),
    (
        "names-in-a-full-log",
        "checkpoints in the middle of groups that change names",
        "bare.tight,create-foo+grow-foo+append-foo,mkdir-B+rename-foo-B/foo,link-B/foo-foo,unlink-B/foo+rmdir-B,\
         create-bar+append-bar,rename-bar-foo,rename-foo-A/foo,create-foo,symlink-foo-bar,unlink-foo,mkdir-foo,rmdir-foo,\
         create-foo+append-foo,rename-foo-baz,rename-A-B,close,append-B/foo",
    ),
];
