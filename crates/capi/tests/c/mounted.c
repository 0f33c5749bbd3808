/* Groups on a mount, by plain descriptors and system calls; and by ioctl alone. */
#include "check.h"
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int is_there(const char *dir, const char *name)
{
    struct stat stat_of;
    return stat(in(dir, name), &stat_of) == 0;
}

/* What another process finds. */
static void child(void (*act)(const char *dir, wholly_mount_group *group), const char *dir, wholly_mount_group *group)
{
    int status;
    fflush(stderr);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        act(dir, group);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void sees_and_leaves_alone(const char *dir, wholly_mount_group *group)
{
    has(dir, "a", "changed");
    CHECK(open(in(dir, "a"), O_WRONLY | O_TRUNC) < 0 && errno == EBUSY);
    put(dir, "child", "child");
    FAILS(EPERM, "add", wholly_mount_add(group, open(in(dir, "child"), O_WRONLY)));
    FAILS(EPERM, "commit", wholly_mount_commit(group));
}

static void sees_nothing_of_it(const char *dir, wholly_mount_group *group)
{
    (void)group;
    has(dir, "a", "a");
    has(dir, "b", "b");
    CHECK(!is_there(dir, "never"));
}

static void change(const char *dir)
{
    char moved[4096];
    put(dir, "a", "changed");
    CHECK(mkdir(in(dir, "dir"), 0700) == 0);
    snprintf(moved, sizeof moved, "%s", in(dir, "dir/moved"));
    CHECK(rename(in(dir, "b"), moved) == 0);
}

int main(int argc, char **argv)
{
    wholly_mount_group *group, *other;
    wholly_store *store;
    CHECK(argc == 2);
    const char *dir = argv[1];
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    CHECK(fd >= 0);
    put(dir, "a", "a");
    put(dir, "b", "b");

    FAILS(EOPNOTSUPP, "wholly_mount_begin", wholly_store_open(dir, NULL, &store));
    int root = open("/", O_RDONLY | O_DIRECTORY);
    FAILS(EOPNOTSUPP, "not on a mount of a store", wholly_mount_begin(root, &group));
    CHECK(group == NULL);
    FAILS(EINVAL, "not a descriptor", wholly_mount_begin(-1, &group));
    FAILS(EINVAL, "NULL", wholly_mount_begin(fd, NULL));
    FAILS(EINVAL, "NULL", wholly_mount_commit(NULL));
    FAILS(EINVAL, "NULL", wholly_mount_commit_atomic(NULL));
    FAILS(EINVAL, "NULL", wholly_mount_abort(NULL));

    /* Aborted. */
    OK(wholly_mount_begin(fd, &group));
    FAILS(EBUSY, "has a group there", wholly_mount_begin(fd, &other));
    change(dir);
    put(dir, "never", "never");
    FAILS(EXDEV, "add", wholly_mount_add(group, root));
    OK(wholly_mount_abort(group));
    sees_nothing_of_it(dir, NULL);
    child(sees_nothing_of_it, dir, NULL);

    /* The same by ioctl alone. */
    int own = open(dir, O_RDONLY | O_DIRECTORY);
    uint32_t holder[8] = {1};
    CHECK(ioctl(own, WHOLLY_IOC_HOLDER, holder) == 0 && holder[0] == 0);
    CHECK(ioctl(own, WHOLLY_IOC_WHAT) == 1 && ioctl(own, WHOLLY_IOC_BEGIN) == 0);
    CHECK(ioctl(own, WHOLLY_IOC_HOLDER, holder) == 0 && holder[0] == (uint32_t)getpid() && holder[1] == getuid());
    int file = open(in(dir, "a"), O_WRONLY);
    CHECK(ioctl(file, WHOLLY_IOC_ADD) == 0 && write(file, "x", 1) == 1 && close(file) == 0);
    CHECK(ioctl(fd, WHOLLY_IOC_COMMIT) < 0 && errno == EINVAL);
    CHECK(ioctl(own, WHOLLY_IOC_ABORT) == 0 && ioctl(own, WHOLLY_IOC_ABORT) < 0 && errno == EINVAL);
    CHECK(ioctl(own, WHOLLY_IOC_BEGIN) == 0);
    CHECK(ioctl(own, WHOLLY_IOC_COMMIT) == 0 && close(own) == 0);
    CHECK(ioctl(root, WHOLLY_IOC_WHAT) < 0 && errno == ENOTTY);
    sees_nothing_of_it(dir, NULL);

    /* One file, atomic and in order. */
    int one = open(in(dir, "a"), O_RDWR);
    CHECK(write(one, "A", 1) == 1);
    OK(wholly_fatomic(one));
    CHECK(pwrite(one, "a", 1, 0) == 1);
    OK(wholly_fdataatomic(one));
    CHECK(ioctl(one, WHOLLY_IOC_FATOMIC) == 0 && ioctl(one, WHOLLY_IOC_FDATAATOMIC) == 0 && close(one) == 0);
    FAILS(EBADF, "fatomic", wholly_fatomic(one));
    FAILS(EBADF, "fatomic", wholly_fatomic(fd));
    FAILS(EINVAL, "not a descriptor", wholly_fatomic(-1));
    FAILS(EOPNOTSUPP, "not on a mount of a store", wholly_fatomic(root));
    FAILS(EOPNOTSUPP, "not on a mount of a store", wholly_fdataatomic(root));
    CHECK(ioctl(fd, WHOLLY_IOC_COMMIT_ATOMIC) < 0 && errno == EINVAL);
    sees_nothing_of_it(dir, NULL);

    /* Committed, in spite of a child's attempts. */
    OK(wholly_mount_begin(fd, &group));
    change(dir);
    child(sees_and_leaves_alone, dir, group);
    OK(wholly_mount_commit(group));
    has(dir, "a", "changed");
    has(dir, "dir/moved", "b");

    /* The other kind of commit. */
    OK(wholly_mount_begin(fd, &group));
    put(dir, "ordered", "1");
    OK(wholly_mount_commit_atomic(group));
    has(dir, "ordered", "1");
    CHECK(unlink(in(dir, "ordered")) == 0);
    CHECK(close(fd) == 0 && close(root) == 0);
    return 0;
}
