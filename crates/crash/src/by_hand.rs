//! Workloads on names that are written by hand: name, what could go wrong, [script](crate::script).

pub(crate) const BY_HAND: &[(&str, &str, &str)] = &[
    (
        "replace-ten-times",
        "a new file takes the name of the one before, again and again, written back and not",
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
        "the same in one group, and again while nothing is written back",
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
        "the same before anything is written back, and the directory goes too",
        "bare,link-A/foo-foo+write-foo,unlink-A/foo+rmdir-A,append-foo,kill,link-foo-bar+unlink-foo,home,write-bar",
    ),
    (
        "open-without-a-name",
        "a file is written to after its last name has gone, while that is written back and while the process dies",
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
        "what comes and goes between two checkpoints is never written back",
        "bare,create-foo+append-foo,unlink-foo,mkdir-B+create-B/foo,unlink-B/foo+rmdir-B,fifo-foo,unlink-foo,home,\
         symlink-A-foo+unlink-foo,create-foo,home",
    ),
    (
        "snapshot",
        "a file has a second name for a while; it is written to when that has gone and is written back",
        "bare,link-A/foo-foo,unlink-foo,home,write-@A/foo,kill,link-A/foo-foo+unlink-foo,append-A/foo,home,append-@A/foo,kill",
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
        "a tree is made, and the process dies before any of it is written back",
        "bare,mkdir-B+mkdir-B/C+create-B/C/foo+append-B/C/foo+link-B/C/foo-foo,kill,append-foo,rename-B/C-C,kill,\
         home,unlink-foo,home",
    ),
    (
        "tree-moves",
        "a tree that is written back moves, with what is new in it and what moved into it before",
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
        "closed-files",
        "files that no program has open are closed, and opened again by checkpoints and readers",
        "bare.closed,create-foo+append-foo+append-A/foo,append-foo+append-A/foo,home,append-A/foo+rename-A/foo-bar,write-bar+cut-foo,\
         lot,rename-foo-A/foo+append-A/foo,pass,home,kill,append-bar+chmod-bar+times-bar,link-bar-foo,unlink-bar+append-foo,home",
    ),
    (
        "closed-and-displaced",
        "files that the store has not open lose one of their names to others, and are changed before and after",
        "bare.closed,link-A/foo-foo+append-foo,home,create-bar+append-bar+rename-bar-A/foo,append-foo,home,append-foo+append-A/foo,\
         home,exchange-foo-A/foo+append-foo,append-A/foo,home,append-foo,exchange-foo-A/foo,append-foo+append-A/foo,home,kill,append-foo,home",
    ),
    (
        "cut-and-regrown",
        "a file of several blocks is cut, and grows again beyond what it was, before that is written back",
        "bare,fill-A/foo+more-A/foo,home,cut-A/foo+grow-A/foo,home,more-A/foo,home,cut-A/foo,grow-A/foo+append-A/foo,kill,home",
    ),
    (
        "names-in-lots",
        "checkpoints write back earlier names, while later groups set the same ones, and more",
        "bare,create-foo+append-foo+mkdir-B,lot,rename-foo-B/foo+append-B/foo,pass,create-foo+fill-foo,lot,rename-A/foo-bar+unlink-foo,\
         lot,mkdir-A/C+create-foo+append-bar,pass,kill,rename-B-A/C+append-bar,lot,create-B+append-bar,pass,pass,home",
    ),
    (
        "names-in-a-full-log",
        "checkpoints in the middle of groups that change names",
        "bare.tight,create-foo+grow-foo+append-foo,mkdir-B+rename-foo-B/foo,link-B/foo-foo,unlink-B/foo+rmdir-B,\
         create-bar+append-bar,rename-bar-foo,rename-foo-A/foo,create-foo,symlink-foo-bar,unlink-foo,mkdir-foo,rmdir-foo,\
         create-foo+append-foo,rename-foo-baz,rename-A-B,close,append-B/foo",
    ),
];

/// On attributes.
pub(crate) const ATTRIBUTES: &[(&str, &str, &str)] = &[
    (
        "attributes-of-the-new",
        "what is made gets attributes with its birth, after it, and after it is written back",
        "bare,create-foo+append-foo+chmod-foo+tag-foo+times-foo,mkdir-B+chmod-B+tag-B+times-B,shut-foo,untag-foo+note-foo,home,\
         chmod-foo+unnote-foo+times-B,home",
    ),
    (
        "attributes-of-closed-files",
        "attributes of files that the store has not open change between their bytes",
        "bare.closed,append-A/foo+tag-A/foo,append-A/foo,home,chmod-A/foo+append-A/foo,times-A/foo,lot,append-A/foo+tag-A/foo,pass,\
         untag-A/foo+write-A/foo,kill,append-A/foo,home,shut-A/foo+append-A/foo,home,append-A/foo",
    ),
    (
        "attributes-on-the-move",
        "a directory moves whose attributes change, before and after, written back and not",
        "dirs,chmod-A+tag-A+times-A,rename-A-B/C,home,tag-B/C+rename-B/C-C,home,chmod-C+times-C,rename-C-A,kill,untag-A,home",
    ),
    (
        "attributes-without-a-name",
        "a file has attributes set, loses its name and is written to; another takes its place",
        "bare,chmod-A/foo+tag-A/foo+unlink-A/foo,write-@A/foo,home,append-@A/foo,create-A/foo+tag-A/foo,kill,chmod-A/foo,\
         times-A/foo,unlink-A/foo,home",
    ),
    (
        "tags",
        "an attribute is set, replaced and removed, written back and not, again and again",
        "bare,newtag-A/foo,retag-A/foo,home,retag-A/foo+note-A/foo,untag-A/foo,home,newtag-A/foo,untag-A/foo,home,\
         tag-A/foo+unnote-A/foo,kill,untag-A/foo+tag-A/foo,home,untag-A/foo,close,tag-A/foo,home",
    ),
    (
        "times-and-bytes",
        "times are set before and after bytes are written, written back and not",
        "bare,times-A/foo,home,write-A/foo,home,times-A/foo+append-A/foo,home,append-A/foo+times-A/foo,home,atime-A/foo,\
         write-A/foo+mtime-A/foo,kill,cut-A/foo,home,mtime-A/foo,grow-A/foo,write-A/foo,times-A/foo,home",
    ),
    (
        "times-of-directories",
        "times of directories are set before and after names in them change",
        "dirs,times-A+create-A/bar,home,create-foo,times-A,home,unlink-A/bar+times-A,times-B,rename-A/C-B/C,home,\
         times-A+times-B,rename-A/foo-B/foo,times-A,home,times-B/C,kill,create-B/bar,times-B,home",
    ),
    (
        "shut",
        "files that nobody may read or write are written to",
        "bare,shut-A/foo,append-A/foo,home,write-A/foo,kill,append-A/foo+chmod-A/foo+shut-A/foo,home,\
         create-foo+shut-foo+append-foo,append-foo,home,write-foo",
    ),
    (
        "attributes-in-parts",
        "groups that set large attributes and fill several segments",
        "bare,\
         note-A/foo+fill-A/foo+note-A+create-foo+fill-foo+note-foo+chmod-foo+times-foo+mkdir-B+note-B+times-B+fill-A/foo+chmod-A/foo,\
         unnote-A/foo+note-foo+fill-foo+note-A+chmod-A,kill,times-A/foo,home",
    ),
    (
        "attributes-of-links",
        "times of symbolic links; times and permission bits of a FIFO",
        "bare,symlink-A/foo-bar+times-bar,symlink-nowhere-baz,home,times-baz,home,mtime-bar,rename-bar-A/bar,atime-A/bar,kill,\
         home,fifo-foo+chmod-foo+times-foo,home,times-foo+shut-foo,home",
    ),
    (
        "attributes-and-deaths",
        "processes die between attributes and their write-back",
        "bare,chmod-A/foo+tag-A/foo+times-A/foo,home,kill,shut-A/foo+untag-A/foo,kill,home,chmod-A/foo,times-A/foo,close,\
         tag-A/foo",
    ),
    (
        "attributes-of-two-names",
        "attributes are set by one name of a file, and the other one goes",
        "bare,link-A/foo-foo,chmod-foo+tag-A/foo,unlink-A/foo,times-foo,home,link-foo-A/foo+shut-A/foo,unlink-foo,home,\
         tag-A/foo,kill,untag-A/foo",
    ),
    (
        "attributes-at-once",
        "groups that run at the same time and change attributes",
        "dirs,chmod-A%create-A/bar,times-A%rename-A/foo-B/foo,tag-A/C%tag-B/foo,chmod-B/foo%chmod-A/bar,\
         times-A/bar+append-A/bar%mtime-A,create-A/C/foo%times-A/C,home,chmod-A%tag-A,chmod-B/foo%write-B/foo,\
         rename-A-C%chmod-A,home",
    ),
    (
        "attributes-alone",
        "calls outside of groups",
        "bare,call.chmod-A/foo,call.tag-A/foo,call.times-A,home,call.untag-A/foo,call.times-A/foo,call.append-A/foo,kill,\
         call.note-A,call.unnote-A,call.shut-A/foo,home",
    ),
    (
        "attributes-aborted",
        "groups that abort, and the same attributes for others",
        "bare,abort.chmod-A/foo+tag-A/foo+times-A,tag-A/foo,abort.untag-A/foo+shut-A/foo,home,abort.create-foo+tag-foo,\
         create-foo+chmod-foo,home,abort.untag-A/foo,untag-A/foo,home",
    ),
    (
        "attributes-in-lots",
        "checkpoints write back earlier attributes, while later groups set others",
        "bare,chmod-A/foo+tag-A/foo+append-A/foo,lot,shut-A/foo+append-A/foo,pass,create-foo+tag-foo+times-foo,lot,untag-A/foo+times-A/foo,\
         pass,note-A+chmod-foo+append-foo,lot,untag-foo+append-foo,pass,kill,times-foo+append-A/foo,lot,append-A/foo+mtime-foo,pass,pass",
    ),
    (
        "attributes-in-a-full-log",
        "checkpoints in the middle of groups that change attributes",
        "bare.tight,note-A/foo,note-A+chmod-A,grow-A/foo+note-A/foo,create-foo+note-foo+times-foo,unnote-A/foo,note-A,\
         times-A+chmod-A/foo,note-foo+rename-foo-A/foo,chmod-A/foo,close,tag-A/foo",
    ),
    (
        "replaced-with-attributes",
        "a new file with attributes takes the name of one that has some",
        "bare,tag-A/foo+chmod-A/foo,create-foo+append-foo+chmod-foo+tag-foo+times-foo+rename-foo-A/foo,home,\
         create-foo+tag-foo+rename-foo-A/foo,chmod-A/foo,kill,create-bar+note-bar+exchange-bar-A/foo,times-bar+untag-bar,home",
    ),
];

/// Only root may do this.
pub(crate) const OWNERS: &[(&str, &str, &str)] = &[(
    "owners",
    "owners of what is there, of what is made, of a link",
    "bare,chown-A/foo,home,chown-A+create-foo+chown-foo,home,mkdir-B+chown-B+chmod-B,chown-A/foo+chmod-A/foo,kill,\
         symlink-A-bar,home,chown-bar,home",
)];

/// On groups that are parked.
pub(crate) const PARKED: &[(&str, &str, &str)] = &[
    (
        "park-and-die",
        "a group is parked, its process dies, and so do others before it is applied",
        "bare,park.append-A/foo+create-foo+append-foo,kill,home,kill,apply.1,home",
    ),
    (
        "apply-and-die",
        "a parked group is applied and its process dies before anything is written back",
        "bare,park.write-A/foo+rename-A/foo-foo+mkdir-B+create-B/foo,apply.1,kill,write-foo,home",
    ),
    (
        "park-on-what-is-not-home",
        "a group builds on what was made and is not written back, and is applied after another open",
        "bare,create-foo+append-foo+mkdir-B,park.append-foo+rename-foo-B/foo+chmod-B/foo,kill,home,apply.1,kill,home",
    ),
    (
        "discard",
        "a parked group is discarded, another one after its process died",
        "bare,park.unlink-A/foo,discard.1,kill,park.unlink-A/foo+rmdir-A,kill,discard.2,write-A/foo,home",
    ),
    (
        "second-is-late",
        "of two parked groups over one file the second to be applied cannot be",
        "bare,park.write-A/foo,park.append-A/foo,apply.2,clash.1,kill,clash.1,home,clash.1,discard.1",
    ),
    (
        "overtaken",
        "a name is taken that a parked group wants, and given up again; a file is changed that it removes",
        "bare,park.rename-A/foo-foo,create-foo,clash.1,unlink-foo,apply.1,park.unlink-foo,append-foo,clash.2,home,clash.2",
    ),
    (
        "moved-meanwhile",
        "what a parked group changes has moved, and where it makes something",
        "dirs,park.append-A/foo+create-A/C/foo,rename-A/foo-B/bar+chmod-B/bar,rename-A/C-C,kill,home,kill,apply.1,home",
    ),
    (
        "parked-attributes",
        "a parked group sets attributes, of what it made too",
        "bare,park.chmod-A/foo+tag-A/foo+times-A/foo+note-A+create-foo+tag-foo+chmod-foo+times-foo,home,kill,apply.1,kill,home",
    ),
    (
        "parked-holes",
        "a parked group gives space back, within a block too, of what it writes before and after that",
        "bare,fill-A/foo,home,park.punch-A/foo+write-A/foo+nick-A/foo+create-foo+append-foo+punch-foo,kill,apply.1,append-A/foo,home",
    ),
    (
        "guest",
        "a temporary store whose process dies, with something parked in it; it becomes permanent",
        "guest,create-foo+append-foo,kill,park.append-foo,keep,append-A/foo,kill,apply.1,home,keep,home",
    ),
    (
        "parked-in-parts",
        "a parked group that fills several segments",
        "bare,park.create-foo+fill-foo+fill-A/foo+append-foo+fill-foo+mkdir-B+create-B/foo+fill-B/foo+append-B/foo,kill,apply.1,kill,home",
    ),
    (
        "parked-in-a-full-log",
        "the log is used again and again beside a parked group",
        "bare.tight,park.create-foo+fill-foo+append-foo,append-A/foo,fill-A/foo,fill-A/foo,fill-A/foo,apply.1,append-foo,append-A/foo,\
         close,append-foo",
    ),
    (
        "expired",
        "groups that expire, and one that does not",
        "bare,fade.append-A/foo,append-A/foo,fade.create-foo,kill,park.unlink-A/foo,kill,apply.3,home",
    ),
    (
        "over-what-is-there",
        "a parked group replaces a file that was changed, makes one where something is, and removes another; by another process",
        "bare,create-bar+append-bar,home,park.create-baz+fill-baz+rename-baz-A/foo+create-foo+append-foo+unlink-bar,append-A/foo,\
         create-foo+fill-foo,fill-bar,kill,clash.1,theirs.1,kill,append-foo,home",
    ),
    (
        "over-the-end-of-a-file",
        "a parked group appends to a file, and sets attributes; others have done both, and nothing of that is home",
        "bare,fill-A/foo,park.append-A/foo+chmod-A/foo+tag-A/foo+create-foo+append-foo,append-A/foo+shut-A/foo,clash.1,theirs.1,\
         kill,append-A/foo,home",
    ),
    (
        "over-what-is-gone",
        "a parked group writes all of a file, replaces one, and removes one; these two are gone, and one has another kind",
        "bare,create-foo+fill-foo+create-bar,home,park.fill-foo+create-baz+append-baz+rename-baz-A/foo+unlink-bar,\
         unlink-A/foo+mkdir-A/foo+unlink-bar,clash.1,theirs.1,kill,write-foo,home",
    ),
    (
        "staged-and-parked",
        "groups that stage files are parked, and applied",
        "bare.staged,park.create-foo+fill-foo+tag-foo,park.create-bar+append-bar+append-bar+grow-bar,apply.1,kill,apply.2,home",
    ),
    (
        "staged-and-discarded",
        "parked groups that have staged files are discarded, or expire, also after their process died",
        "bare.staged,park.create-foo+fill-foo+create-bar+more-bar,discard.1,fade.create-foo+fill-foo,append-A/foo,kill,\
         park.create-foo+fill-foo,kill,discard.3,create-foo+fill-foo,home",
    ),
    (
        "staged-and-in-the-way",
        "a parked group has several staged files, with holes; something is in its way, and goes",
        "bare.staged,park.create-foo+fill-foo+punch-foo+more-foo+create-bar+fill-bar+cut-bar+mkdir-B+rename-bar-B/bar+write-A/foo,\
         create-foo+fill-foo,clash.1,kill,clash.1,unlink-foo,close,apply.1,append-foo,kill,append-B/bar,home",
    ),
    (
        "parked-side-by-side",
        "three parked groups that have nothing to do with each other",
        "dirs,park.create-foo+append-foo,park.rename-A/foo-B/foo,park.rmdir-A/C,kill,apply.3,apply.1,home,apply.2,home,unlink-foo",
    ),
];

/// On files that are staged, and on those that have shadows.
pub(crate) const STAGED: &[(&str, &str, &str)] = &[
    (
        "staged",
        "files are made with many bytes, written back and not, and go on",
        "bare.staged,create-foo+fill-foo,append-foo+write-foo,home,create-bar+fill-bar+append-bar,kill,append-bar,home,cut-foo,kill,\
         cut-bar,grow-bar,home",
    ),
    (
        "staged-later",
        "bytes are in the log before the file is staged, which is cut and given space before and after",
        "bare.staged,create-foo+write-foo+alloc-foo+append-foo+cut-foo+append-foo+punch-foo+zero-foo+write-foo,\
         create-bar+append-bar+reserve-bar+cut-bar+append-bar+nick-bar+blank-bar+grow-bar+write-bar,home,\
         create-baz+write-baz+punch-baz+grow-baz+append-baz+cut-baz,kill,home",
    ),
    (
        "staged-and-cut",
        "bytes of a staged file are cut away, or become a hole, before its group commits",
        "bare.staged,create-foo+fill-foo+punch-foo,create-bar+fill-bar+cut-bar+grow-bar,kill,home",
    ),
    (
        "staged-on-the-move",
        "staged files get other names, and take those of others, before they are written back and after",
        "bare.staged,create-foo+fill-foo+rename-foo-A/foo,home,create-foo+fill-foo+link-foo-bar,unlink-foo,home,\
         create-foo+fill-foo+exchange-foo-bar,kill,rename-foo-baz,home,create-foo+fill-foo,rename-foo-A/foo,home",
    ),
    (
        "staged-and-gone",
        "staged files lose their names before they are written back; some are open",
        "bare.staged,create-foo+fill-foo+unlink-foo,create-foo+fill-foo,unlink-foo,home,create-bar+fill-bar,unlink-bar,append-@bar,\
         home,kill,create-foo+fill-foo+unlink-foo+write-@foo,write-@foo,home,create-foo+fill-foo,kill,unlink-foo,home",
    ),
    (
        "staged-and-aborted",
        "groups that stage files abort, and processes die in them",
        "bare.staged,abort.create-foo+fill-foo,create-foo+fill-foo,abort.create-bar+fill-bar+rename-foo-baz,home,\
         abort.create-bar+append-bar+append-bar,create-bar+fill-bar,kill,abort.create-baz+fill-baz,home",
    ),
    (
        "staged-with-attributes",
        "staged files have attributes and times, in directories that are new",
        "bare.staged,create-foo+fill-foo+chmod-foo+tag-foo+times-foo,create-bar+times-bar+fill-bar,shut-foo,home,\
         mkdir-B+create-B/foo+shut-B/foo+fill-B/foo+chmod-B,kill,times-B/foo+append-B/foo,home",
    ),
    (
        "staged-into-the-new",
        "a staged file comes into a directory that the same checkpoint makes",
        "bare.staged,create-foo,home,mkdir-B+create-B/foo+fill-B/foo,home,mkdir-C+create-bar+fill-bar+rename-bar-A/bar,home",
    ),
    (
        "staged-in-lots",
        "checkpoints write back earlier staged files, while later groups write to them, rename them, and stage more",
        "bare.staged,create-foo+fill-foo,lot,append-foo+create-bar+fill-bar,pass,rename-foo-baz+cut-baz,lot,unlink-bar,pass,kill,\
         append-baz,lot,create-foo+fill-foo,rename-foo-baz,pass,home",
    ),
    (
        "staged-at-once",
        "groups that run at the same time stage files, and name them in one directory",
        "dirs.staged,create-A/bar+fill-A/bar%create-B/bar+fill-B/bar,rename-A/bar-B/foo%create-foo+fill-foo,home,\
         create-bar+fill-bar%rename-foo-A/bar,home",
    ),
    (
        "staged-in-a-full-log",
        "checkpoints in the middle of groups that stage files",
        "bare.tight.staged,create-foo+fill-foo+grow-foo+append-foo,mkdir-B+rename-foo-B/foo,create-bar+write-bar+note-bar+fill-bar,\
         rename-bar-foo+append-foo,unlink-B/foo+rmdir-B,create-bar+fill-bar+link-bar-baz,unlink-bar,close,append-baz",
    ),
    (
        "staged-from-the-layer",
        "staged files have the bytes of what another program has made, and are written to, parked, aborted, renamed",
        "bare.staged,import-foo,append-foo,home,park.import-bar+append-bar+chmod-bar,kill,apply.1,abort.import-baz+fill-baz,\
         import-A/bar+rename-A/bar-baz+import-B,kill,park.import-C+unlink-A/foo,discard.2,write-baz,home",
    ),
    (
        "shadow",
        "many bytes of a file that exists are written, again and again, written back and not",
        "bare.staged,fill-A/foo,append-A/foo+write-A/foo,home,fill-A/foo+more-A/foo+write-A/foo,kill,more-A/foo,home,cut-A/foo,kill,home",
    ),
    (
        "shadow-and-log",
        "bytes of one group are in its shadow and in the log, above each other, and are cut, and become holes",
        "bare.staged,write-A/foo+fill-A/foo+write-A/foo+more-A/foo+append-A/foo+fill-A/foo+cut-A/foo+fill-A/foo,kill,home,\
         fill-A/foo+punch-A/foo+grow-A/foo+more-A/foo+nick-A/foo,alloc-A/foo+fill-A/foo+blank-A/foo+more-A/foo,home",
    ),
    (
        "shadow-of-several",
        "one shadow has bytes of several files, in turns",
        "bare.staged,create-foo+create-bar,fill-foo+fill-bar+more-foo+more-bar+fill-A/foo+more-A/foo,kill,home,fill-foo+fill-bar,home",
    ),
    (
        "shadow-aborted",
        "groups that have shadows abort, and processes die in them and after them",
        "bare.staged,abort.fill-A/foo+more-A/foo,fill-A/foo,abort.fill-A/foo+append-A/foo,kill,abort.more-A/foo,home",
    ),
    (
        "shadow-on-the-move",
        "files whose bytes are in shadows get other names, and lose them",
        "bare.staged,fill-A/foo+rename-A/foo-foo,kill,home,fill-foo+link-foo-bar,unlink-foo,home,fill-bar+unlink-bar,home,create-foo,\
         fill-foo,kill,more-foo+rename-foo-A/bar,home,fill-A/bar,unlink-A/bar,kill,home",
    ),
    (
        "shadow-in-lots",
        "checkpoints write back what is in earlier shadow files, while later groups have others",
        "bare.staged,fill-A/foo,lot,more-A/foo+create-bar,pass,fill-A/foo+write-bar,lot,fill-bar,pass,kill,fill-A/foo,pass,home",
    ),
    (
        "shadow-at-once",
        "groups that run at the same time have shadows",
        "bare.staged,create-foo,fill-A/foo+more-A/foo%fill-foo,more-foo%write-A/foo,home",
    ),
    (
        "shadow-in-a-full-log",
        "checkpoints in the middle of groups that have shadows",
        "bare.tight.staged,fill-A/foo+grow-A/foo+append-A/foo,mkdir-B+rename-A/foo-B/foo+more-B/foo,create-bar+note-bar+fill-B/foo,\
         write-bar+note-B/foo+fill-B/foo+note-bar,fill-B/foo+link-B/foo-foo,close,append-foo",
    ),
    (
        "shadow-parked",
        "groups that have shadows are parked, and applied",
        "bare.staged,park.fill-A/foo+more-A/foo+write-A/foo,apply.1,kill,park.fill-A/foo+cut-A/foo,home,apply.2,home",
    ),
    (
        "shadow-of-calls",
        "calls outside of groups have shadows",
        "bare.staged,call.fill-A/foo,call.more-A/foo,kill,call.fill-A/foo,home",
    ),
];

/// On what groups adopt.
pub(crate) const ADOPTED: &[(&str, &str, &str)] = &[
    (
        "adopted",
        "a directory and a file are adopted, written back and not, and go on",
        "bare,adopt-B,append-B/foo+write-B/C/bar,home,take-foo,append-foo,kill,write-foo,home,adopt-C+take-bar,kill,append-bar,home",
    ),
    (
        "adopted-and-changed",
        "what is adopted is written to, and gets attributes, in the group that adopts it and in the next",
        "bare,adopt-B+append-B/foo+chmod-B/foo+tag-B+times-B,shut-B/foo+append-B/C/bar+times-B/C,home,take-foo+fill-foo+cut-foo+chmod-foo,\
         kill,write-foo+tag-foo,home",
    ),
    (
        "adopted-on-the-move",
        "what is adopted gets other names, and what is in it comes out, before it is written back",
        "dirs,adopt-C+rename-C-B/C,rename-B/C-C,kill,rename-C/foo-A/bar+rename-C/C-B/C,home,take-foo+rename-foo-A/foo,home,\
         adopt-baz+rename-baz/foo-bar,rename-baz-A/C/foo,kill,home",
    ),
    (
        "adopted-and-linked",
        "a file that is adopted gets more names and loses the first",
        "bare,take-foo+link-foo-A/bar,unlink-foo,append-A/bar,home,adopt-B+link-B/foo-foo,unlink-B/foo,kill,write-foo,home",
    ),
    (
        "adopted-and-gone",
        "what is adopted loses its names, all of it, before it is written back",
        "bare,take-foo,unlink-foo,home,adopt-B,unlink-B/foo+unlink-B/C/bar+rmdir-B/C+rmdir-B,home,take-foo+unlink-foo,kill,\
         adopt-C+unlink-C/foo,home,adopt-B+unlink-B/foo+unlink-B/C/bar+rmdir-B/C+rmdir-B,kill,home",
    ),
    (
        "adopted-and-aborted",
        "groups that adopt abort, and processes die in them, with the same after them",
        "bare,abort.adopt-B,adopt-B,abort.take-foo+rename-A/foo-bar,take-foo,home,abort.adopt-C+append-C/foo,kill,take-bar,abort.take-baz,home",
    ),
    (
        "adopted-instead",
        "what is adopted takes the place of what is removed, or renamed away",
        "bare,unlink-A/foo+rmdir-A+adopt-A,home,rename-A-B+adopt-A,kill,home,take-foo,unlink-foo+adopt-foo,home,take-bar+exchange-bar-foo,kill,home",
    ),
    (
        "adopted-into-the-new",
        "what is adopted comes into directories that the same checkpoint makes, or that are adopted",
        "bare,mkdir-B+adopt-B/C+take-B/foo,home,adopt-C+take-baz+rename-baz-A/bar,mkdir-baz+rename-C-A/C,home,adopt-foo+rename-foo/C-bar,kill,home",
    ),
    (
        "adopted-in-lots",
        "checkpoints write back what was adopted before, while later groups change it and adopt more",
        "bare,adopt-B,lot,append-B/foo+rename-B-C,take-foo,pass,unlink-C/foo,lot,adopt-B+append-foo,pass,kill,append-C/C/bar,lot,\
         rename-C-A/C,pass,home",
    ),
    (
        "adopted-at-once",
        "groups that run at the same time adopt, and name it in one directory",
        "dirs,take-A/bar%take-B/bar,adopt-C%append-A/foo,take-foo%adopt-baz,rename-foo-bar%unlink-A/bar,home,take-foo%rename-A/foo-B/foo,kill,home",
    ),
    (
        "adopted-in-a-full-log",
        "checkpoints in the middle of groups that adopt",
        "bare.tight,adopt-B+fill-A/foo+append-B/foo,take-foo+fill-foo+more-foo,note-B+adopt-C+fill-C/foo,rename-B-A/C+append-A/C/foo,close,append-foo",
    ),
    (
        "adopted-beside-the-staged",
        "a group adopts, and stages files, and one that is parked beside it is applied",
        "bare.staged,park.append-A/foo+create-bar+fill-bar,adopt-B+create-foo+fill-foo+rename-foo-B/bar,apply.1,kill,home",
    ),
];
