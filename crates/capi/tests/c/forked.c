/* After fork parent or child keeps the store, whichever uses it first. */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

static void ends_well(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* By handles from before the fork. */
static void child_first(const char *dir)
{
    wholly_store *store = store_in(dir);
    wholly_file *a = file_of(store, "a"), *b = file_of(store, "b");
    wholly_writer *writer;
    wholly_group *running, *group;
    OK(wholly_store_writer(store, &writer));
    OK(wholly_file_write(a, 0, "1", 1));
    OK(wholly_store_begin(store, &running));
    OK(wholly_group_write(running, b, 0, "9", 1));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* What was committed is there, the running group is the parent's. */
        holds(a, "1irst");
        holds(b, "second");
        FAILS(EBUSY, "fork", wholly_group_write(running, b, 1, "9", 1));
        OK(wholly_writer_begin(writer, &group));
        OK(wholly_group_write(group, a, 1, "2", 1));
        OK(wholly_group_write(group, b, 1, "3", 1));
        OK(wholly_group_commit(group));
        OK(wholly_writer_close(writer));
        OK(wholly_group_abort(running));
        OK(wholly_file_close(a));
        OK(wholly_file_close(b));
        OK(wholly_store_close(store));
        _exit(0);
    }
    ends_well(child);
    char owner[32], byte;
    snprintf(owner, sizeof owner, "process %d", (int)child);
    FAILS(EBUSY, owner, wholly_file_write(a, 0, "7", 1));
    FAILS(EBUSY, owner, wholly_file_read(a, 0, &byte, 1));
    FAILS(EBUSY, owner, wholly_group_write(running, b, 2, "7", 1));
    FAILS(EBUSY, owner, wholly_store_checkpoint(store, NULL));
    FAILS(EBUSY, owner, wholly_group_commit(running));
    OK(wholly_store_begin(store, &group));
    FAILS(EBUSY, owner, wholly_group_write(group, a, 0, "7", 1));
    OK(wholly_group_abort(group));
    OK(wholly_writer_close(writer));
    OK(wholly_file_close(a));
    OK(wholly_file_close(b));
    OK(wholly_store_drop(store));
    has(dir, "a", "12rst");
    has(dir, "b", "s3cond");
}

static void parent_first(const char *dir)
{
    int turn[2];
    char byte;
    CHECK(pipe(turn) == 0);
    wholly_store *store = store_in(dir);
    wholly_file *a = file_of(store, "a");
    pid_t parent = getpid(), child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char owner[32];
        wholly_store *other;
        wholly_stat stat;
        wholly_group *group;
        stat.size = sizeof stat;
        snprintf(owner, sizeof owner, "process %d", (int)parent);
        CHECK(read(turn[0], &byte, 1) == 1);
        FAILS(EBUSY, owner, wholly_file_write(a, 0, "7", 1));
        FAILS(EBUSY, owner, wholly_store_open(dir, NULL, &other));
        OK(wholly_store_begin(store, &group));
        FAILS(EBUSY, owner, wholly_group_add(group, a));
        OK(wholly_group_abort(group));
        OK(wholly_store_stat(store, &stat));
        CHECK(stat.segments == 0);
        OK(wholly_file_close(a));
        OK(wholly_store_drop(store));
        _exit(0);
    }
    OK(wholly_file_write(a, 0, "P", 1));
    CHECK(write(turn[1], "x", 1) == 1);
    ends_well(child);
    OK(wholly_file_write(a, 1, "P", 1));
    OK(wholly_file_close(a));
    OK(wholly_store_close(store));
    has(dir, "a", "PPrst");
    close(turn[0]);
    close(turn[1]);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    put(argv[1], "a", "first");
    put(argv[1], "b", "second");
    child_first(argv[1]);
    parent_first(argv[1]);
    return 0;
}
