/*
 * The calls of FCFS (Ou and Shu, "Fast and Failure-Consistent Updates of Application Data in Non-Volatile Main Memory
 * File System", section III-B), for programs that were written to them. The files are on a mount: of a volume whose
 * engine has groups, or of a store. Programs open, read and write them by the usual system calls.
 *
 * A transaction is a group of wholly_mount_begin. So, beyond the paper:
 *
 * - A mount has one transaction at a time; tx_begin or the first tx_add fails with EBUSY while another one runs.
 * - Until its end, all that the process changes on the mount belongs to the transaction, names as well, also by
 *   descriptors that were not added. Descriptors that were added bring along what other processes write by them.
 * - An abort restores all of it. So does the end of the process.
 *
 * Errors are told by errno; wholly_error_text() has them in words.
 */
#ifndef WHOLLY_COMPAT_H
#define WHOLLY_COMPAT_H

#include <errno.h>
#include <wholly.h>

/* Descriptors of a transaction, open for writing, of files of one mount. */
struct TxInfo {
    /* How many. With 0, the first tx_add says on which mount the transaction is. */
    int num;
    int *fdSet;
};

static inline int wholly_tx_done(int result)
{
    if (result < 0) {
        errno = -result;
        return -1;
    }
    return 0;
}

/*
 * Begins a transaction. Returns its number, or 0 with errno set. Programs have to test for 0: there is no transaction
 * then, and what they write is written at once.
 *
 *   EINVAL      info is NULL, num is negative, or fdSet is NULL and num is not 0
 *   EBUSY       another transaction runs on the mount, or another group has a file
 *   EBADF       a descriptor is not open for writing
 *   EXDEV       the descriptors are not of one mount
 *   EOPNOTSUPP  they are not of a mount of Wholly's, or its engine has no groups, or it cannot tell which process calls
 */
static inline unsigned long tx_begin(const struct TxInfo *info)
{
    if (!info || info->num < 0) {
        errno = EINVAL;
        return 0;
    }
    int64_t id = wholly_tx_begin(info->fdSet, (size_t)info->num);
    if (id < 0) {
        errno = (int)-id;
        return 0;
    }
    return (unsigned long)id;
}

/*
 * Adds a descriptor to a transaction that runs. Returns 0, or -1 with errno set: EINVAL if no such transaction runs,
 * EPERM in another process than the one that began it, and as tx_begin.
 */
static inline int tx_add(unsigned long TxID, int fd)
{
    return wholly_tx_done(wholly_tx_add(TxID, fd));
}

/*
 * Commits a transaction. When this returns 0, all of it survives a power failure. Returns 0, or -1 with errno set:
 * EINVAL if no such transaction runs, EPERM in another process; EIO if the medium failed: whether the transaction
 * survives is then unknown until the next mount. The transaction has ended in any case.
 */
static inline int tx_commit(unsigned long TxID)
{
    return wholly_tx_done(wholly_tx_commit(TxID));
}

/*
 * Aborts a transaction: all is as it was before. Returns 0, or -1 with errno set: EINVAL if no such transaction runs,
 * EPERM in another process. The transaction has ended in any case.
 */
static inline int tx_abort(unsigned long TxID)
{
    return wholly_tx_done(wholly_tx_abort(TxID));
}

#endif
