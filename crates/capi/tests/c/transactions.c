/* FCFS's calls on a mount: transactions by number, and their errors. */
#include "check.h"
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wholly/compat.h>

/* The call gives this number, and sets errno. */
#define SETS(number, gives, call)                                     \
    do {                                                              \
        errno = 0;                                                    \
        GIVES(gives, call);                                           \
        CHECK(errno == (number));                                     \
    } while (0)

static int opened(const char *dir, const char *name)
{
    int fd = open(in(dir, name), O_RDWR);
    CHECK(fd >= 0);
    return fd;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    const char *dir = argv[1];
    int one = opened(dir, "one"), two = opened(dir, "two");
    int root = open("/", O_RDONLY | O_DIRECTORY), reads = open(in(dir, "one"), O_RDONLY);
    CHECK(root >= 0 && reads >= 0);
    int fds[2] = {one, two};
    struct TxInfo info = {2, fds}, none = {0, NULL};

    /* Errors: nothing runs afterwards. */
    struct TxInfo negative = {-1, fds}, null = {1, NULL}, elsewhere = {1, &root}, unwritable = {1, &reads};
    int mixed_fds[2] = {one, root};
    struct TxInfo mixed = {2, mixed_fds};
    SETS(EINVAL, 0, tx_begin(NULL));
    SETS(EINVAL, 0, tx_begin(&negative));
    SETS(EINVAL, 0, tx_begin(&null));
    SETS(EOPNOTSUPP, 0, tx_begin(&elsewhere));
    SETS(EBADF, 0, tx_begin(&unwritable));
    SETS(EXDEV, 0, tx_begin(&mixed));
    SETS(EINVAL, -1, tx_add(7, one));
    SETS(EINVAL, -1, tx_commit(0));
    SETS(EINVAL, -1, tx_abort(7));

    /* Aborted. */
    unsigned long first = tx_begin(&info);
    CHECK(first > 0);
    CHECK(pwrite(one, "x", 1, 0) == 1 && pwrite(two, "xx", 2, 0) == 2);
    SETS(EBUSY, 0, tx_begin(&info));
    SETS(EXDEV, -1, tx_add(first, root));
    OK(tx_abort(first));
    has(dir, "one", "1");
    has(dir, "two", "2");
    SETS(EINVAL, -1, tx_commit(first));
    SETS(EINVAL, -1, tx_add(first, one));

    /* Descriptors that are added later; a child cannot end the transaction. */
    unsigned long second = tx_begin(&none);
    CHECK(second > first);
    OK(tx_add(second, one));
    OK(tx_add(second, two));
    CHECK(pwrite(one, "new", 3, 0) == 3 && pwrite(two, "two", 3, 0) == 3);
    int status;
    fflush(stderr);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        SETS(EPERM, -1, tx_add(second, one));
        SETS(EPERM, -1, tx_commit(second));
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(tx_commit(second));
    SETS(EINVAL, -1, tx_abort(second));
    has(dir, "one", "new");
    has(dir, "two", "two");

    /* Without a descriptor there is nothing to commit. */
    unsigned long third = tx_begin(&none);
    CHECK(third > second);
    OK(tx_commit(third));
    CHECK(close(one) == 0 && close(two) == 0 && close(root) == 0 && close(reads) == 0);
    return 0;
}
