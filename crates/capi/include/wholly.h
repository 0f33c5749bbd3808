/*
 * Wholly: file updates that happen wholly or not at all, even if the process is killed or the power fails half-way.
 *
 * Open an ordinary directory as a store, update any number of its files in one group, and commit it. After a crash the
 * group is there with everything in it, or nothing of it is. Compile and link with `pkg-config --cflags --libs wholly`.
 *
 * Results. A function returns 0, or a count if its description says so. On failure it returns a negative errno, and
 * wholly_error_text() returns the reason in words. A new handle is stored where the last argument points to; after a
 * failure NULL is stored there.
 *
 *   -EBUSY       Another group, process or store is using it: wait, or end the other group. Nothing has changed.
 *   -ENODEV      The directory is not a store: make it one with wholly_store_init.
 *   -EEXIST      There is a store already, or a file of that name.
 *   -ENOENT      The name, or a directory on the way to it, does not exist.
 *   -EISDIR, -ENOTDIR, -ENOTEMPTY, -EPERM, -EACCES
 *                The path, or the user, does not permit the call, as in the system call of that name. wholly_store_open
 *                returns -EPERM if another user can have written to the store's folder.
 *   -EINVAL      The call is wrong: an argument is NULL or out of range, a size is not set, a group has ended.
 *   -ENOSPC      There is no space left. The group can still be aborted; nothing committed is lost.
 *   -EOPNOTSUPP  A newer version of Wholly made the store, or the program needs a newer version of the library, or the
 *                file system cannot carry a store, or the directory is in a mount: use wholly_mount_begin there.
 *   -EUCLEAN     The medium is damaged at the place that the text names. What is intact can still be read.
 *   -ESTALE      Another program changed a file while the log held updates for it: neither version is overwritten. Or
 *                something that a group relies on has changed meanwhile: no file was changed. Or the store is a copy.
 *   -EIO         An earlier write or sync failed: close the store and open it again, which recovers it.
 *   others       Errors of the file system, with its own number (-EROFS, ...).
 *
 * Paths are relative to the store's directory. Symbolic links in a path are followed. A symbolic link at the end of a
 * path is used itself, unless the description of the function says that it is followed. Errors of all paths:
 *
 *   -EINVAL         an empty or absolute path, .., .wholly, and the store's directory if the function cannot take it
 *   -EXDEV          a link leads out of the directory
 *   -ELOOP          more than 40 symbolic links
 *   -ENAMETOOLONG   a name of more than 255 bytes
 *   -ENOTDIR        a part of the path is not a directory
 *   -EACCES, -EPERM (functions that change names) the permissions of the directory forbid it
 *   -EBUSY          (functions that change names) another group has claimed the name, or has removed, made or moved the
 *                   directory
 *
 * Other programs see the directory as of the last checkpoint, contents and names alike: see wholly_store_checkpoint.
 *
 * If the library detects a bug of its own (a panic in Rust), the call returns -EIO, and the text says so. From then on
 * every call on that store fails with -EIO. Functions that close something free the handle and do nothing else. The
 * store stays with this process until it ends; the next process that opens it recovers it, as after a crash.
 *
 * Handles. A NULL handle is -EINVAL. Do not use a handle that was closed or whose group has ended, in any thread: the
 * library cannot detect that. Any number of threads may use stores and files at the same time, also while one of them
 * waits. One thread at a time may use a group, or a writer with its group. Handles may be closed in any order.
 *
 * Threads and signals. Functions may be called from any thread, but not from a signal handler.
 *
 * fork. Parent or child keeps a store, whichever first makes a call on it or on its files; calls of the other fail with
 * -EBUSY. If the child keeps it, it finds what was committed, and can use the handles of stores, files and writers that
 * it has from its parent. Groups that were running stay with the parent. A child that only closes files and writers,
 * and drops stores, does not disturb the parent.
 */

#ifndef WHOLLY_H
#define WHOLLY_H

#include <stddef.h>
#include <stdint.h>

/**
 * As an owner or a group of users: it stays as it is.
 */
#define WHOLLY_KEEP_OWNER UINT32_MAX

/**
 * As a time: it stays as it is.
 */
#define WHOLLY_KEEP_TIME INT64_MIN

/**
 * Extended attributes: the call fails with -EEXIST if the attribute exists. The number is the kernel's.
 */
#define WHOLLY_XATTR_CREATE 1

/**
 * Extended attributes: the call fails with -ENODATA if the attribute does not exist. The number is the kernel's.
 */
#define WHOLLY_XATTR_REPLACE 2

/**
 * Mode of wholly_group_fallocate and wholly_file_fallocate: the file does not grow.
 */
#define WHOLLY_FALLOCATE_KEEP_SIZE 1

/**
 * Mode: the range becomes a hole. Only together with WHOLLY_FALLOCATE_KEEP_SIZE.
 */
#define WHOLLY_FALLOCATE_PUNCH_HOLE 2

/**
 * Mode: the range becomes zeros, with space reserved for them.
 */
#define WHOLLY_FALLOCATE_ZERO_RANGE 16

/**
 * The requests of ioctl(2) on any descriptor of a mount, for programs that do not use this library. They take no
 * argument, but for the last. This one returns 1 on a mount, and 2 in a command of wholly run whose view is FUSE.
 * Elsewhere, also in an overlay of wholly run, all of them fail with ENOTTY.
 */
#define WHOLLY_IOC_WHAT 59248

/**
 * Begins a group, as wholly_mount_begin does. It belongs to the open file that the descriptor stands for; its last
 * close aborts the group. The caller needs write permission to the root directory of the mount (EACCES).
 */
#define WHOLLY_IOC_BEGIN 59249

/**
 * Adds this open file to the process's group, as wholly_mount_add does.
 */
#define WHOLLY_IOC_ADD 59250

/**
 * Commits the group that this open file began.
 */
#define WHOLLY_IOC_COMMIT 59251

/**
 * Aborts the group that this open file began.
 */
#define WHOLLY_IOC_ABORT 59252

/**
 * Says which process has the mount's group, in 32 bytes: uint32_t process, user; uint64_t held_ms, idle_ms,
 * timeout_ms. All zero: no group runs.
 */
#define WHOLLY_IOC_HOLDER 2149640053

/**
 * Makes the calls on this open file atomic and ordered, as wholly_fatomic does.
 */
#define WHOLLY_IOC_FATOMIC 59255

/**
 * The same as wholly_fdataatomic does.
 */
#define WHOLLY_IOC_FDATAATOMIC 59256

/**
 * Commits the group that this open file began, as wholly_mount_commit_atomic does.
 */
#define WHOLLY_IOC_COMMIT_ATOMIC 59257

/**
 * Rename: the call fails with -EEXIST if the new name exists. The number is the kernel's.
 */
#define WHOLLY_RENAME_NOREPLACE 1

/**
 * Rename: the object with the new name gets the old one. The number is the kernel's.
 */
#define WHOLLY_RENAME_EXCHANGE 2

/**
 * Policy: each call outside of groups is a group of its own, and survives a power failure when it returns.
 */
#define WHOLLY_POLICY_PER_OP 0

/**
 * Policy: the calls on a file between two syncs are one group. It is committed by wholly_file_sync, wholly_store_sync,
 * the last close of the file, the end of the store, or when a group takes the file. After a crash the file is as at
 * its last commit.
 */
#define WHOLLY_POLICY_PER_SYNC 1

/**
 * Policy: all calls outside of groups are one group. It is committed by any sync, by the end of the store, when a
 * group takes one of its files, and after shared_interval_ms.
 */
#define WHOLLY_POLICY_SHARED 2

/**
 * Medium: persistent memory if files can be mapped from it (DAX); on tmpfs emulated persistent memory; else a disk.
 */
#define WHOLLY_MEDIUM_AUTO 0

/**
 * Medium: persistent memory; emulated if the directory is not on such memory.
 */
#define WHOLLY_MEDIUM_PMEM 1

/**
 * Medium: a disk.
 */
#define WHOLLY_MEDIUM_DISK 2

/**
 * In wholly_change.what: a new object gets the name.
 */
#define WHOLLY_CHANGE_CREATED 1

/**
 * In wholly_change.what: the name is removed.
 */
#define WHOLLY_CHANGE_REMOVED 2

/**
 * In wholly_change.what: a new object gets the name from the object that has it.
 */
#define WHOLLY_CHANGE_REPLACED 3

/**
 * In wholly_change.what: the object with the name from loses it and gets this one.
 */
#define WHOLLY_CHANGE_RENAMED 4

/**
 * In wholly_change.what: the object with the name from gets this one as well.
 */
#define WHOLLY_CHANGE_LINKED 5

/**
 * In wholly_change.what: the object keeps the name, and its bytes or attributes change.
 */
#define WHOLLY_CHANGE_CHANGED 6

/**
 * The version of this header: WHOLLY_VERSION_MAJOR.WHOLLY_VERSION_MINOR.WHOLLY_VERSION_PATCH. The library that the
 * program runs with may be another one: see wholly_version.
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
 * A listing of a directory: the names that were in it when the listing was opened. It keeps neither store nor group.
 * One thread at a time uses it, not always the same.
 */
typedef struct wholly_dir wholly_dir;

/**
 * An open regular file of a store. Any number of threads may use the handle at the same time. The calls wholly_file_*
 * are outside of groups: the store's policy says which of them survive together. In a group, pass the file to
 * wholly_group_*.
 */
typedef struct wholly_file wholly_file;

/**
 * A group: updates of any number of files that survive a crash wholly or not at all. No other group, thread or program
 * sees the updates before the group is committed; calls on the group itself see them. The group claims what it changes
 * until it ends.
 *
 * A call that fails has changed nothing, and the group continues. If a call fails half-way, for want of space or by an
 * error of the medium, the group can only be aborted, and wholly_group_commit says so.
 *
 * One thread at a time uses a group, not always the same.
 */
typedef struct wholly_group wholly_group;

/**
 * A group of plain system calls on a mount of a store (wholly mount), or in a command of wholly run. From its begin to
 * its end, everything that the process changes there belongs to the group: by any thread, descriptor and path. Changes
 * by its children do not belong to it, except what they write by descriptors that were added.
 *
 * The store is open in the process that serves the mount, not here. So other programs see what the group has done so
 * far; they cannot change it before the group ends (EBUSY). If the process ends, the group is aborted. It is aborted
 * too if it makes no calls for as long as the mount's option group_timeout says; until the process commits or aborts
 * it (or closes its descriptors), its changes on the mount then fail with ECANCELED. In a command of wholly run the
 * group joins the group of the command: it is committed with that, and if it is aborted, the command changes nothing.
 */
typedef struct wholly_mount_group wholly_mount_group;

/**
 * A listing of the groups that were parked when it was opened. One thread at a time uses it, not always the same.
 */
typedef struct wholly_parked_list wholly_parked_list;

/**
 * What a parked group would change. It keeps the store open, as a file does. One thread at a time uses it, not always
 * the same.
 */
typedef struct wholly_review wholly_review;

/**
 * An open store. One process has it open; any number of its threads may use the handle at the same time.
 */
typedef struct wholly_store wholly_store;

/**
 * Begins one group after the other, for one thread (wholly_store_writer). One thread at a time uses a writer and its
 * group, not always the same.
 */
typedef struct wholly_writer wholly_writer;

/**
 * One name of a directory. Set size before a call fills it in.
 */
typedef struct wholly_dir_entry {
    /**
     * sizeof(wholly_dir_entry).
     */
    size_t size;
    /**
     * The name. The text belongs to the listing, and is valid until the listing is closed.
     */
    const char *name;
    /**
     * Inode number, as in wholly_metadata.
     */
    uint64_t ino;
    /**
     * The type bits as in st_mode (S_IFREG, S_IFDIR, ...); 0 if the file system does not report them here.
     */
    uint32_t type_bits;
    /**
     * Zero.
     */
    uint32_t reserved;
} wholly_dir_entry;

/**
 * The attributes of an object. Set size before a call fills it in. Times are in nanoseconds since 1970. There is no
 * device number of the file system: everything is on that of the store's directory.
 */
typedef struct wholly_metadata {
    /**
     * sizeof(wholly_metadata).
     */
    size_t size;
    /**
     * Inode number. An object that is not written back yet has a number of the store's, which changes when the store
     * is opened again.
     */
    uint64_t ino;
    /**
     * Size in bytes; of a symbolic link, bytes of its target.
     */
    uint64_t bytes;
    /**
     * Bytes that the file system has allocated for it.
     */
    uint64_t allocated_bytes;
    /**
     * Time of birth; 0 if the file system does not keep it.
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
     * The number of a device, as in st_rdev.
     */
    uint64_t device;
    /**
     * Type and permission bits, as in st_mode.
     */
    uint32_t mode;
    /**
     * The number of names.
     */
    uint32_t nlink;
    /**
     * The user who owns it.
     */
    uint32_t uid;
    /**
     * The group of users that owns it.
     */
    uint32_t gid;
} wholly_metadata;

/**
 * A parked group. Set size before a call fills it in. Times are in nanoseconds since 1970.
 */
typedef struct wholly_parked {
    /**
     * sizeof(wholly_parked).
     */
    size_t size;
    /**
     * Its number. No other group of the store ever has the same one. `wholly list` prints id >> 40, a dash, and the
     * other bits.
     */
    uint64_t id;
    /**
     * When it was parked.
     */
    int64_t parked_ns;
    /**
     * When it will be discarded; 0 if it does not expire.
     */
    int64_t expires_ns;
    /**
     * Bytes that it writes to files.
     */
    uint64_t bytes;
    /**
     * Bytes of disk space that it takes.
     */
    uint64_t space;
    /**
     * The number of files whose bytes it changes.
     */
    uint32_t files;
    /**
     * The number of names that it sets or removes.
     */
    uint32_t names;
    /**
     * 1 if it cannot be read: only id and space are valid then. Else 0.
     */
    uint64_t is_damaged;
    /**
     * The note with which it was parked.
     */
    char note[1032];
} wholly_parked;

/**
 * One change of a group. Set size before a call fills it in.
 */
typedef struct wholly_change {
    /**
     * sizeof(wholly_change).
     */
    size_t size;
    /**
     * The new name, relative to the store's directory; for WHOLLY_CHANGE_REMOVED the removed one. The text belongs to
     * the review, and is valid until the review is closed.
     */
    const char *path;
    /**
     * The name that a renamed object had, or another name of a linked one; else NULL.
     */
    const char *from;
    /**
     * Size in bytes before the change; 0 if there was no object.
     */
    uint64_t bytes_before;
    /**
     * Size in bytes after the change; 0 if there is no object.
     */
    uint64_t bytes_after;
    /**
     * WHOLLY_CHANGE_*.
     */
    uint32_t what;
    /**
     * 1 if the bytes of a file change, or may change; else 0.
     */
    uint32_t content;
    /**
     * Type and permission bits before the change, as in st_mode; 0 if there was no object.
     */
    uint32_t mode_before;
    /**
     * Type and permission bits after the change.
     */
    uint32_t mode_after;
    /**
     * The owner before the change.
     */
    uint32_t uid_before;
    /**
     * The group of users before the change.
     */
    uint32_t gid_before;
    /**
     * The owner after the change.
     */
    uint32_t uid_after;
    /**
     * The group of users after the change.
     */
    uint32_t gid_after;
    /**
     * The number of extended attributes that are set or removed.
     */
    uint64_t xattrs;
} wholly_change;

/**
 * How a store is made and opened. Set the whole struct to zero, then set size, then the fields that are to differ:
 * zero means the default. Later versions add fields at the end.
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
     * What the directory is on: WHOLLY_MEDIUM_*. Use the same value to make and to open a store.
     */
    uint32_t medium;
    /**
     * Milliseconds after which WHOLLY_POLICY_SHARED commits. It has no default.
     */
    uint64_t shared_interval_ms;
    /**
     * Bytes of a segment of the log, set when the store is made: a power of two from 4 KiB to 2 MiB. Default 1 MiB.
     */
    uint64_t segment_bytes;
    /**
     * Bytes of log that the store is made with, and always keeps. Default 2 MiB.
     */
    uint64_t log_min_bytes;
    /**
     * Bytes up to which the log grows before groups wait for a checkpoint; a single group that needs more gets it.
     * Default 64 MiB.
     */
    uint64_t log_max_bytes;
    /**
     * Bytes of a group that are gathered in memory before the group goes to the log early. Default 512 KiB.
     */
    uint64_t gather_bytes;
    /**
     * Bytes from which a group's writes to one file bypass the log: they go to the file system at once, and are
     * written once. Applies to files that the group has created, and to writes in a row to an existing file if files
     * can share blocks (XFS, btrfs). UINT64_MAX: never. Default 512 KiB.
     */
    uint64_t stage_bytes;
    /**
     * Bytes of address space for the log on persistent memory. The log cannot grow beyond.
     */
    uint64_t reserve_bytes;
    /**
     * The number of threads that write back a large amount together. Default 2.
     */
    uint32_t checkpoint_threads;
    /**
     * Not zero: no thread writes back committed data in the background. It is then written back when the log is full,
     * by wholly_store_checkpoint and by wholly_store_close.
     */
    uint32_t no_background;
    /**
     * Not zero: the processor's caches survive a power failure (eADR), so nothing is flushed from them to persistent
     * memory.
     */
    uint32_t caches_persist;
    /**
     * Not zero: accept a copy of a store whose log holds updates. The store then uses the files at the paths of the
     * copied ones. Otherwise wholly_store_open fails with -ESTALE for such a copy.
     */
    uint32_t accept_copy;
    /**
     * Not zero: open a store that waits for the decision of wholly_groups_commit_together although the store that has
     * it cannot be found. The waiting group is parked, to be applied or discarded by someone who knows the outcome.
     * Otherwise wholly_store_open fails with -EBUSY.
     */
    uint32_t release;
    /**
     * Not zero: a group is written back as part of its commit. wholly_group_commit then returns when the group is in
     * the directory. If the file system refuses that, the commit fails, nothing has changed, and the store goes on.
     * Only for one thread at a time.
     */
    uint32_t at_once;
    /**
     * The number of files of the file system that the store keeps open although no program has them open. Default 256.
     */
    uint32_t open_files;
    /**
     * Not zero: the store keeps no spare space. Otherwise it takes 2 MiB of the file system, if that has much more, so
     * that files can be removed when the file system is full.
     */
    uint32_t no_spare;
} wholly_options;

/**
 * What a checkpoint did. Set size before a call fills it in.
 */
typedef struct wholly_checkpoint_report {
    /**
     * sizeof(wholly_checkpoint_report).
     */
    size_t size;
    /**
     * The number of files that it wrote to.
     */
    uint64_t files;
    /**
     * The number of 4 KiB blocks that it wrote back.
     */
    uint64_t blocks;
    /**
     * Bytes that it wrote back.
     */
    uint64_t bytes;
    /**
     * The number of log segments that it freed.
     */
    uint64_t segments_freed;
} wholly_checkpoint_report;

/**
 * Figures about an open store. Set size before a call fills it in. All are zero in a child of fork that cannot use the
 * store.
 */
typedef struct wholly_stat {
    /**
     * sizeof(wholly_stat).
     */
    size_t size;
    /**
     * How many times the store has been opened.
     */
    uint64_t incarnation;
    /**
     * Bytes of a segment of the log.
     */
    uint64_t segment_bytes;
    /**
     * The number of segments of the log.
     */
    uint64_t segments;
    /**
     * The number of segments that are free.
     */
    uint64_t free_segments;
    /**
     * The number of 4 KiB blocks whose latest bytes are not written back yet.
     */
    uint64_t pending_blocks;
    /**
     * The number of files that are open or have pending blocks.
     */
    uint64_t open_files;
    /**
     * Bytes of memory that the index takes.
     */
    uint64_t index_bytes;
    /**
     * The number of versions in the index, spare ones included.
     */
    uint64_t versions;
    /**
     * Bytes written to the log since the store was opened.
     */
    uint64_t log_bytes_written;
    /**
     * Bytes written back to ordinary files since the store was opened.
     */
    uint64_t home_bytes_written;
    /**
     * The number of fences since the store was opened.
     */
    uint64_t fences;
    /**
     * The number of synchronous writes and syncs since the store was opened.
     */
    uint64_t syncs;
    /**
     * 1 if the medium only emulates persistent memory: it survives the process, but not a power failure. Else 0.
     */
    uint64_t emulated;
    /**
     * What the log is stored on, in words.
     */
    char medium[128];
    /**
     * The number of parked groups.
     */
    uint64_t parked_groups;
    /**
     * Bytes of disk space that the parked groups take.
     */
    uint64_t parked_bytes;
} wholly_stat;

/**
 * What opening the store found and did. Set size before a call fills it in.
 */
typedef struct wholly_recovery {
    /**
     * sizeof(wholly_recovery).
     */
    size_t size;
    /**
     * The number of log segments that were in use.
     */
    uint64_t segments;
    /**
     * The number of committed groups that were not written back.
     */
    uint64_t groups;
    /**
     * The number of records that a crash tore: groups whose commit had not returned. They are gone.
     */
    uint64_t rejected;
    /**
     * The number of files that the log has updates for.
     */
    uint64_t files;
    /**
     * The number of names that the log sets.
     */
    uint64_t names;
    /**
     * The number of files that another program changed while the log held updates for them: see wholly_store_conflict.
     * If it is not 0, nothing is written back.
     */
    uint64_t conflicts;
} wholly_recovery;

/**
 * A file that another program changed while the log held updates for it. Set size before a call fills it in.
 */
typedef struct wholly_conflict {
    /**
     * sizeof(wholly_conflict).
     */
    size_t size;
    /**
     * The file, relative to the store's directory.
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
 * Returns in words why the last failed call of this thread failed: with files, places, and the process that has the
 * store. Empty if no call has failed. Calls that succeed leave it as it is.
 *
 * The text belongs to the library. It is valid until the next call of this thread fails or the thread ends.
 */
const char *wholly_error_text(void);

/**
 * Sets the permission bits, including set-user-id, set-group-id and sticky.
 *
 * Errors: -ENOENT; -EPERM if the user is not the owner; -EOPNOTSUPP for a symbolic link; -EINVAL if mode has other
 * bits; -EBUSY if another group sets attributes of the object, or changes the file; those of all paths.
 */
int wholly_group_chmod(struct wholly_group *group, const char *path, uint32_t mode);

/**
 * Sets the owner and the group of users, each unless it is WHOLLY_KEEP_OWNER. A regular file loses its set-user-id and
 * set-group-id bits and its capabilities.
 *
 * Errors: -ENOENT; -EPERM if the user may not do it; -EBUSY as wholly_group_chmod; those of all paths.
 */
int wholly_group_chown(struct wholly_group *group, const char *path, uint32_t uid, uint32_t gid);

/**
 * Sets the times of the last access and of the last change of content, in nanoseconds since 1970, each unless it is
 * WHOLLY_KEEP_TIME.
 *
 * Errors: -ENOENT; -EPERM if the user is not the owner; -EBUSY as wholly_group_chmod; those of all paths.
 */
int wholly_group_utimens(struct wholly_group *group, const char *path, int64_t atime_ns, int64_t mtime_ns);

/**
 * Sets an extended attribute of the kinds user, trusted or security, or an ACL (system.posix_acl_access,
 * system.posix_acl_default), to length bytes, at most 65536. flags are 0, WHOLLY_XATTR_CREATE or WHOLLY_XATTR_REPLACE.
 *
 * Errors: -ENOENT; -EEXIST, -ENODATA, depending on the flags; -EOPNOTSUPP for other kinds, and if the file system has
 * no such attributes; -EPERM, -EACCES if the user may not do it, and for user attributes of an object that is neither
 * a regular file nor a directory; -ERANGE for a name of more than 255 bytes; -E2BIG for a longer value; -EINVAL for
 * other flags; -EBUSY as wholly_group_chmod; those of all paths.
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
 * Errors: -ENODATA if there is none of this name; those of wholly_group_setxattr.
 */
int wholly_group_removexattr(struct wholly_group *group, const char *path, const char *name);

/**
 * Reads the value of an extended attribute, as the group sees it. Returns its size in bytes; if length is 0, it does
 * only that.
 *
 * Errors: -ENOENT; -ENODATA if there is none of this name; -ERANGE if the value is longer than length; -EOPNOTSUPP,
 * -EACCES as wholly_group_setxattr; those of all paths.
 */
int64_t wholly_group_getxattr(struct wholly_group *group,
                              const char *path,
                              const char *name,
                              void *buffer,
                              size_t length);

/**
 * Lists the names of all extended attributes that the process may see, as the group sees them, each followed by a
 * zero. Returns how many bytes the list has; if length is 0, it does only that.
 *
 * Errors: -ENOENT; -ERANGE if the list is longer than length; those of all paths.
 */
int64_t wholly_group_listxattr(struct wholly_group *group, const char *path, void *buffer, size_t length);

/**
 * wholly_group_chmod in a group of its own. When this returns 0, the mode survives a power failure.
 *
 * Errors: those of wholly_group_chmod and wholly_group_commit.
 */
int wholly_store_chmod(const struct wholly_store *store, const char *path, uint32_t mode);

/**
 * wholly_group_chown in a group of its own. When this returns 0, owner and group survive a power failure.
 *
 * Errors: those of wholly_group_chown and wholly_group_commit.
 */
int wholly_store_chown(const struct wholly_store *store, const char *path, uint32_t uid, uint32_t gid);

/**
 * wholly_group_utimens in a group of its own. When this returns 0, the times survive a power failure.
 *
 * Errors: those of wholly_group_utimens and wholly_group_commit.
 */
int wholly_store_utimens(const struct wholly_store *store, const char *path, int64_t atime_ns, int64_t mtime_ns);

/**
 * wholly_group_setxattr in a group of its own. When this returns 0, the attribute survives a power failure.
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
 * wholly_group_removexattr in a group of its own. When this returns 0, the attribute does not come back after a power
 * failure.
 *
 * Errors: those of wholly_group_removexattr and wholly_group_commit.
 */
int wholly_store_removexattr(const struct wholly_store *store, const char *path, const char *name);

/**
 * wholly_group_getxattr, of the committed state.
 *
 * Errors: those of wholly_group_getxattr.
 */
int64_t wholly_store_getxattr(const struct wholly_store *store,
                              const char *path,
                              const char *name,
                              void *buffer,
                              size_t length);

/**
 * wholly_group_listxattr, of the committed state.
 *
 * Errors: those of wholly_group_listxattr.
 */
int64_t wholly_store_listxattr(const struct wholly_store *store, const char *path, void *buffer, size_t length);

/**
 * Begins a transaction with these descriptors: tx_begin of wholly/compat.h, which says more. Returns its number, which
 * is greater than 0.
 *
 * Errors: those of wholly_mount_begin and wholly_mount_add; -EINVAL if fds is NULL and count is not 0.
 */
int64_t wholly_tx_begin(const int *fds, size_t count);

/**
 * Adds a descriptor to a transaction: tx_add of wholly/compat.h.
 *
 * Errors: -EINVAL if no such transaction runs; those of wholly_mount_add, and of wholly_mount_begin if it is the first
 * one.
 */
int wholly_tx_add(uint64_t id, int fd);

/**
 * Commits a transaction: tx_commit of wholly/compat.h. It ends, also on failure.
 *
 * Errors: -EINVAL if no such transaction runs; those of wholly_mount_commit.
 */
int wholly_tx_commit(uint64_t id);

/**
 * Aborts a transaction: tx_abort of wholly/compat.h. It ends, also on failure.
 *
 * Errors: -EINVAL if no such transaction runs; those of wholly_mount_abort.
 */
int wholly_tx_abort(uint64_t id);

/**
 * Opens a listing of a directory, as the group sees it, in no particular order, without . and .. entries. The path .
 * is the store's directory. A symbolic link at the end of the path is followed. Later changes are not in the listing.
 * Close it with wholly_dir_close, before or after the end of the group.
 *
 * Errors: -ENOENT; -ENOTDIR if it is not a directory; those of all paths.
 */
int wholly_group_open_dir(struct wholly_group *group, const char *path, struct wholly_dir **dir);

/**
 * wholly_group_open_dir, of the committed state. Close the listing with wholly_dir_close, before or after the store.
 *
 * Errors: those of wholly_group_open_dir.
 */
int wholly_store_open_dir(const struct wholly_store *store, const char *path, struct wholly_dir **dir);

/**
 * Fills in the next name of a listing. Returns 1; or 0 at the end, and leaves the entry as it is.
 */
int wholly_dir_read(struct wholly_dir *dir, struct wholly_dir_entry *entry);

/**
 * Closes a listing.
 */
int wholly_dir_close(struct wholly_dir *dir);

/**
 * Closes a file. Groups that use the file continue to use it. The last close of a file commits its calls under
 * WHOLLY_POLICY_PER_SYNC; to learn whether that succeeds, call wholly_file_sync before.
 */
int wholly_file_close(struct wholly_file *file);

/**
 * Reads up to length bytes at offset. Returns how many; fewer only at the end of the file. Nothing of groups that
 * still run is seen.
 *
 * Errors: -EUCLEAN if the log is damaged where it holds these bytes; errors of the file system.
 */
int64_t wholly_file_read(const struct wholly_file *file, uint64_t offset, void *buffer, size_t length);

/**
 * Writes length bytes at offset, all or nothing. The file grows if the range ends beyond its end; a gap reads as
 * zeros. Under WHOLLY_POLICY_PER_OP the write survives a power failure when this returns 0; else at the next commit by
 * the policy.
 *
 * Errors: -EBUSY if a group has the file; -ENOSPC; -EIO if the medium failed.
 */
int wholly_file_write(const struct wholly_file *file, uint64_t offset, const void *data, size_t length);

/**
 * Writes length bytes at the end of the file, all or nothing. Returns the offset at which they begin. Durable as
 * wholly_file_write.
 *
 * Errors: those of wholly_file_write.
 */
int64_t wholly_file_append(const struct wholly_file *file, const void *data, size_t length);

/**
 * Sets the length of the file to length bytes. Bytes beyond are dropped; new bytes are zero. Durable as
 * wholly_file_write.
 *
 * Errors: those of wholly_file_write.
 */
int wholly_file_set_len(const struct wholly_file *file, uint64_t length);

/**
 * Changes the space of the length bytes from offset on: see wholly_group_fallocate. Durable as wholly_file_write.
 *
 * Errors: those of wholly_group_fallocate.
 */
int wholly_file_fallocate(const struct wholly_file *file, uint32_t mode, uint64_t offset, uint64_t length);

/**
 * Returns the size of the file in bytes: committed bytes and those of calls outside of groups.
 */
int64_t wholly_file_len(const struct wholly_file *file);

/**
 * Commits the calls on this file so far. When this returns 0, they survive a power failure. Under WHOLLY_POLICY_PER_OP
 * they did before.
 *
 * Errors: -EIO if the medium failed.
 */
int wholly_file_sync(const struct wholly_file *file);

/**
 * Makes the calls on this file so far atomic and ordered: a crash leaves all of them or none, and no later change
 * without them. In a store this is wholly_file_sync. For a file of a mount there is wholly_fatomic.
 *
 * Errors: those of wholly_file_sync.
 */
int wholly_file_fatomic(const struct wholly_file *file);

/**
 * Like wholly_file_fatomic, for what is needed to read the data: without times.
 *
 * Errors: those of wholly_file_sync.
 */
int wholly_file_fdataatomic(const struct wholly_file *file);

/**
 * Returns the path, relative to the store's directory, by which the file was opened. The text belongs to the handle,
 * and is valid until the handle is closed. NULL if file is NULL.
 */
const char *wholly_file_path(const struct wholly_file *file);

/**
 * Returns the group's number. No other group of the store ever has the same one. 0 if group is NULL, or if the store
 * could not be used when the group began.
 */
uint64_t wholly_group_id(const struct wholly_group *group);

/**
 * Opens an existing regular file, as the group sees the directory. A symbolic link at the end of the path is followed.
 * Close the file with wholly_file_close, before or after the end of the group.
 *
 * Errors: those of wholly_store_open_file.
 */
int wholly_group_open_file(struct wholly_group *group, const char *path, struct wholly_file **file);

/**
 * Creates a regular file with exactly the permission bits mode, whatever the umask, and opens it. The file exists for
 * others once the group is committed.
 *
 * Errors: -EEXIST; -ENOENT if its directory does not exist; -EINVAL if mode has other bits; those of all paths.
 */
int wholly_group_create(struct wholly_group *group, const char *path, uint32_t mode, struct wholly_file **file);

/**
 * Opens a regular file as wholly_group_open_file does, or creates it as wholly_group_create does where there is none.
 *
 * Errors: those of both, but for -EEXIST.
 */
int wholly_group_open_or_create(struct wholly_group *group, const char *path, uint32_t mode, struct wholly_file **file);

/**
 * Lets the group's calls wait for other groups to end, up to this time, before they fail with -EBUSY. 0 (the default)
 * is not to wait. If two groups wait for each other, both wait for the whole time, and then one of them gets -EBUSY.
 *
 * Errors: -EINVAL if group is NULL.
 */
int wholly_group_set_busy_timeout(struct wholly_group *group, uint64_t milliseconds);

/**
 * Claims the file for the group now, instead of at its first change. A group of several files commits faster if all
 * are added before the first write.
 *
 * Errors: -EBUSY if another group has the file; -EINVAL for a file of another store.
 */
int wholly_group_add(struct wholly_group *group, const struct wholly_file *file);

/**
 * Writes length bytes at offset. The file grows if the range ends beyond its end; a gap reads as zeros. Nothing
 * survives a crash before the group is committed.
 *
 * Errors: -EBUSY if another group has the file; -EINVAL for a file of another store; -ENOSPC, after which the group
 * can still be aborted.
 */
int wholly_group_write(struct wholly_group *group,
                       const struct wholly_file *file,
                       uint64_t offset,
                       const void *data,
                       size_t length);

/**
 * Writes length bytes at the end of the file, as the group sees it. Returns the offset at which they begin.
 *
 * Errors: those of wholly_group_write.
 */
int64_t wholly_group_append(struct wholly_group *group,
                            const struct wholly_file *file,
                            const void *data,
                            size_t length);

/**
 * Sets the length of the file to length bytes. Bytes beyond are dropped; new bytes are zero.
 *
 * Errors: those of wholly_group_write.
 */
int wholly_group_set_len(struct wholly_group *group, const struct wholly_file *file, uint64_t length);

/**
 * Changes the space of the length bytes from offset on, as fallocate(2) does, by mode:
 *
 *   0                                                        reserves space; the file grows to the end of the range
 *   WHOLLY_FALLOCATE_KEEP_SIZE                               reserves space
 *   WHOLLY_FALLOCATE_PUNCH_HOLE | WHOLLY_FALLOCATE_KEEP_SIZE makes a hole: zeros, and whole blocks are freed
 *   WHOLLY_FALLOCATE_ZERO_RANGE                              makes zeros with reserved space; the file grows as with 0
 *   WHOLLY_FALLOCATE_ZERO_RANGE | WHOLLY_FALLOCATE_KEEP_SIZE makes zeros with reserved space
 *
 * Zeros are atomic and durable as bytes are, and cost one small record, whatever their length. The checkpoint that
 * writes the group back frees or reserves the file's blocks. If there is no space then, the checkpoint fails until
 * there is.
 *
 * Errors: -EOPNOTSUPP for other modes; -EINVAL for an empty range; -EFBIG for a range that ends beyond 4 PiB; -ENOSPC
 * if more is to be reserved than all that is free; those of wholly_group_write.
 */
int wholly_group_fallocate(struct wholly_group *group,
                           const struct wholly_file *file,
                           uint32_t mode,
                           uint64_t offset,
                           uint64_t length);

/**
 * Reads up to length bytes at offset, as the group sees the file. Returns how many; fewer only at the end of the file.
 *
 * Errors: -EUCLEAN if the log is damaged where it holds these bytes; -EINVAL for a file of another store; errors of
 * the file system.
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
 * Commits the group. When this returns 0, it survives a power failure, and all groups and threads of the process see
 * it. Other programs see it after the next checkpoint. The group ends and its handle is freed, also on failure.
 *
 * Errors: -EIO if the medium failed: it is unknown whether the group survives until the store is opened again. After
 * any other error the group is aborted.
 */
int wholly_group_commit(struct wholly_group *group);

/**
 * Makes the group atomic, and ordered before later groups on the same files. A later wholly_group_commit or sync makes
 * it durable. On every medium of today this is the same as wholly_group_commit. The group ends and its handle is
 * freed, also on failure.
 *
 * Errors: those of wholly_group_commit.
 */
int wholly_group_commit_atomic(struct wholly_group *group);

/**
 * Aborts the group: nothing of it is left, in memory or on the medium. The group ends and its handle is freed.
 */
int wholly_group_abort(struct wholly_group *group);

/**
 * Fills in the attributes of the object at the path, as the group sees it, as lstat(2) does: a symbolic link at the
 * end of the path is not followed.
 *
 * Errors: -ENOENT; those of all paths.
 */
int wholly_group_metadata(struct wholly_group *group, const char *path, struct wholly_metadata *metadata);

/**
 * wholly_group_metadata, of the committed state.
 *
 * Errors: those of wholly_group_metadata.
 */
int wholly_store_metadata(const struct wholly_store *store, const char *path, struct wholly_metadata *metadata);

/**
 * Reads the target of a symbolic link, as the group sees it, as readlink(2) does: up to length bytes, without a zero
 * at the end. Returns how many; a longer target is cut. No target has more than 4095 bytes.
 *
 * Errors: -ENOENT; -EINVAL if it is not a symbolic link, and if length is 0; those of all paths.
 */
int64_t wholly_group_readlink(struct wholly_group *group, const char *path, void *buffer, size_t length);

/**
 * wholly_group_readlink, of the committed state.
 *
 * Errors: those of wholly_group_readlink.
 */
int64_t wholly_store_readlink(const struct wholly_store *store, const char *path, void *buffer, size_t length);

/**
 * Begins a group on the mount that fd belongs to: any open file or directory there. fd may be closed afterwards.
 *
 * Errors: -EBUSY if another group runs on the mount; -EACCES if the caller may not write to the mount's root
 * directory; -EROFS on a read-only mount; -ECANCELED if an earlier group of the process was aborted because it made no
 * calls, and was not ended by wholly_mount_commit or wholly_mount_abort; -EOPNOTSUPP if it is not a mount of a store,
 * or one that cannot tell which process makes a call (in another PID namespace, or before Linux 5.3); -EBADF.
 */
int wholly_mount_begin(int fd, struct wholly_mount_group **group);

/**
 * Claims an open file of the mount for the group now, instead of at its first change. From now on everything that is
 * written by its descriptors belongs to the group, also by other processes: children inherit descriptors. For a file
 * of the group, so does what is written to mapped memory.
 *
 * Errors: -EBUSY if another group has the file; -EBADF if fd is not open for writing; -EXDEV if it is of another
 * mount; -EPERM in another process than the one that began the group; -EINVAL if the group has ended.
 */
int wholly_mount_add(const struct wholly_mount_group *group, int fd);

/**
 * Commits the group. When this returns 0, it survives a power failure; in a command of wholly run, it becomes durable
 * with the command. What was written to mapped memory is in the group if msync(2) was called before. The group ends
 * and its handle is freed, also on failure.
 *
 * Errors: -EIO if the medium failed: it is unknown whether the group survives until the store is opened again. After
 * any other error the group is aborted. -ECANCELED: it was aborted before, because it made no calls for as long as the
 * mount's option group_timeout says (five minutes by default). -EAGAIN: it began while another group was committed,
 * which failed, so that it may have seen changes that are gone: make it again.
 */
int wholly_mount_commit(struct wholly_mount_group *group);

/**
 * Commits the group as wholly_mount_commit does, but returns when it is atomic and ordered: all programs see it, and a
 * crash leaves it wholly or not at all, and no later change without it. It is durable with whatever is made durable
 * next on the mount, as with wholly_fatomic. It does not wait for the medium on the mount of a volume whose engine is
 * op_log or page_cache_wal; elsewhere it is wholly_mount_commit. The group ends and its handle is freed, also on
 * failure.
 *
 * Errors: those of wholly_mount_commit; -EOPNOTSUPP if an earlier version serves the mount. If the medium fails later,
 * the next fsync says so.
 */
int wholly_mount_commit_atomic(struct wholly_mount_group *group);

/**
 * Aborts the group; in a command of wholly run, everything that the command does. When this returns 0, all programs
 * see the mount as it was before. The group ends and its handle is freed, also on failure.
 *
 * Errors: -EPERM in another process than the one that began it.
 */
int wholly_mount_abort(struct wholly_mount_group *group);

/**
 * fatomic of MQFS, for an open regular file of a mount. When this returns 0, what fsync(2) would make durable is
 * atomic and ordered: a crash leaves all of it or nothing of it, and no later change without it. It is durable with
 * whatever is made durable next on the mount: by fsync(2), a change of names, a commit of a group, or by the mount's
 * policy. It does not wait for the medium on the mount of a volume whose engine is op_log or page_cache_wal; on
 * other mounts it is an fsync. What was written to mapped memory is not included unless msync(2) was called before.
 * What is in a group (wholly_mount_begin) stays there.
 *
 * Errors: -EIO if the medium failed before (if it fails later, the next fsync says so); -EBADF for a directory, or if
 * fd is not open; -EOPNOTSUPP if it is not on a mount of Wholly's.
 */
int wholly_fatomic(int fd);

/**
 * fdataatomic of MQFS: wholly_fatomic of what is needed to read the data, without times.
 *
 * Errors: those of wholly_fatomic.
 */
int wholly_fdataatomic(int fd);

/**
 * Makes a directory with exactly the permission bits mode, whatever the umask. It exists for others once the group is
 * committed.
 *
 * Errors: -EEXIST; -ENOENT if its parent does not exist; -EINVAL if mode has other bits; those of all paths.
 */
int wholly_group_mkdir(struct wholly_group *group, const char *path, uint32_t mode);

/**
 * Makes a FIFO, a socket, a device or an empty regular file, by the type bits of mode (S_IFIFO, S_IFSOCK, S_IFCHR,
 * S_IFBLK; S_IFREG or none), with exactly its permission bits, whatever the umask. device is the number of a device,
 * as in st_rdev; it has no effect for other types. The object exists for others once the group is committed.
 *
 * Errors: -EEXIST; -ENOENT if its directory does not exist; -EPERM for a directory, and for a device without the right
 * to make one; -EINVAL for other types and bits; those of all paths.
 */
int wholly_group_mknod(struct wholly_group *group, const char *path, uint32_t mode, uint64_t device);

/**
 * Makes a symbolic link at path that holds target, which need not exist. The link exists for others once the group is
 * committed.
 *
 * Errors: -EEXIST; -ENOENT if its directory does not exist, or target is empty; -ENAMETOOLONG for a target of more
 * than 4095 bytes; those of all paths.
 */
int wholly_group_symlink(struct wholly_group *group, const char *target, const char *path);

/**
 * Gives the object at from the name to as well. If from is a symbolic link, the link itself gets the name. The new
 * name exists for others once the group is committed.
 *
 * Errors: -ENOENT; -EEXIST; -EPERM for a directory; -EBUSY if another group has claimed the object; those of all
 * paths.
 */
int wholly_group_link(struct wholly_group *group, const char *from, const char *to);

/**
 * Removes a name of an object that is not a directory. A file is removed with its last name; it stays usable for
 * programs and groups that have it open. Once the group is committed, the name does not come back after a crash; if
 * the group is aborted, the name stays.
 *
 * Errors: -ENOENT; -EISDIR for a directory; -EBUSY if another group has claimed the object; those of all paths.
 */
int wholly_group_unlink(struct wholly_group *group, const char *path);

/**
 * Removes an empty directory. Once the group is committed, it does not come back after a crash; if the group is
 * aborted, it stays.
 *
 * Errors: -ENOENT; -ENOTDIR if it is not a directory; -ENOTEMPTY; -EBUSY if another group has claimed names in it;
 * those of all paths.
 */
int wholly_group_rmdir(struct wholly_group *group, const char *path);

/**
 * Renames the object at from to to. An object that had the name to loses it; with WHOLLY_RENAME_NOREPLACE there must
 * be none, and with WHOLLY_RENAME_EXCHANGE it gets the name from. A directory may replace an empty directory. If both
 * are names of one object, nothing happens. Both names change with the group, or neither does.
 *
 * Errors: -ENOENT; -EEXIST with WHOLLY_RENAME_NOREPLACE; -EISDIR, -ENOTDIR if a directory and another object would
 * replace each other; -ENOTEMPTY; -EINVAL for a directory that would be moved into itself, and for other flags; -EBUSY
 * if another group has claimed one of the objects; those of all paths.
 */
int wholly_group_rename(struct wholly_group *group, const char *from, const char *to, uint32_t flags);

/**
 * Imports the object at from, a directory with everything in it or any other object: gives it the name to, which must
 * be free. from is a path relative to the store's directory, in its layer (wholly_store_make_layer). No program may
 * write to the object from now on. It keeps its owner, mode, times and attributes. The group's commit makes the object
 * durable with everything in it, and a checkpoint writes it back by one rename. If the group does not commit, the
 * object lies at from again. A group that has imported something cannot be parked.
 *
 * Errors: -EINVAL if from is not in the layer; -ENOENT; -EEXIST; -EBUSY for another hard link of a file that the store
 * knows, and if another group has claimed the name; those of all paths.
 */
int wholly_group_import(struct wholly_group *group, const char *from, const char *to);

/**
 * wholly_group_mkdir in a group of its own. When this returns 0, the directory survives a power failure.
 *
 * Errors: those of wholly_group_mkdir and wholly_group_commit.
 */
int wholly_store_mkdir(const struct wholly_store *store, const char *path, uint32_t mode);

/**
 * wholly_group_mknod in a group of its own. When this returns 0, the object survives a power failure.
 *
 * Errors: those of wholly_group_mknod and wholly_group_commit.
 */
int wholly_store_mknod(const struct wholly_store *store, const char *path, uint32_t mode, uint64_t device);

/**
 * wholly_group_symlink in a group of its own. When this returns 0, the link survives a power failure.
 *
 * Errors: those of wholly_group_symlink and wholly_group_commit.
 */
int wholly_store_symlink(const struct wholly_store *store, const char *target, const char *path);

/**
 * wholly_group_link in a group of its own. When this returns 0, the new name survives a power failure.
 *
 * Errors: those of wholly_group_link and wholly_group_commit.
 */
int wholly_store_link(const struct wholly_store *store, const char *from, const char *to);

/**
 * wholly_group_unlink in a group of its own. When this returns 0, the name does not come back after a power failure.
 *
 * Errors: those of wholly_group_unlink and wholly_group_commit.
 */
int wholly_store_unlink(const struct wholly_store *store, const char *path);

/**
 * wholly_group_rmdir in a group of its own. When this returns 0, the directory does not come back after a power
 * failure.
 *
 * Errors: those of wholly_group_rmdir and wholly_group_commit.
 */
int wholly_store_rmdir(const struct wholly_store *store, const char *path);

/**
 * wholly_group_rename in a group of its own. When this returns 0, all of it survives a power failure.
 *
 * Errors: those of wholly_group_rename and wholly_group_commit.
 */
int wholly_store_rename(const struct wholly_store *store, const char *from, const char *to, uint32_t flags);

/**
 * Parks the group instead of committing it. When this returns 0, the parked group survives a power failure until it is
 * applied or discarded, and all that the group had claimed is free. note is a text for people of up to 1024 bytes, or
 * NULL. If keep_seconds is not 0, the parked group is discarded after that time. What the group builds on is written
 * back first, if it is not yet. id gets the number of the parked group. The group ends and its handle is freed, also
 * on failure.
 *
 * Errors: -EINVAL if the group has changed nothing; those of wholly_store_checkpoint; -ENOSPC. The group is then
 * aborted.
 */
int wholly_group_park(struct wholly_group *group, const char *note, uint64_t keep_seconds, uint64_t *id);

/**
 * Commits the group, unless another program has changed something that the group builds on since the group first
 * touched it. In that case the group is parked, as by wholly_group_park, nothing is overwritten, and id gets the
 * number of the parked group; else id is 0. The group ends and its handle is freed, also on failure.
 *
 * Errors: -ESTALE if the group is parked: the text lists what differs; those of wholly_group_commit and
 * wholly_group_park: the group is aborted.
 */
int wholly_group_commit_or_park(struct wholly_group *group, const char *note, uint64_t keep_seconds, uint64_t *id);

/**
 * Opens a listing of the parked groups, in the order in which they began. Groups that have expired are discarded
 * first. Close the listing with wholly_parked_list_close, before or after the store.
 *
 * Errors: errors of the file system.
 */
int wholly_store_open_parked_list(const struct wholly_store *store, struct wholly_parked_list **list);

/**
 * Fills in the next parked group of a listing. Returns 1; or 0 at the end, and leaves the struct as it is.
 */
int wholly_parked_list_read(struct wholly_parked_list *list, struct wholly_parked *parked);

/**
 * Closes a listing of parked groups.
 */
int wholly_parked_list_close(struct wholly_parked_list *list);

/**
 * Commits a parked group, if everything that it relies on is as it was: the names that it sets, the bytes of files
 * that it changes or removes, the attributes that it sets. When this returns 0, the group survives a power failure,
 * all threads and groups see it, and it is no longer parked.
 *
 * Errors: -ESTALE if something differs: the text lists it, nothing has changed, and the group stays parked; -EBUSY if
 * a running group has claimed something that it changes; -ENOENT if there is no such parked group; -EUCLEAN; those of
 * wholly_group_commit.
 */
int wholly_store_apply(const struct wholly_store *store, uint64_t id);

/**
 * Removes a parked group. When this returns 0, it does not come back after a power failure.
 *
 * Errors: -ENOENT if there is no such parked group.
 */
int wholly_store_discard(const struct wholly_store *store, uint64_t id);

/**
 * Opens a review of what a parked group would change. Close it with wholly_review_close.
 *
 * Errors: -ENOENT if there is no such parked group; -EUCLEAN if it is damaged.
 */
int wholly_store_review(const struct wholly_store *store, uint64_t id, struct wholly_review **review);

/**
 * Fills in the next change, in the order of paths. Returns 1; or 0 at the end, and leaves the struct as it is.
 */
int wholly_review_next(struct wholly_review *review, struct wholly_change *change);

/**
 * Reads up to length bytes of the file, or of the target of the symbolic link, of the last change that
 * wholly_review_next filled in: the state before the change if after is 0, else the state after it. Returns how many;
 * fewer only at the end.
 *
 * Errors: -ENOENT if there is no object on that side, or no longer; -EINVAL for an object without bytes, and before
 * the first change; -EUCLEAN.
 */
int64_t wholly_review_read(struct wholly_review *review, int after, uint64_t offset, void *buffer, size_t length);

/**
 * Closes a review.
 */
int wholly_review_close(struct wholly_review *review);

/**
 * Makes the directory dir a store: creates the folder .wholly in it. The files in the directory stay as they are. When
 * this returns 0, the store survives a power failure; a crash before that leaves none. options may be NULL.
 *
 * Errors: -EEXIST if the directory is a store already; -EOPNOTSUPP if the file system cannot carry a store; -ENOENT,
 * -ENOTDIR, -ENOSPC and other errors of the file system.
 */
int wholly_store_init(const char *dir, const struct wholly_options *options);

/**
 * Opens the store in the directory dir, recovers it, and keeps it for this process. When this returns 0, everything
 * that was committed before a crash is there again. options may be NULL; segment_bytes and log_min_bytes have no
 * effect, since the store keeps those that it was made with.
 *
 * Errors: -ENODEV if the directory is not a store; -EBUSY if a process has it open, or if it waits for another store
 * (see wholly_options.release); -EPERM if another user can have written to its folder; -ESTALE for a copy (see
 * wholly_options.accept_copy); -EUCLEAN if it is damaged; -EOPNOTSUPP if a newer version made it.
 */
int wholly_store_open(const char *dir, const struct wholly_options *options, struct wholly_store **store);

/**
 * Opens the store in a directory as wholly_store_open does. If there is none, it is made first, and the directory too
 * if only that is missing. When this returns 0, both survive a crash.
 *
 * Errors: those of wholly_store_open and wholly_store_init, but for -ENODEV and -EEXIST.
 */
int wholly_store_open_or_create(const char *dir, const struct wholly_options *options, struct wholly_store **store);

/**
 * Writes everything back and closes the store. When this returns 0, the log is empty, and other programs see all that
 * was committed. The handle is freed, also on failure. Open handles of files, groups and writers keep the store in use
 * by this process until they are closed.
 *
 * Errors: those of wholly_store_checkpoint. The log then keeps what is not written back, and the next open continues.
 */
int wholly_store_close(struct wholly_store *store);

/**
 * Closes the store without writing back. Pending calls outside of groups are committed, but a failure is not reported.
 * What is committed and not written back stays in the log, for the next open. The handle is freed.
 */
int wholly_store_drop(struct wholly_store *store);

/**
 * Makes the layer: an empty directory .wholly/layer of mode 0700 in the store's directory, in place of an earlier one.
 * Any program can make files there by ordinary calls, and groups can import them (wholly_group_import). Nothing in the
 * layer is durable. What is not imported is removed when the store is closed or removed, and when it is opened again.
 *
 * Errors: errors of the file system: something of an earlier layer cannot be removed, or there is no space.
 */
int wholly_store_make_layer(const struct wholly_store *store);

/**
 * Removes the layer with everything in it, if there is one.
 *
 * Errors: errors of the file system. A part of the layer may then be left.
 */
int wholly_store_remove_layer(const struct wholly_store *store);

/**
 * Writes back everything that is committed. When this returns 0, it survives without the log, and other programs see
 * it. report may be NULL.
 *
 * Errors: -ESTALE if another program changed a file that the log has updates for: nothing is overwritten, and the log
 * keeps the store's version; errors of the file system. The log then keeps what is not written back.
 */
int wholly_store_checkpoint(const struct wholly_store *store, struct wholly_checkpoint_report *report);

/**
 * Commits all calls that were made outside of groups. When this returns 0, they survive a power failure.
 *
 * Errors: -EIO if the medium failed.
 */
int wholly_store_sync(const struct wholly_store *store);

/**
 * Fills in figures about the store.
 */
int wholly_store_stat(const struct wholly_store *store, struct wholly_stat *stat);

/**
 * Fills in what opening the store found and did.
 */
int wholly_store_recovery(const struct wholly_store *store, struct wholly_recovery *recovery);

/**
 * Fills in one of the conflicts that opening the store found; index counts from 0.
 *
 * Errors: -EINVAL beyond the last one.
 */
int wholly_store_conflict(const struct wholly_store *store, uint64_t index, struct wholly_conflict *conflict);

/**
 * Opens an existing regular file, for calls outside of groups and for use in groups. A symbolic link at the end of the
 * path is followed.
 *
 * Errors: -ENOENT; -EISDIR for a directory; -EINVAL for any other object that is not a regular file; -EACCES if the
 * process may not both read and write it; those of all paths.
 */
int wholly_store_open_file(const struct wholly_store *store, const char *path, struct wholly_file **file);

/**
 * Creates a regular file with exactly the permission bits mode, whatever the umask, in a group of its own. When this
 * returns 0, the file survives a power failure.
 *
 * Errors: those of wholly_group_create and wholly_group_commit.
 */
int wholly_store_create_file(const struct wholly_store *store,
                             const char *path,
                             uint32_t mode,
                             struct wholly_file **file);

/**
 * Begins a group: updates of any number of files that survive a crash wholly or not at all. Any number of groups may
 * run at the same time, on different files; groups do not nest. End the group with wholly_group_commit,
 * wholly_group_commit_atomic, wholly_group_abort, wholly_group_park or wholly_group_commit_or_park.
 *
 * In a child of fork that cannot use the store this succeeds, and each call on the group fails with -EBUSY.
 */
int wholly_store_begin(const struct wholly_store *store, struct wholly_group **group);

/**
 * Makes a writer, from which one thread begins one group after the other. It is faster than wholly_store_begin,
 * because it keeps what a group needs from one group to the next. For a thread that commits many small groups. A
 * writer keeps the store open, as a file does.
 */
int wholly_store_writer(const struct wholly_store *store, struct wholly_writer **writer);

/**
 * Commits groups of several stores together. After a crash all of them are there, or none. When this returns 0, all of
 * them survive a power failure. The groups end and their handles are freed, also on failure.
 *
 * The store of the first group that changes anything is the coordinator. If the process dies half-way, each other
 * store asks it for the decision when it is next opened; that open fails with -EBUSY if the coordinator cannot be
 * found (see wholly_options.release). What the groups write is written once more than by separate commits.
 *
 * Errors: -EINVAL if a group is NULL, is there twice or is a writer's, or if two are of one store; those of
 * wholly_group_park and wholly_group_commit. All groups are then aborted. After -EIO it is unknown whether they
 * survive until the stores are opened again; if only some of the stores return -EIO, the groups of the others are
 * committed. If a group is NULL or there twice, none has ended.
 */
int wholly_groups_commit_together(struct wholly_group *const *groups, size_t count);

/**
 * Applies parked groups of several stores together, one group of each store. After a crash all of them are committed,
 * or all are still parked. stores and ids have count elements each.
 *
 * Errors: -ESTALE if something differs for one of them: the text lists it, nothing has changed, and all stay parked;
 * -EINVAL if two are of one store; those of wholly_store_apply and wholly_groups_commit_together.
 */
int wholly_stores_apply_together(const struct wholly_store *const *stores, const uint64_t *ids, size_t count);

/**
 * Returns the version of the library that the program runs with, such as "0.1.0". The text is always valid.
 */
const char *wholly_version(void);

/**
 * Returns the version of the library that the program runs with as a number: major * 1000000 + minor * 1000 + patch.
 */
uint32_t wholly_version_number(void);

/**
 * Begins a group of the writer, as wholly_store_begin does. The group's handle belongs to the writer; do not use it
 * after the end of the group.
 *
 * Errors: -EBUSY if the writer's last group has not ended.
 */
int wholly_writer_begin(struct wholly_writer *writer, struct wholly_group **group);

/**
 * Closes a writer. If its group has not ended, it is aborted.
 */
int wholly_writer_close(struct wholly_writer *writer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WHOLLY_H */

/* Made by cbindgen from the sources of wholly-capi; do not edit. */
