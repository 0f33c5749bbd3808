/* Calls on names: what fails, and how. */
#include "check.h"
#include <sys/stat.h>
#include <unistd.h>

/* Every function, with NULL where a handle, a text or a place belongs. */
static void nulls(wholly_store *store, wholly_group *group)
{
    wholly_metadata metadata;
    wholly_dir_entry entry;
    wholly_dir *dir;
    char buffer[8];
    metadata.size = sizeof metadata;
    entry.size = sizeof entry;
    FAILS(EINVAL, "group is NULL", wholly_group_mkdir(NULL, "n", 0700));
    FAILS(EINVAL, "path is NULL", wholly_group_mkdir(group, NULL, 0700));
    FAILS(EINVAL, "group is NULL", wholly_group_mknod(NULL, "n", S_IFIFO, 0));
    FAILS(EINVAL, "path is NULL", wholly_group_mknod(group, NULL, S_IFIFO, 0));
    FAILS(EINVAL, "group is NULL", wholly_group_symlink(NULL, "t", "n"));
    FAILS(EINVAL, "target is NULL", wholly_group_symlink(group, NULL, "n"));
    FAILS(EINVAL, "path is NULL", wholly_group_symlink(group, "t", NULL));
    FAILS(EINVAL, "group is NULL", wholly_group_link(NULL, "a", "n"));
    FAILS(EINVAL, "from is NULL", wholly_group_link(group, NULL, "n"));
    FAILS(EINVAL, "to is NULL", wholly_group_link(group, "a", NULL));
    FAILS(EINVAL, "group is NULL", wholly_group_unlink(NULL, "a"));
    FAILS(EINVAL, "path is NULL", wholly_group_unlink(group, NULL));
    FAILS(EINVAL, "group is NULL", wholly_group_rmdir(NULL, "a"));
    FAILS(EINVAL, "path is NULL", wholly_group_rmdir(group, NULL));
    FAILS(EINVAL, "group is NULL", wholly_group_rename(NULL, "a", "n", 0));
    FAILS(EINVAL, "from is NULL", wholly_group_rename(group, NULL, "n", 0));
    FAILS(EINVAL, "to is NULL", wholly_group_rename(group, "a", NULL, 0));
    FAILS(EINVAL, "group is NULL", wholly_group_metadata(NULL, "a", &metadata));
    FAILS(EINVAL, "path is NULL", wholly_group_metadata(group, NULL, &metadata));
    FAILS(EINVAL, "metadata", wholly_group_metadata(group, "a", NULL));
    FAILS(EINVAL, "group is NULL", wholly_group_readlink(NULL, "l", buffer, sizeof buffer));
    FAILS(EINVAL, "path is NULL", wholly_group_readlink(group, NULL, buffer, sizeof buffer));
    FAILS(EINVAL, "buffer is NULL", wholly_group_readlink(group, "l", NULL, sizeof buffer));
    FAILS(EINVAL, "group is NULL", wholly_group_open_dir(NULL, ".", &dir));
    CHECK(dir == NULL);
    FAILS(EINVAL, "path is NULL", wholly_group_open_dir(group, NULL, &dir));
    FAILS(EINVAL, "NULL", wholly_group_open_dir(group, ".", NULL));

    FAILS(EINVAL, "store is NULL", wholly_store_mkdir(NULL, "n", 0700));
    FAILS(EINVAL, "path is NULL", wholly_store_mkdir(store, NULL, 0700));
    FAILS(EINVAL, "store is NULL", wholly_store_mknod(NULL, "n", S_IFIFO, 0));
    FAILS(EINVAL, "path is NULL", wholly_store_mknod(store, NULL, S_IFIFO, 0));
    FAILS(EINVAL, "store is NULL", wholly_store_symlink(NULL, "t", "n"));
    FAILS(EINVAL, "target is NULL", wholly_store_symlink(store, NULL, "n"));
    FAILS(EINVAL, "path is NULL", wholly_store_symlink(store, "t", NULL));
    FAILS(EINVAL, "store is NULL", wholly_store_link(NULL, "a", "n"));
    FAILS(EINVAL, "from is NULL", wholly_store_link(store, NULL, "n"));
    FAILS(EINVAL, "to is NULL", wholly_store_link(store, "a", NULL));
    FAILS(EINVAL, "store is NULL", wholly_store_unlink(NULL, "a"));
    FAILS(EINVAL, "path is NULL", wholly_store_unlink(store, NULL));
    FAILS(EINVAL, "store is NULL", wholly_store_rmdir(NULL, "a"));
    FAILS(EINVAL, "path is NULL", wholly_store_rmdir(store, NULL));
    FAILS(EINVAL, "store is NULL", wholly_store_rename(NULL, "a", "n", 0));
    FAILS(EINVAL, "from is NULL", wholly_store_rename(store, NULL, "n", 0));
    FAILS(EINVAL, "to is NULL", wholly_store_rename(store, "a", NULL, 0));
    FAILS(EINVAL, "store is NULL", wholly_store_metadata(NULL, "a", &metadata));
    FAILS(EINVAL, "path is NULL", wholly_store_metadata(store, NULL, &metadata));
    FAILS(EINVAL, "metadata", wholly_store_metadata(store, "a", NULL));
    FAILS(EINVAL, "store is NULL", wholly_store_readlink(NULL, "l", buffer, sizeof buffer));
    FAILS(EINVAL, "path is NULL", wholly_store_readlink(store, NULL, buffer, sizeof buffer));
    FAILS(EINVAL, "buffer is NULL", wholly_store_readlink(store, "l", NULL, sizeof buffer));
    FAILS(EINVAL, "store is NULL", wholly_store_open_dir(NULL, ".", &dir));
    CHECK(dir == NULL);
    FAILS(EINVAL, "path is NULL", wholly_store_open_dir(store, NULL, &dir));
    FAILS(EINVAL, "NULL", wholly_store_open_dir(store, ".", NULL));

    FAILS(EINVAL, "dir is NULL", wholly_dir_read(NULL, &entry));
    FAILS(EINVAL, "dir is NULL", wholly_dir_close(NULL));
    OK(wholly_store_open_dir(store, ".", &dir));
    FAILS(EINVAL, "entry", wholly_dir_read(dir, NULL));
    entry.size = 8;
    FAILS(EINVAL, "size", wholly_dir_read(dir, &entry));
    OK(wholly_dir_close(dir));
    metadata.size = 8;
    FAILS(EINVAL, "size", wholly_group_metadata(group, "a", &metadata));
    FAILS(EINVAL, "size", wholly_store_metadata(store, "a", &metadata));
}

/* By the group, where there is one, else by the store. */
#define REFUSED(number, call, ...)                                                                    \
    GIVES(-(number), group ? wholly_group_##call(group, __VA_ARGS__) : wholly_store_##call(store, __VA_ARGS__))

static void names(wholly_store *store, wholly_group *group)
{
    static const char *const invalid[] = {"", "/n", "../n", "sub/../n", ".wholly", ".wholly/n", "."};
    wholly_metadata metadata;
    wholly_dir *dir;
    char buffer[8], longest[300], deepest[5000];
    metadata.size = sizeof metadata;
    memset(longest, 'x', sizeof longest);
    longest[256] = 0;
    memset(deepest, 'x', sizeof deepest);
    deepest[4096] = 0;
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++) {
        REFUSED(EINVAL, mkdir, invalid[i], 0700);
        REFUSED(EINVAL, mknod, invalid[i], S_IFIFO | 0600, 0);
        REFUSED(EINVAL, symlink, "t", invalid[i]);
        REFUSED(EINVAL, link, "a", invalid[i]);
        REFUSED(EINVAL, link, invalid[i], "n");
        REFUSED(EINVAL, unlink, invalid[i]);
        REFUSED(EINVAL, rmdir, invalid[i]);
        REFUSED(EINVAL, rename, "a", invalid[i], 0);
        REFUSED(EINVAL, rename, invalid[i], "n", 0);
        if (strcmp(invalid[i], ".") != 0)
            REFUSED(EINVAL, metadata, invalid[i], &metadata);
        REFUSED(EINVAL, readlink, invalid[i], buffer, sizeof buffer);
    }
    REFUSED(EEXIST, mkdir, "a", 0700);
    REFUSED(ENOENT, mkdir, "nowhere/n", 0700);
    REFUSED(ENOTDIR, mkdir, "a/n", 0700);
    REFUSED(EINVAL, mkdir, "n", S_IFDIR | 0700);
    REFUSED(ENAMETOOLONG, mkdir, longest, 0700);
    REFUSED(EXDEV, mkdir, "out/n", 0700);
    REFUSED(ELOOP, mkdir, "loop/n", 0700);
    REFUSED(EEXIST, mknod, "a", S_IFIFO | 0600, 0);
    REFUSED(EPERM, mknod, "n", S_IFDIR | 0600, 0);
    REFUSED(EINVAL, mknod, "n", S_IFIFO | 0200000, 0);
    REFUSED(EEXIST, symlink, "t", "a");
    REFUSED(ENOENT, symlink, "", "n");
    REFUSED(ENAMETOOLONG, symlink, deepest, "n");
    REFUSED(ENOENT, link, "nothing", "n");
    REFUSED(EEXIST, link, "a", "b");
    REFUSED(EPERM, link, "sub", "n");
    REFUSED(ENOENT, unlink, "nothing");
    REFUSED(EISDIR, unlink, "sub");
    REFUSED(ENOENT, rmdir, "nothing");
    REFUSED(ENOTDIR, rmdir, "a");
    REFUSED(ENOTEMPTY, rmdir, "sub");
    REFUSED(ENOENT, rename, "nothing", "n", 0);
    REFUSED(EEXIST, rename, "a", "b", WHOLLY_RENAME_NOREPLACE);
    REFUSED(ENOENT, rename, "a", "n", WHOLLY_RENAME_EXCHANGE);
    REFUSED(EISDIR, rename, "a", "empty", 0);
    REFUSED(ENOTDIR, rename, "sub", "a", 0);
    REFUSED(ENOTEMPTY, rename, "empty", "sub", 0);
    REFUSED(EINVAL, rename, "sub", "sub/n", 0);
    REFUSED(EINVAL, rename, "a", "n", WHOLLY_RENAME_NOREPLACE | WHOLLY_RENAME_EXCHANGE);
    REFUSED(EINVAL, rename, "a", "n", 4);
    REFUSED(ENOENT, metadata, "nothing", &metadata);
    REFUSED(ENOENT, readlink, "nothing", buffer, sizeof buffer);
    REFUSED(EINVAL, readlink, "a", buffer, sizeof buffer);
    REFUSED(EINVAL, readlink, "loop", buffer, 0);
    REFUSED(ENOENT, open_dir, "nothing", &dir);
    CHECK(dir == NULL);
    REFUSED(ENOTDIR, open_dir, "a", &dir);
    REFUSED(EXDEV, open_dir, "out", &dir);
    REFUSED(EINVAL, open_dir, "..", &dir);
    REFUSED(EINVAL, open_dir, ".wholly", &dir);
    /* Nothing of it has happened, and the group can go on. */
    REFUSED(ENOENT, metadata, "n", &metadata);
    if (group)
        OK(wholly_group_mkdir(group, "n", 0700));
}

/* The same by a group and by the store. */
#define BOTH(number, call, ...)                                                                       \
    do {                                                                                              \
        GIVES(-(number), wholly_group_##call(group, __VA_ARGS__));                                    \
        GIVES(-(number), wholly_store_##call(store, __VA_ARGS__));                                    \
    } while (0)

/* What a group has touched, others and calls outside of groups do not get before its end. */
static void busy(wholly_store *store)
{
    wholly_group *first, *group;
    wholly_metadata metadata;
    metadata.size = sizeof metadata;
    OK(wholly_store_begin(store, &first));
    OK(wholly_store_begin(store, &group));
    OK(wholly_group_mkdir(first, "taken", 0700));
    OK(wholly_group_unlink(first, "a"));
    OK(wholly_group_rmdir(first, "empty"));
    FAILS(EBUSY, "taken", wholly_group_mkdir(group, "taken", 0700));
    BOTH(EBUSY, mkdir, "taken", 0700);
    BOTH(EBUSY, mknod, "taken", S_IFIFO | 0600, 0);
    BOTH(EBUSY, symlink, "t", "taken");
    BOTH(EBUSY, link, "a", "n");
    BOTH(EBUSY, unlink, "a");
    BOTH(EBUSY, rmdir, "empty");
    BOTH(EBUSY, mkdir, "empty/n", 0700);
    BOTH(EBUSY, rename, "b", "a", 0);
    /* To look needs no right, and shows what is committed. */
    OK(wholly_store_metadata(store, "a", &metadata));
    OK(wholly_group_metadata(group, "empty", &metadata));
    OK(wholly_group_abort(first));
    OK(wholly_group_mkdir(group, "taken", 0700));
    OK(wholly_group_unlink(group, "a"));
    OK(wholly_group_abort(group));
}

/* A writer's group that has ended is told by every call. */
static void ended(wholly_store *store)
{
    wholly_writer *writer;
    wholly_group *group;
    wholly_metadata metadata;
    wholly_dir *dir;
    char buffer[8];
    metadata.size = sizeof metadata;
    OK(wholly_store_writer(store, &writer));
    OK(wholly_writer_begin(writer, &group));
    OK(wholly_group_mkdir(group, "by-a-writer", 0700));
    OK(wholly_group_commit(group));
    FAILS(EINVAL, "ended", wholly_group_mkdir(group, "n", 0700));
    FAILS(EINVAL, "ended", wholly_group_mknod(group, "n", S_IFIFO, 0));
    FAILS(EINVAL, "ended", wholly_group_symlink(group, "t", "n"));
    FAILS(EINVAL, "ended", wholly_group_link(group, "a", "n"));
    FAILS(EINVAL, "ended", wholly_group_unlink(group, "a"));
    FAILS(EINVAL, "ended", wholly_group_rmdir(group, "empty"));
    FAILS(EINVAL, "ended", wholly_group_rename(group, "a", "n", 0));
    FAILS(EINVAL, "ended", wholly_group_metadata(group, "a", &metadata));
    FAILS(EINVAL, "ended", wholly_group_readlink(group, "loop", buffer, sizeof buffer));
    FAILS(EINVAL, "ended", wholly_group_open_dir(group, ".", &dir));
    OK(wholly_writer_close(writer));
    OK(wholly_store_rmdir(store, "by-a-writer"));
}

/* Another program takes a name that the log gives to something else. */
static void conflict(const char *dir)
{
    wholly_options options = options_of_size();
    options.no_background = 1;
    wholly_store *store;
    OK(wholly_store_open(dir, &options, &store));
    OK(wholly_store_mkdir(store, "ours", 0700));
    put(dir, "ours", "the bystander's");
    FAILS(ESTALE, "ours", wholly_store_checkpoint(store, NULL));
    OK(wholly_store_drop(store));
    OK(wholly_store_open(dir, &options, &store));
    FAILS(ESTALE, "ours", wholly_store_checkpoint(store, NULL));
    /* Decided by who caused it; what an open found stands until the next one. */
    CHECK(unlink(in(dir, "ours")) == 0);
    FAILS(ESTALE, "ours", wholly_store_checkpoint(store, NULL));
    OK(wholly_store_drop(store));
    OK(wholly_store_open(dir, &options, &store));
    OK(wholly_store_checkpoint(store, NULL));
    OK(wholly_store_close(store));
    struct stat home;
    CHECK(lstat(in(dir, "ours"), &home) == 0 && S_ISDIR(home.st_mode));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    const char *dir = argv[1];
    put(dir, "a", "a");
    put(dir, "b", "b");
    CHECK(mkdir(in(dir, "sub"), 0700) == 0 && mkdir(in(dir, "empty"), 0700) == 0);
    put(dir, "sub/c", "c");
    CHECK(symlink("/tmp", in(dir, "out")) == 0 && symlink("loop", in(dir, "loop")) == 0);
    wholly_store *store = store_in(dir);
    wholly_group *group;
    OK(wholly_store_begin(store, &group));
    nulls(store, group);
    names(store, NULL);
    names(store, group);
    OK(wholly_group_abort(group));
    busy(store);
    ended(store);
    OK(wholly_store_close(store));
    conflict(dir);
    return 0;
}
