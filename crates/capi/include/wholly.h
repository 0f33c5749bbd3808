/*
 * Wholly: file updates that happen wholly or not at all, even when the process is killed or the power fails half-way.
 *
 * Open an ordinary directory as a store, update any number of its files in one group, commit: after a crash the group is there, or none of
 * it is. Compile and link with `pkg-config --cflags --libs wholly`.
 *
 * Results. Functions return 0, or a count where they say so, and on failure a negative errno; wholly_error_text() then says in words
 * what went wrong. A new handle goes to the place that the last argument points to, which holds NULL after a failure.
 *
 *   -EBUSY       somebody else uses it now: wait, or end the other group. Nothing was changed.
 *   -ENODEV      there is no store here: wholly_store_init makes one.
 *   -EEXIST      there is a store, or a file, of that name already.
 *   -ENOENT      the name, or a directory on the way to it, does not exist.
 *   -EISDIR, -ENOTDIR, -ENOTEMPTY, -EPERM, -EACCES
 *                what the path names, or who asks, forbids it, as in the system call of that name.
 *   -EINVAL      the call makes no sense as it was made: an argument is NULL or out of range, a size is not set, a group has ended.
 *   -ENOSPC      no space for it; the group can still be aborted, and nothing committed is lost.
 *   -EOPNOTSUPP  the store, or the program, is of a newer version than the library, or the file system cannot carry a store; in a directory of a
 *                mount, use wholly_mount_begin.
 *   -EUCLEAN     media are damaged at the place that the text names. What is intact is still served.
 *   -ESTALE      another program changed a file while the log held updates of it: neither version is overwritten; or what a parked group
 *                relies on is not so any more: nothing was changed.
 *   -EIO         an earlier write-back failed: close the store and open it again, which recovers it.
 *   others       what the file system refused, by its own number (-EROFS, ...).
 *
 * Paths. They are relative to the store's directory. Symbolic links on the way are followed; one at the end is meant itself, unless a
 * function says that it is followed. Errors of all paths: -EINVAL for an empty or absolute one, for .., for .wholly, and for the store's
 * directory itself where it cannot be meant; -EXDEV where a link leads out of the directory; -ELOOP after 40 of them; -ENAMETOOLONG for a
 * name of more than 255 bytes; -ENOTDIR where something on the way is no directory; and in functions that change names -EACCES and -EPERM
 * where the permissions of the directory forbid it, and -EBUSY where another group changes the name or has removed, made or moved the
 * directory.
 *
 * Other programs see the directory as of the last checkpoint, with its names: see wholly_store_checkpoint.
 *
 * A mistake in the library that it notices itself (in Rust's words, a panic) is -EIO too, and the text says so. From then on every call on
 * that store fails with -EIO, and calls that close something free the handle and leave the rest alone; the store stays with this
 * process until it ends. The next one to open it recovers it, as after a crash.
 *
 * Handles. NULL for a handle is -EINVAL. A handle that was closed or whose group has ended is not used again, by any thread: that is the
 * one thing that the library cannot tell. Stores and files may be used by any number of threads at once, and also while one of them waits.
 * A group, and a writer with its group, is used by one thread at a time. Handles may be closed in any order.
 *
 * Threads and signals. Functions may be called from any thread, and not from a signal handler.
 *
 * fork. Parent or child keeps a store, whichever makes a call on it or on its files first; the calls of the other fail with -EBUSY. A child
 * that comes first finds what was committed, and goes on with the handles of stores, files and writers that it has from its parent. Groups
 * that were running stay the parent's. A child that only closes files and writers, and drops stores, disturbs nobody.
 */

#ifndef WHOLLY_H
#define WHOLLY_H

#include <stddef.h>
#include <stdint.h>

/**
 * In the place of an owner or a group: it stays as it is.
 */
#define WHOLLY_KEEP_OWNER UINT32_MAX

/**
 * In the place of a time: it stays as it is.
 */
#define WHOLLY_KEEP_TIME INT64_MIN

/**
 * Extended attributes: it must not be there yet. The number is the kernel's.
 */
#define WHOLLY_XATTR_CREATE 1

/**
 * Extended attributes: it must be there already. The number is the kernel's.
 */
#define WHOLLY_XATTR_REPLACE 2

/**
 * Mode of wholly_group_fallocate and wholly_file_fallocate: the file does not grow.
 */
#define WHOLLY_FALLOCATE_KEEP_SIZE 1

/**
 * Mode: the range becomes a hole; only together with WHOLLY_FALLOCATE_KEEP_SIZE.
 */
#define WHOLLY_FALLOCATE_PUNCH_HOLE 2

/**
 * Mode: the range becomes zeros that have their space.
 */
#define WHOLLY_FALLOCATE_ZERO_RANGE 16

/**
 * The requests of ioctl(2) on any descriptor of a mount, for programs that do without this library: they take no argument. This one returns 1
 * on a mount, and 2 in a command of wholly run whose view is FUSE; elsewhere, in its overlays too, all of them fail with ENOTTY.
 */
#define WHOLLY_IOC_WHAT 59248

/**
 * Begins a group, as wholly_mount_begin does: the open file that the descriptor stands for has it, and its last close aborts it.
 */
#define WHOLLY_IOC_BEGIN 59249

/**
 * Adds this open file to the process's group, as wholly_mount_add does.
 */
#define WHOLLY_IOC_ADD 59250

/**
 * Commits the group that was begun by this open file.
 */
#define WHOLLY_IOC_COMMIT 59251

/**
 * Aborts the group that was begun by this open file.
 */
#define WHOLLY_IOC_ABORT 59252

/**
 * Rename: nothing may have the new name. The number is the kernel's.
 */
#define WHOLLY_RENAME_NOREPLACE 1

/**
 * Rename: what has the new name gets the old one. The number is the kernel's.
 */
#define WHOLLY_RENAME_EXCHANGE 2

/**
 * Policy: each call outside of groups is a group of its own, and survives when it returns.
 */
#define WHOLLY_POLICY_PER_OP 0

/**
 * Policy: the calls on a file between two syncs are one group, committed by wholly_file_sync, by the last close of the file, or when a
 * group takes the file. After a crash the file is as at its last sync.
 */
#define WHOLLY_POLICY_PER_SYNC 1

/**
 * Policy: all calls outside of groups are one group, committed by any sync, by closing the store, when a group takes one of its
 * files, and after shared_interval_ms.
 */
#define WHOLLY_POLICY_SHARED 2

/**
 * Medium: persistent memory where files can be mapped from it (DAX) and, emulated, on tmpfs; else a disk.
 */
#define WHOLLY_MEDIUM_AUTO 0

/**
 * Medium: persistent memory; emulated where it is none.
 */
#define WHOLLY_MEDIUM_PMEM 1

/**
 * Medium: a disk.
 */
#define WHOLLY_MEDIUM_DISK 2

/**
 * In wholly_change.what: something new gets the name.
 */
#define WHOLLY_CHANGE_CREATED 1

/**
 * In wholly_change.what: the name goes.
 */
#define WHOLLY_CHANGE_REMOVED 2

/**
 * In wholly_change.what: something new gets the name, in the place of what had it.
 */
#define WHOLLY_CHANGE_REPLACED 3

/**
 * In wholly_change.what: what had the name from gets this one instead.
 */
#define WHOLLY_CHANGE_RENAMED 4

/**
 * In wholly_change.what: what has the name from gets this one, too.
 */
#define WHOLLY_CHANGE_LINKED 5

/**
 * In wholly_change.what: what has the name is otherwise: its bytes, or its attributes.
 */
#define WHOLLY_CHANGE_CHANGED 6

/**
 * The version of this header: WHOLLY_VERSION_MAJOR.WHOLLY_VERSION_MINOR.WHOLLY_VERSION_PATCH.
 */
#define WHOLLY_VERSION_MAJOR 0

/**
 * See WHOLLY_VERSION_MAJOR.
 */
#define WHOLLY_VERSION_MINOR 1

/**
 * See WHOLLY_VERSION_MAJOR.
 */
#define WHOLLY_VERSION_PATCH 0

/**
 * A listing of a directory, which holds the names that were in it when it was opened, and neither store nor group. One thread at a time
 * calls with it; which thread that is may change.
 */
typedef struct wholly_dir wholly_dir;

/**
 * An open regular file of a store. Threads may share this handle and call with it at once. The calls of wholly_file_* are outside of
 * groups: which of them survive together the store's policy says. In a group, use wholly_group_* with it.
 */
typedef struct wholly_file wholly_file;

/**
 * A group: updates of any number of files that survive a crash wholly or not at all. Nobody else sees them before it is committed; calls
 * on the group itself do. The files that it changes are its own until it ends.
 *
 * One thread at a time calls with a group; which thread that is may change.
 */
typedef struct wholly_group wholly_group;

/**
 * A group of plain system calls on a mount of a store (wholly mount), or in a command of wholly run. From its begin to its end all that the process
 * changes there belongs to it: by whatever thread, descriptor and path; what its children change does not, but for what they write by descriptors
 * that were added.
 *
 * It needs no store that is open: the mount has that. So other programs see what the group has done so far; they cannot change that before it ends
 * (EBUSY). It ends with the process, too, and is aborted then. In a command of wholly run it joins the group that the command is: it is committed with
 * that, and where it is aborted the command changes nothing.
 */
typedef struct wholly_mount_group wholly_mount_group;

/**
 * A listing of what was parked when it was opened. One thread at a time calls with it; which thread that is may change.
 */
typedef struct wholly_parked_list wholly_parked_list;

/**
 * What a parked group would change. It keeps the store open, as a file does. One thread at a time calls with it; which thread that is may
 * change.
 */
typedef struct wholly_review wholly_review;

/**
 * An open store. One process has it; its threads may share this handle and call with it at once.
 */
typedef struct wholly_store wholly_store;

/**
 * A place to begin one group after the other from. One thread at a time calls with a writer and its group; which thread that is may
 * change.
 */
typedef struct wholly_writer wholly_writer;

/**
 * One name of a directory. Set its size before it is filled in.
 */
typedef struct wholly_dir_entry {
    /**
     * sizeof(wholly_dir_entry).
     */
    size_t size;
    /**
     * The name. The text is the listing's, and stays until that is closed.
     */
    const char *name;
    /**
     * Inode number, as in wholly_metadata.
     */
    uint64_t ino;
    /**
     * The type bits of its st_mode (S_IFREG, S_IFDIR, ...); 0 where the file system does not tell them here.
     */
    uint32_t type_bits;
    /**
     * Zero.
     */
    uint32_t reserved;
} wholly_dir_entry;

/**
 * What is known of what a name names. Set its size before it is filled in. Times are in nanoseconds since the epoch. All is on the file system of the store's directory, so that there is no number of a device.
 */
typedef struct wholly_metadata {
    /**
     * sizeof(wholly_metadata).
     */
    size_t size;
    /**
     * Inode number. What is not home yet has one of the store's own, which is another when the store was opened again.
     */
    uint64_t ino;
    /**
     * Size in bytes; of a symbolic link, bytes of its target.
     */
    uint64_t bytes;
    /**
     * Bytes that the file system has allocated to it.
     */
    uint64_t allocated_bytes;
    /**
     * Time of its birth; 0 where the file system has none.
     */
    int64_t btime_ns;
    /**
     * Time of the last access.
     */
    int64_t atime_ns;
    /**
     * Time of the last change of content.
     */
    int64_t mtime_ns;
    /**
     * Time of the last change of content or attributes.
     */
    int64_t ctime_ns;
    /**
     * Of a device, its number as in st_rdev.
     */
    uint64_t device;
    /**
     * Type and permission bits as in st_mode.
     */
    uint32_t mode;
    /**
     * Number of names.
     */
    uint32_t nlink;
    /**
     * Owner.
     */
    uint32_t uid;
    /**
     * Group.
     */
    uint32_t gid;
} wholly_metadata;

/**
 * A parked group. Set its size before it is filled in. Times are in nanoseconds since the epoch.
 */
typedef struct wholly_parked {
    /**
     * sizeof(wholly_parked).
     */
    size_t size;
    /**
     * Its number, which no other group of the store ever has. `wholly list` shows it as id >> 40, a dash, and the rest.
     */
    uint64_t id;
    /**
     * When it was parked.
     */
    int64_t parked_ns;
    /**
     * When it is discarded; 0: never by itself.
     */
    int64_t expires_ns;
    /**
     * Bytes that it writes to files.
     */
    uint64_t bytes;
    /**
     * Bytes that it takes.
     */
    uint64_t space;
    /**
     * Files whose bytes it changes.
     */
    uint32_t files;
    /**
     * Names that it sets or takes away.
     */
    uint32_t names;
    /**
     * 1 where it cannot be read: then only id and space mean anything. Else 0.
     */
    uint64_t is_damaged;
    /**
     * What was noted.
     */
    char note[1032];
} wholly_parked;

/**
 * One change of a group. Set its size before it is filled in.
 */
typedef struct wholly_change {
    /**
     * sizeof(wholly_change).
     */
    size_t size;
    /**
     * The name, as it is to be; of what is removed, as it was. The text is the review's, and stays until that is closed.
     */
    const char *path;
    /**
     * The name that what is renamed had, or another one of what is linked; NULL for all else.
     */
    const char *from;
    /**
     * Size in bytes before; 0 where there was nothing.
     */
    uint64_t bytes_before;
    /**
     * Size in bytes after; 0 where there is to be nothing.
     */
    uint64_t bytes_after;
    /**
     * WHOLLY_CHANGE_CREATED and so on.
     */
    uint32_t what;
    /**
     * 1 where the bytes of a file are otherwise, or may be; else 0.
     */
    uint32_t content;
    /**
     * Type and permission bits as in st_mode before; 0 where there was nothing.
     */
    uint32_t mode_before;
    /**
     * The same after.
     */
    uint32_t mode_after;
    /**
     * Owner and group before.
     */
    uint32_t uid_before;
    /**
     * See above.
     */
    uint32_t gid_before;
    /**
     * Owner and group after.
     */
    uint32_t uid_after;
    /**
     * See above.
     */
    uint32_t gid_after;
    /**
     * How many extended attributes are set or removed.
     */
    uint64_t xattrs;
} wholly_change;

/**
 * How a store is made and opened. Set all of it to zero, then its size, then what is to differ: zero stands for the default.
 * Later versions add fields at the end.
 */
typedef struct wholly_options {
    /**
     * sizeof(wholly_options).
     */
    size_t size;
    /**
     * Which calls outside of groups survive together: WHOLLY_POLICY_*.
     */
    uint32_t policy;
    /**
     * What the directory is taken for: WHOLLY_MEDIUM_*. The same for making and for opening.
     */
    uint32_t medium;
    /**
     * Milliseconds after which WHOLLY_POLICY_SHARED commits. It has no default.
     */
    uint64_t shared_interval_ms;
    /**
     * Bytes of a segment of the log, when the store is made: a power of two from 4 KiB to 2 MiB. 1 MiB.
     */
    uint64_t segment_bytes;
    /**
     * Bytes of log that the store is made with and keeps. 2 MiB.
     */
    uint64_t log_min_bytes;
    /**
     * Bytes up to which the log grows before groups wait for a checkpoint; one group may need more, and gets it. 64 MiB.
     */
    uint64_t log_max_bytes;
    /**
     * Bytes of a group that are gathered in memory before it goes to the log early. 512 KiB.
     */
    uint64_t gather_bytes;
    /**
     * Bytes that a group writes to a file that it makes, or one after the other to another where files can share blocks (XFS, btrfs), before
     * they go to the file system at once, and are written once, rather than to the log; UINT64_MAX for never. 512 KiB.
     */
    uint64_t stage_bytes;
    /**
     * Bytes of address space for the log on persistent memory, beyond which it cannot grow.
     */
    uint64_t reserve_bytes;
    /**
     * Threads that take a large amount home together. 2.
     */
    uint32_t checkpoint_threads;
    /**
     * Not zero: no thread takes committed data home in the background. That then happens when the log is full, by
     * wholly_store_checkpoint and by wholly_store_close.
     */
    uint32_t no_background;
    /**
     * Not zero: the machine keeps its caches at a power failure (eADR), so that nothing need be flushed from them to persistent memory.
     */
    uint32_t caches_persist;
    /**
     * Not zero: a copy of a store, which wholly_store_open else refuses with -ESTALE while its log holds updates, is taken for what it was
     * copied from: its files are found by their places.
     */
    uint32_t adopt;
    /**
     * Not zero: what was part of a commit of several stores, and would wait for a store that cannot be found, is parked when the store is opened,
     * to be applied or discarded by somebody who knows. Else wholly_store_open fails with -EBUSY there.
     */
    uint32_t release;
    /**
     * Zero.
     */
    uint32_t reserved;
} wholly_options;

/**
 * What a checkpoint did. Set its size before it is filled in.
 */
typedef struct wholly_checkpoint_report {
    /**
     * sizeof(wholly_checkpoint_report).
     */
    size_t size;
    /**
     * Files that were touched.
     */
    uint64_t files;
    /**
     * Blocks that were taken home.
     */
    uint64_t blocks;
    /**
     * Bytes written home.
     */
    uint64_t bytes;
    /**
     * Segments of the log that became free.
     */
    uint64_t segments_freed;
} wholly_checkpoint_report;

/**
 * What a store is doing. Set its size before it is filled in. All is zero in a child of fork that cannot have the store.
 */
typedef struct wholly_stat {
    /**
     * sizeof(wholly_stat).
     */
    size_t size;
    /**
     * How often the store was opened.
     */
    uint64_t incarnation;
    /**
     * Bytes of a segment of the log.
     */
    uint64_t segment_bytes;
    /**
     * Segments of the log.
     */
    uint64_t segments;
    /**
     * How many of them are free.
     */
    uint64_t free_segments;
    /**
     * Blocks of 4 KiB whose latest bytes are not home.
     */
    uint64_t pending_blocks;
    /**
     * Files that are open or have pending blocks.
     */
    uint64_t open_files;
    /**
     * Bytes of memory of the index.
     */
    uint64_t index_bytes;
    /**
     * Versions in the index, spare ones included.
     */
    uint64_t versions;
    /**
     * Bytes written to the log since the open.
     */
    uint64_t log_bytes_written;
    /**
     * Bytes written to the files since the open.
     */
    uint64_t home_bytes_written;
    /**
     * Fences since the open.
     */
    uint64_t fences;
    /**
     * Synchronous writes and syncs since the open.
     */
    uint64_t syncs;
    /**
     * 1 where the medium only stands in for persistent memory: what survives the process does not survive a power failure. Else 0.
     */
    uint64_t emulated;
    /**
     * What the log is on, in words.
     */
    char medium[128];
    /**
     * Groups that are parked.
     */
    uint64_t parked_groups;
    /**
     * Bytes that they take.
     */
    uint64_t parked_bytes;
} wholly_stat;

/**
 * What opening the store found and did. Set its size before it is filled in.
 */
typedef struct wholly_recovery {
    /**
     * sizeof(wholly_recovery).
     */
    size_t size;
    /**
     * Segments of the log that were in use.
     */
    uint64_t segments;
    /**
     * Committed groups that were not home.
     */
    uint64_t groups;
    /**
     * Records that were torn by the crash: groups whose commit had not returned. They are gone.
     */
    uint64_t rejected;
    /**
     * Files that have updates in the log.
     */
    uint64_t files;
    /**
     * Names that the log sets.
     */
    uint64_t names;
    /**
     * Files that another program changed while the log held updates of them: see wholly_store_conflict. Nothing goes home.
     */
    uint64_t conflicts;
} wholly_recovery;

/**
 * A file that another program changed. Set its size before it is filled in.
 */
typedef struct wholly_conflict {
    /**
     * sizeof(wholly_conflict).
     */
    size_t size;
    /**
     * The file, below the store's directory.
     */
    char path[4096];
    /**
     * What differs, in words.
     */
    char change[256];
} wholly_conflict;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * What went wrong in the last call of this thread that failed, in words: it names files, places and the process that is in the way.
 * Empty where none has failed. Calls that succeed leave it as it is.
 *
 * The text is the library's, and stays until the next call of this thread fails or the thread ends.
 */
const char *wholly_error_text(void);

/**
 * Sets the permission bits, set-id bits included.
 *
 * Errors: -ENOENT; -EPERM for who is not the owner; -EOPNOTSUPP for a symbolic link; -EINVAL where mode has other bits; -EBUSY where another
 * group sets attributes of it, or changes the file; those of all paths.
 */
int wholly_group_chmod(struct wholly_group *group,
                       const char *path,
                       uint32_t mode);

/**
 * Sets owner and group, each unless it is WHOLLY_KEEP_OWNER. A file loses its set-id bits by that, and its capabilities.
 *
 * Errors: -ENOENT; -EPERM for who may not; -EBUSY as wholly_group_chmod; those of all paths.
 */
int wholly_group_chown(struct wholly_group *group,
                       const char *path,
                       uint32_t uid,
                       uint32_t gid);

/**
 * Sets the times of the last access and of the last change of content, in nanoseconds since the epoch, each unless it is WHOLLY_KEEP_TIME.
 *
 * Errors: -ENOENT; -EPERM for who is not the owner; -EBUSY as wholly_group_chmod; those of all paths.
 */
int wholly_group_utimens(struct wholly_group *group,
                         const char *path,
                         int64_t atime_ns,
                         int64_t mtime_ns);

/**
 * Sets an extended attribute of the kinds user, trusted or security, to length bytes, at most 65536. With WHOLLY_XATTR_CREATE it must not be
 * there yet, with WHOLLY_XATTR_REPLACE it must.
 *
 * Errors: -ENOENT; -EEXIST, -ENODATA as the flags ask; -EOPNOTSUPP for other kinds, and where the file system has none; -EPERM, -EACCES for who
 * may not, and for user attributes of what is no file or directory; -ERANGE for a name of more than 255 bytes, -E2BIG for a longer value;
 * -EINVAL for other flags; -EBUSY as wholly_group_chmod; those of all paths.
 */
int wholly_group_setxattr(struct wholly_group *group,
                          const char *path,
                          const char *name,
                          const void *value,
                          size_t length,
                          uint32_t flags);

/**
 * Removes an extended attribute.
 *
 * Errors: -ENODATA where there is none; those of wholly_group_setxattr.
 */
int wholly_group_removexattr(struct wholly_group *group, const char *path, const char *name);

/**
 * Reads the value of an extended attribute, as the group sees it. Returns how many bytes it has; where length is 0 it only does that.
 *
 * Errors: -ENOENT; -ENODATA where there is none; -ERANGE where it is longer than length; -EOPNOTSUPP, -EACCES as wholly_group_setxattr; those of
 * all paths.
 */
int64_t wholly_group_getxattr(struct wholly_group *group,
                              const char *path,
                              const char *name,
                              void *buffer,
                              size_t length);

/**
 * Lists the names of all extended attributes that the process may see, as the group sees them, each with a zero behind it. Returns how many
 * bytes they are; where length is 0 it only does that.
 *
 * Errors: -ENOENT; -ERANGE where they are more than length; those of all paths.
 */
int64_t wholly_group_listxattr(struct wholly_group *group,
                               const char *path,
                               void *buffer,
                               size_t length);

/**
 * wholly_group_chmod in a group of its own: the mode survives when this returns.
 *
 * Errors: those of wholly_group_chmod and wholly_group_commit.
 */
int wholly_store_chmod(const struct wholly_store *store, const char *path, uint32_t mode);

/**
 * wholly_group_chown in a group of its own: owner and group survive when this returns.
 *
 * Errors: those of wholly_group_chown and wholly_group_commit.
 */
int wholly_store_chown(const struct wholly_store *store, const char *path, uint32_t uid, uint32_t gid);

/**
 * wholly_group_utimens in a group of its own: the times survive when this returns.
 *
 * Errors: those of wholly_group_utimens and wholly_group_commit.
 */
int wholly_store_utimens(const struct wholly_store *store, const char *path, int64_t atime_ns, int64_t mtime_ns);

/**
 * wholly_group_setxattr in a group of its own: the attribute survives when this returns.
 *
 * Errors: those of wholly_group_setxattr and wholly_group_commit.
 */
int wholly_store_setxattr(const struct wholly_store *store,
                          const char *path,
                          const char *name,
                          const void *value,
                          size_t length,
                          uint32_t flags);

/**
 * wholly_group_removexattr in a group of its own: the attribute does not come back after a crash when this has returned.
 *
 * Errors: those of wholly_group_removexattr and wholly_group_commit.
 */
int wholly_store_removexattr(const struct wholly_store *store,
                             const char *path,
                             const char *name);

/**
 * wholly_group_getxattr, as everybody sees it.
 *
 * Errors: those of wholly_group_getxattr.
 */
int64_t wholly_store_getxattr(const struct wholly_store *store,
                              const char *path,
                              const char *name,
                              void *buffer,
                              size_t length);

/**
 * wholly_group_listxattr, as everybody sees them.
 *
 * Errors: those of wholly_group_listxattr.
 */
int64_t wholly_store_listxattr(const struct wholly_store *store, const char *path, void *buffer, size_t length);

/**
 * Opens a listing of a directory, as the group sees it, without . and .. and in no order; the path . is the store's directory. A symbolic
 * link at the end of the path is followed. What changes later is not in it. Close it by wholly_dir_close, before or after the end of the
 * group.
 *
 * Errors: -ENOENT; -ENOTDIR for what is no directory; those of all paths.
 */
int wholly_group_open_dir(struct wholly_group *group,
                          const char *path,
                          struct wholly_dir **dir);

/**
 * wholly_group_open_dir, as everybody sees the directory. Close it by wholly_dir_close, before or after the store.
 *
 * Errors: those of wholly_group_open_dir.
 */
int wholly_store_open_dir(const struct wholly_store *store, const char *path, struct wholly_dir **dir);

/**
 * Tells the next name of a listing. Returns 1, and 0 where there is none: then the entry is left as it is.
 */
int wholly_dir_read(struct wholly_dir *dir, struct wholly_dir_entry *entry);

/**
 * Closes a listing.
 */
int wholly_dir_close(struct wholly_dir *dir);

/**
 * Closes a file. Groups that use it go on with it. The last close of a file commits its calls under WHOLLY_POLICY_PER_SYNC; to know
 * whether that succeeded, call wholly_file_sync first.
 */
int wholly_file_close(struct wholly_file *file);

/**
 * Reads up to length bytes at offset, as everybody sees them. Returns how many: fewer only at the end of the file.
 *
 * Errors: -EUCLEAN where the bytes have rotted in the log; of the file system.
 */
int64_t wholly_file_read(const struct wholly_file *file, uint64_t offset, void *buffer, size_t length);

/**
 * Writes length bytes at offset, wholly or not at all. The file grows where that lies beyond its end; a gap reads as zeros. Under
 * WHOLLY_POLICY_PER_OP it survives when this returns.
 *
 * Errors: -EBUSY where a group has the file; -ENOSPC; -EIO where the medium failed.
 */
int wholly_file_write(const struct wholly_file *file,
                      uint64_t offset,
                      const void *data,
                      size_t length);

/**
 * Writes length bytes at the end of the file, wholly or not at all. Returns the offset at which they stand. Under
 * WHOLLY_POLICY_PER_OP they survive when this returns.
 *
 * Errors: those of wholly_file_write.
 */
int64_t wholly_file_append(const struct wholly_file *file, const void *data, size_t length);

/**
 * Makes the file length bytes long. What lay beyond is gone; new bytes are zero. Under WHOLLY_POLICY_PER_OP that survives when this
 * returns.
 *
 * Errors: those of wholly_file_write.
 */
int wholly_file_set_len(const struct wholly_file *file,
                        uint64_t length);

/**
 * Changes what space the length bytes from offset on have: see wholly_group_fallocate. Under WHOLLY_POLICY_PER_OP that survives when this
 * returns.
 *
 * Errors: those of wholly_group_fallocate.
 */
int wholly_file_fallocate(const struct wholly_file *file,
                          uint32_t mode,
                          uint64_t offset,
                          uint64_t length);

/**
 * Returns the size of the file in bytes, as everybody sees it.
 */
int64_t wholly_file_len(const struct wholly_file *file);

/**
 * Makes the calls on this file so far survive: they do when this returns. Under WHOLLY_POLICY_PER_OP they did before.
 *
 * Errors: -EIO where the medium failed.
 */
int wholly_file_sync(const struct wholly_file *file);

/**
 * Returns the file's path below the store's directory, as it was opened. The text is the handle's, and stays until it is closed. NULL
 * where file is NULL.
 */
const char *wholly_file_path(const struct wholly_file *file);

/**
 * Returns the group's number, which no other group of the store ever has; 0 where group is NULL or the store could not be had.
 */
uint64_t wholly_group_id(const struct wholly_group *group);

/**
 * Opens an existing regular file, as this group sees the directory. Close it by wholly_file_close, before or after the end of the group.
 *
 * Errors: those of wholly_store_open_file.
 */
int wholly_group_open_file(struct wholly_group *group,
                           const char *path,
                           struct wholly_file **file);

/**
 * Creates a regular file with the permission bits mode, whatever the umask. It appears with the group, and vanishes with it.
 *
 * Errors: -EEXIST where the name is taken; -ENOENT where its directory does not exist; -EINVAL where mode has other bits; those of all
 * paths.
 */
int wholly_group_create(struct wholly_group *group,
                        const char *path,
                        uint32_t mode,
                        struct wholly_file **file);

/**
 * Opens a regular file as wholly_group_open_file does, or creates it as wholly_group_create does where there is none.
 *
 * Errors: those of both, but for -EEXIST.
 */
int wholly_group_open_or_create(struct wholly_group *group,
                                const char *path,
                                uint32_t mode,
                                struct wholly_file **file);

/**
 * Has the group's calls wait so many milliseconds for other groups to end, where they would get -EBUSY at once. 0, as each group begins with,
 * is not at all. Two groups that wait for each other both do so for as long as they may, and then one of them gets -EBUSY.
 *
 * Errors: -EINVAL without a group.
 */
int wholly_group_set_busy_timeout(struct wholly_group *group,
                                  uint64_t milliseconds);

/**
 * Makes the file the group's own now rather than at its first change. Groups of several files commit faster if all are added before
 * the first write.
 *
 * Errors: -EBUSY where another group changes the file; -EINVAL for a file of another store.
 */
int wholly_group_add(struct wholly_group *group,
                     const struct wholly_file *file);

/**
 * Writes length bytes at offset. The file grows where that lies beyond its end; a gap reads as zeros. Nothing of it survives before
 * the group is committed.
 *
 * Errors: -EBUSY where another group changes the file; -EINVAL for a file of another store; -ENOSPC, after which the group can still be
 * aborted.
 */
int wholly_group_write(struct wholly_group *group,
                       const struct wholly_file *file,
                       uint64_t offset,
                       const void *data,
                       size_t length);

/**
 * Writes length bytes at the end of the file, as the group sees it. Returns the offset at which they stand.
 *
 * Errors: those of wholly_group_write.
 */
int64_t wholly_group_append(struct wholly_group *group,
                            const struct wholly_file *file,
                            const void *data,
                            size_t length);

/**
 * Makes the file length bytes long. What lay beyond is gone; new bytes are zero.
 *
 * Errors: those of wholly_group_write.
 */
int wholly_group_set_len(struct wholly_group *group, const struct wholly_file *file, uint64_t length);

/**
 * Changes what space the length bytes from offset on have, as fallocate(2) does, by mode:
 *
 *   0                                                        reserves space; the file grows to the end of the range
 *   WHOLLY_FALLOCATE_KEEP_SIZE                               reserves space
 *   WHOLLY_FALLOCATE_PUNCH_HOLE | WHOLLY_FALLOCATE_KEEP_SIZE makes a hole: zeros, and whole blocks are given back
 *   WHOLLY_FALLOCATE_ZERO_RANGE                              makes zeros that have their space; the file grows as with 0
 *   WHOLLY_FALLOCATE_ZERO_RANGE | WHOLLY_FALLOCATE_KEEP_SIZE makes zeros that have their space
 *
 * What reads as zeros is in the group as bytes are, and costs one small record, however long it is. Blocks are given back, or reserved,
 * when the group is taken home; if there is no space then, the checkpoint fails until there is.
 *
 * Errors: -EOPNOTSUPP for other modes; -EINVAL for a range of no bytes, -EFBIG for one that ends beyond 4 PiB; -ENOSPC where what is to be
 * reserved is more than all that is free; those of wholly_group_write.
 */
int wholly_group_fallocate(struct wholly_group *group,
                           const struct wholly_file *file,
                           uint32_t mode,
                           uint64_t offset,
                           uint64_t length);

/**
 * Reads up to length bytes at offset, as the group sees the file. Returns how many: fewer only at its end.
 *
 * Errors: -EUCLEAN where the bytes have rotted in the log; -EINVAL for a file of another store; of the file system.
 */
int64_t wholly_group_read(struct wholly_group *group,
                          const struct wholly_file *file,
                          uint64_t offset,
                          void *buffer,
                          size_t length);

/**
 * Returns the size of the file in bytes, as the group sees it.
 */
int64_t wholly_group_len(struct wholly_group *group, const struct wholly_file *file);

/**
 * Makes the group survive power loss: it does when this returns 0, and from then on everybody sees it. The group ends and its handle is
 * freed, also on failure.
 *
 * Errors: -EIO where the medium failed: nobody knows whether the group survives until the store is opened again. After any other error the
 * group is aborted.
 */
int wholly_group_commit(struct wholly_group *group);

/**
 * Makes the group atomic, and ordered before later groups on the same files; a later wholly_group_commit or sync makes it durable. On
 * every medium that Wholly has today this is wholly_group_commit. The group ends and its handle is freed, also on failure.
 *
 * Errors: those of wholly_group_commit.
 */
int wholly_group_commit_atomic(struct wholly_group *group);

/**
 * Undoes the group, in memory and on the medium. The group ends and its handle is freed.
 */
int wholly_group_abort(struct wholly_group *group);

/**
 * Tells what is known of what the path names, as the group sees it, as lstat(2) does: a symbolic link at the end of the path is not
 * followed.
 *
 * Errors: -ENOENT; those of all paths.
 */
int wholly_group_metadata(struct wholly_group *group,
                          const char *path,
                          struct wholly_metadata *metadata);

/**
 * wholly_group_metadata, as everybody sees it.
 *
 * Errors: those of wholly_group_metadata.
 */
int wholly_store_metadata(const struct wholly_store *store, const char *path, struct wholly_metadata *metadata);

/**
 * Reads the target of a symbolic link, as the group sees it, as readlink(2) does: up to length bytes of it, without a zero at their end.
 * Returns how many; a target that is longer is cut. None has more than 4095 bytes.
 *
 * Errors: -ENOENT; -EINVAL for what is no symbolic link, and where length is 0; those of all paths.
 */
int64_t wholly_group_readlink(struct wholly_group *group,
                              const char *path,
                              void *buffer,
                              size_t length);

/**
 * wholly_group_readlink, as everybody sees it.
 *
 * Errors: those of wholly_group_readlink.
 */
int64_t wholly_store_readlink(const struct wholly_store *store, const char *path, void *buffer, size_t length);

/**
 * Begins a group on the mount that fd is of: any open file or directory there, which may be closed again.
 *
 * Errors: -EBUSY where another group runs on the mount; -EOPNOTSUPP where it is no mount of a store, or one that cannot tell which process
 * calls (of another namespace of processes, or before Linux 5.3); -EBADF.
 */
int wholly_mount_begin(int fd,
                       struct wholly_mount_group **group);

/**
 * Makes an open file of the mount the group's own now rather than at its first change, and what is written by its descriptors part of the
 * group, whoever writes: children have their parent's. Of a file that is the group's own so is what is written to mapped memory.
 *
 * Errors: -EBUSY where a group has the file; -EBADF where fd is not open for writing; -EXDEV where it is of another mount; -EPERM in another
 * process than the one that began the group; -EINVAL where the group has ended.
 */
int wholly_mount_add(const struct wholly_mount_group *group,
                     int fd);

/**
 * Makes the group survive power loss: it does when this returns 0; in a command of wholly run, with the command. The group ends and its handle is
 * freed, also on failure. What was written to mapped memory is part of it where msync(2) was called before.
 *
 * Errors: -EIO where the medium failed: nobody knows whether the group survives until the store is opened again. After any other error the
 * group is aborted.
 */
int wholly_mount_commit(struct wholly_mount_group *group);

/**
 * Undoes the group; in a command of wholly run, all that the command does. On return all see the mount as it was before. The group ends and its
 * handle is freed, also on failure.
 *
 * Errors: -EPERM in another process than the one that began it.
 */
int wholly_mount_abort(struct wholly_mount_group *group);

/**
 * Makes a directory with the permission bits mode, whatever the umask. It appears with the group, and vanishes with it.
 *
 * Errors: -EEXIST where the name is taken; -ENOENT where its directory does not exist; -EINVAL where mode has other bits; those of all
 * paths.
 */
int wholly_group_mkdir(struct wholly_group *group,
                       const char *path,
                       uint32_t mode);

/**
 * Makes a FIFO, a socket, a device or an empty regular file, as the type bits of mode say (S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK; S_IFREG or
 * none), with its permission bits, whatever the umask. device is its number as in st_rdev, and counts for devices only. It appears with
 * the group, and vanishes with it.
 *
 * Errors: -EEXIST where the name is taken; -ENOENT where its directory does not exist; -EPERM for a device, without the right to make one;
 * -EINVAL for other types and bits; those of all paths.
 */
int wholly_group_mknod(struct wholly_group *group,
                       const char *path,
                       uint32_t mode,
                       uint64_t device);

/**
 * Makes a symbolic link that holds target, which need not be there. It appears with the group, and vanishes with it.
 *
 * Errors: -EEXIST where the name is taken; -ENOENT where its directory does not exist, or target is empty; -ENAMETOOLONG for a target of
 * more than 4095 bytes; those of all paths.
 */
int wholly_group_symlink(struct wholly_group *group,
                         const char *target,
                         const char *path);

/**
 * Gives what from names the name to as well. A symbolic link is meant itself. The new name appears with the group, and vanishes with it.
 *
 * Errors: -ENOENT; -EEXIST where to is taken; -EPERM for a directory; -EBUSY where another group has what from names; those of all paths.
 */
int wholly_group_link(struct wholly_group *group,
                      const char *from,
                      const char *to);

/**
 * Takes a name away from what is no directory. With its last name a file is gone once nobody has it open. When the group is committed the
 * name does not come back after a crash; when it is aborted it never went.
 *
 * Errors: -ENOENT; -EISDIR for a directory; -EBUSY where another group has what the path names; those of all paths.
 */
int wholly_group_unlink(struct wholly_group *group,
                        const char *path);

/**
 * Removes an empty directory. When the group is committed it does not come back after a crash; when it is aborted it never went.
 *
 * Errors: -ENOENT; -ENOTDIR for what is no directory; -ENOTEMPTY; -EBUSY where another group has names in it; those of all paths.
 */
int wholly_group_rmdir(struct wholly_group *group,
                       const char *path);

/**
 * Gives what from names the name to instead. What had that name loses it; with WHOLLY_RENAME_NOREPLACE nothing may have it, and with
 * WHOLLY_RENAME_EXCHANGE the two change places. An empty directory may be replaced by a directory. Where both are names of one object
 * already, nothing happens. Both names change with the group, or neither does.
 *
 * Errors: -ENOENT; -EEXIST with WHOLLY_RENAME_NOREPLACE; -EISDIR, -ENOTDIR where a directory and something else would replace each other;
 * -ENOTEMPTY; -EINVAL for a directory that would be moved into itself, and for other flags; -EBUSY where another group has what either
 * names; those of all paths.
 */
int wholly_group_rename(struct wholly_group *group,
                        const char *from,
                        const char *to,
                        uint32_t flags);

/**
 * Gives what lies at from, a path relative to the store's directory, in its layer (wholly_store_make_layer), the name to, which nothing may have: a
 * directory with all that is in it, or anything else. Nobody may write to it from now on. It has the owner, mode, times and attributes that it was made with.
 * The group's commit makes all of it durable, and a checkpoint takes it home by one rename. Where the group does not commit, it lies at from again. Such a group
 * is not parked.
 *
 * Errors: -EINVAL where from is not in the layer; -ENOENT; -EEXIST; -EBUSY for another hard link of a file that the store knows, and where another group has
 * the name; those of all paths.
 */
int wholly_group_adopt(struct wholly_group *group,
                       const char *from,
                       const char *to);

/**
 * wholly_group_mkdir in a group of its own: the directory survives when this returns.
 *
 * Errors: those of wholly_group_mkdir and wholly_group_commit.
 */
int wholly_store_mkdir(const struct wholly_store *store, const char *path, uint32_t mode);

/**
 * wholly_group_mknod in a group of its own: what it makes survives when this returns.
 *
 * Errors: those of wholly_group_mknod and wholly_group_commit.
 */
int wholly_store_mknod(const struct wholly_store *store, const char *path, uint32_t mode, uint64_t device);

/**
 * wholly_group_symlink in a group of its own: the link survives when this returns.
 *
 * Errors: those of wholly_group_symlink and wholly_group_commit.
 */
int wholly_store_symlink(const struct wholly_store *store, const char *target, const char *path);

/**
 * wholly_group_link in a group of its own: the new name survives when this returns.
 *
 * Errors: those of wholly_group_link and wholly_group_commit.
 */
int wholly_store_link(const struct wholly_store *store, const char *from, const char *to);

/**
 * wholly_group_unlink in a group of its own: the name does not come back after a crash when this has returned.
 *
 * Errors: those of wholly_group_unlink and wholly_group_commit.
 */
int wholly_store_unlink(const struct wholly_store *store, const char *path);

/**
 * wholly_group_rmdir in a group of its own: the directory does not come back after a crash when this has returned.
 *
 * Errors: those of wholly_group_rmdir and wholly_group_commit.
 */
int wholly_store_rmdir(const struct wholly_store *store, const char *path);

/**
 * wholly_group_rename in a group of its own: all of it survives when this returns.
 *
 * Errors: those of wholly_group_rename and wholly_group_commit.
 */
int wholly_store_rename(const struct wholly_store *store, const char *from, const char *to, uint32_t flags);

/**
 * Parks the group instead of committing it: on return it survives a crash by itself, as long as nobody applies or discards it, and has given
 * up all that it had claimed. note is for people, of up to 1024 bytes, or NULL. With keep_seconds other than 0 it is discarded when so much
 * time has passed. What it builds on and is not home yet is taken home first. The group ends and its handle is freed, also on failure.
 *
 * Errors: -EINVAL where it has changed nothing; those of wholly_store_checkpoint; -ENOSPC. Then the group is aborted.
 */
int wholly_group_park(struct wholly_group *group,
                      const char *note,
                      uint64_t keep_seconds,
                      uint64_t *id);

/**
 * Commits the group, unless a program that bypasses the store has changed something that it builds on, since the group first touched it: then
 * the group is parked, as by wholly_group_park, nothing is overwritten, and id is the parked group's; else id is 0. The group ends and its
 * handle is freed, also on failure.
 *
 * Errors: -ESTALE where it is parked: the text lists what is otherwise; those of wholly_group_commit and wholly_group_park: then the group is
 * aborted.
 */
int wholly_group_commit_or_park(struct wholly_group *group,
                                const char *note,
                                uint64_t keep_seconds,
                                uint64_t *id);

/**
 * Opens a listing of what is parked, in the order in which the groups began. What has expired is discarded first. Close it by
 * wholly_parked_list_close, before or after the store.
 *
 * Errors: of the file system.
 */
int wholly_store_open_parked_list(const struct wholly_store *store,
                                  struct wholly_parked_list **list);

/**
 * Tells the next parked group of a listing. Returns 1, and 0 where there is none: then the struct is left as it is.
 */
int wholly_parked_list_read(struct wholly_parked_list *list, struct wholly_parked *parked);

/**
 * Closes a listing of parked groups.
 */
int wholly_parked_list_close(struct wholly_parked_list *list);

/**
 * Commits a parked group, if all that it relies on is as it was: the names that it sets, the bytes of files that it changes or removes, the
 * attributes that it sets. When this returns 0 it survives, everybody sees it, and it is parked no more.
 *
 * Errors: -ESTALE where something is otherwise: the text lists all of that, nothing has changed, and the group stays parked; -EBUSY where a
 * running group has something that it changes; -ENOENT where no such group is parked; -EUCLEAN; those of wholly_group_commit.
 */
int wholly_store_apply(const struct wholly_store *store,
                       uint64_t id);

/**
 * Removes a parked group. It does not come back after a crash when this has returned.
 *
 * Errors: -ENOENT where no such group is parked.
 */
int wholly_store_discard(const struct wholly_store *store, uint64_t id);

/**
 * Looks at what a parked group would change. Close it by wholly_review_close.
 *
 * Errors: -ENOENT where no such group is parked; -EUCLEAN where it is damaged.
 */
int wholly_store_review(const struct wholly_store *store, uint64_t id, struct wholly_review **review);

/**
 * Tells the next change, in the order of paths. Returns 1, and 0 where there is none: then the struct is left as it is.
 */
int wholly_review_next(struct wholly_review *review, struct wholly_change *change);

/**
 * Reads up to length bytes of the file, or of the target of the symbolic link, that the change told last is about: as it was where after is
 * 0, else as it is to be. Returns how many: fewer only at its end.
 *
 * Errors: -ENOENT where there is nothing on that side, or not any more; -EINVAL for what holds no bytes, and before the first change was
 * told; -EUCLEAN.
 */
int64_t wholly_review_read(struct wholly_review *review,
                           int after,
                           uint64_t offset,
                           void *buffer,
                           size_t length);

/**
 * Closes a review.
 */
int wholly_review_close(struct wholly_review *review);

/**
 * Makes the directory a store: creates .wholly in it. Files in it stay as they are. On return that survives a crash; after a
 * crash before it, there is none. options may be NULL.
 *
 * Errors: -EEXIST where it is one already; -ENOENT, -ENOTDIR, -ENOSPC and others of the file system.
 */
int wholly_store_init(const char *dir,
                      const struct wholly_options *options);

/**
 * Opens the store in a directory, recovers it and owns it. What was committed before any crash is served when this returns.
 * options may be NULL; segment_bytes and log_min_bytes are those that the store was made with.
 *
 * Errors: -ENODEV where there is no store; -EBUSY where a process has it open; -EUCLEAN where it is damaged; -EOPNOTSUPP where a newer
 * version made it.
 */
int wholly_store_open(const char *dir,
                      const struct wholly_options *options,
                      struct wholly_store **store);

/**
 * Opens the store in a directory as wholly_store_open does. Where there is none it is made first, and the directory too if only
 * that is missing: both survive a crash when this returns.
 *
 * Errors: those of wholly_store_open and wholly_store_init, but for -ENODEV and -EEXIST.
 */
int wholly_store_open_or_create(const char *dir,
                                const struct wholly_options *options,
                                struct wholly_store **store);

/**
 * Takes everything home and gives the store up: on return the log is empty, and other programs see all that was committed. The handle is
 * freed, also on failure. Handles of files, groups and writers keep the store to this process until they are closed.
 *
 * Errors: those of wholly_store_checkpoint. The log then keeps what is not home, and the next open goes on.
 */
int wholly_store_close(struct wholly_store *store);

/**
 * Gives the store up as it is. What is committed and not home stays in the log, for the next open. The handle is freed.
 */
int wholly_store_drop(struct wholly_store *store);

/**
 * Makes the layer: an empty directory, .wholly/layer, below the store's directory, of mode 0700, in place of any that is there. What is made in it, by
 * whatever program and calls, groups can adopt (wholly_group_adopt). Nothing in it is durable, and all that is not adopted goes when the store is closed or
 * removed, or opened again.
 *
 * Errors: of the file system, where something of an earlier layer cannot be removed, or there is no space.
 */
int wholly_store_make_layer(const struct wholly_store *store);

/**
 * Removes the layer with all that is in it, where there is one.
 *
 * Errors: of the file system: then a part of it may be left.
 */
int wholly_store_remove_layer(const struct wholly_store *store);

/**
 * Takes everything that is committed home. On return it survives without the log, and other programs see it. report may be NULL.
 *
 * Errors: -ESTALE where another program changed a file of which the log holds updates: nothing is overwritten, the log keeps the store's
 * version; of the file system. The log then keeps what is not home.
 */
int wholly_store_checkpoint(const struct wholly_store *store,
                            struct wholly_checkpoint_report *report);

/**
 * Makes all calls outside of groups so far survive: they do when this returns.
 *
 * Errors: -EIO where the medium failed.
 */
int wholly_store_sync(const struct wholly_store *store);

/**
 * Tells what the store is doing.
 */
int wholly_store_stat(const struct wholly_store *store, struct wholly_stat *stat);

/**
 * Tells what opening the store found and did.
 */
int wholly_store_recovery(const struct wholly_store *store, struct wholly_recovery *recovery);

/**
 * Tells about one of the conflicts that opening the store found; index counts from 0.
 *
 * Errors: -EINVAL beyond the last one.
 */
int wholly_store_conflict(const struct wholly_store *store, uint64_t index, struct wholly_conflict *conflict);

/**
 * Opens an existing regular file, for calls outside of groups and for groups to use. A symbolic link at the end of the path is followed.
 *
 * Errors: -ENOENT; -EISDIR for a directory; -EINVAL for what else is no regular file; -EACCES where it may not be read and written; those
 * of all paths.
 */
int wholly_store_open_file(const struct wholly_store *store,
                           const char *path,
                           struct wholly_file **file);

/**
 * Creates a regular file with the permission bits mode, whatever the umask, in a group of its own: it survives when this returns.
 *
 * Errors: those of wholly_group_create.
 */
int wholly_store_create_file(const struct wholly_store *store,
                             const char *path,
                             uint32_t mode,
                             struct wholly_file **file);

/**
 * Begins a group: updates of any number of files that survive a crash wholly or not at all. Groups do not nest; any number of them may
 * run at once, on different files. End it by wholly_group_commit, wholly_group_commit_atomic or wholly_group_abort.
 *
 * In a child of fork that cannot have the store this succeeds, and each call on the group fails with -EBUSY.
 */
int wholly_store_begin(const struct wholly_store *store,
                       struct wholly_group **group);

/**
 * Makes a writer: a place for one thread to begin one group after the other from, faster than by wholly_store_begin, since what a group
 * works with stays with the writer. For a thread that commits many small groups. A writer keeps the store open, as a file does.
 */
int wholly_store_writer(const struct wholly_store *store,
                        struct wholly_writer **writer);

/**
 * Commits groups of several stores together: after a crash all of them are there, or none. When this returns 0 all of them survive power
 * loss. The store of the first one that changes anything is the coordinator: where the process dies half-way, the others ask it when they are
 * next opened, and that fails with -EBUSY where it cannot be found (see wholly_options.release). What the groups write is written once more
 * for this. The groups end and their handles are freed, also on failure.
 *
 * Errors: -EINVAL where one is NULL, is there twice, or is a writer's, or two are of one store; those of wholly_group_park and wholly_group_commit. Then all are aborted. After
 * -EIO nobody knows until the stores are opened again; where only some of them say so, the others have the groups. Where an argument is NULL or
 * there twice, none has ended.
 */
int wholly_groups_commit_together(struct wholly_group *const *groups,
                                  size_t count);

/**
 * Commits parked groups of several stores together, of each store one: after a crash all of them are committed, or all are parked still. stores and ids
 * have count elements each.
 *
 * Errors: -ESTALE where something is otherwise for one of them: the text lists that, nothing has changed, and all stay parked; -EINVAL where
 * two are of one store; else those of wholly_store_apply and wholly_groups_commit_together.
 */
int wholly_stores_apply_together(const struct wholly_store *const *stores,
                                 const uint64_t *ids,
                                 size_t count);

/**
 * The version of the library that the program runs with, such as "0.1.0". The text is the library's, and stays.
 */
const char *wholly_version(void);

/**
 * The version of the library that the program runs with, as a number: major * 1000000 + minor * 1000 + patch.
 */
uint32_t wholly_version_number(void);

/**
 * Begins a group of the writer, as wholly_store_begin does. Its handle is the writer's: it is not used after the group's end.
 *
 * Errors: -EBUSY where the writer's last group has not ended.
 */
int wholly_writer_begin(struct wholly_writer *writer,
                        struct wholly_group **group);

/**
 * Closes a writer. A group of it that has not ended is aborted.
 */
int wholly_writer_close(struct wholly_writer *writer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WHOLLY_H */

/* Made by cbindgen from the sources of wholly-capi; do not edit. */
