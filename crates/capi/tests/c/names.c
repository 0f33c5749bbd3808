/* Names in groups, and each by itself: what succeeds. */
#include "check.h"
#include <dirent.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static wholly_metadata of_store(wholly_store *store, const char *path)
{
    wholly_metadata metadata;
    metadata.size = sizeof metadata;
    OK(wholly_store_metadata(store, path, &metadata));
    CHECK(metadata.size == sizeof metadata);
    return metadata;
}

static wholly_metadata of_group(wholly_group *group, const char *path)
{
    wholly_metadata metadata;
    metadata.size = sizeof metadata;
    OK(wholly_group_metadata(group, path, &metadata));
    return metadata;
}

/* The names in a listing, sorted, each with a letter for its type: "a- sub/". */
static const char *listed(wholly_dir *dir)
{
    static char text[1024];
    char names[32][64];
    int count = 0, given;
    wholly_dir_entry entry;
    entry.size = sizeof entry;
    while ((given = wholly_dir_read(dir, &entry)) == 1) {
        mode_t type = entry.type_bits;
        char letter = S_ISREG(type) ? '-' : S_ISDIR(type) ? '/' : S_ISLNK(type) ? '@' : '|';
        CHECK(count < 32 && entry.ino != 0 && entry.reserved == 0);
        snprintf(names[count++], sizeof names[0], "%.60s%c", entry.name, letter);
    }
    CHECK(given == 0);
    OK(wholly_dir_read(dir, &entry));
    OK(wholly_dir_close(dir));
    qsort(names, (size_t)count, sizeof names[0], (int (*)(const void *, const void *))strcmp);
    text[0] = 0;
    for (int i = 0; i < count; i++) {
        strcat(text, i ? " " : "");
        strcat(text, names[i]);
    }
    return text;
}

static void store_lists(wholly_store *store, const char *path, const char *names)
{
    wholly_dir *dir;
    OK(wholly_store_open_dir(store, path, &dir));
    const char *found = listed(dir);
    if (strcmp(found, names) != 0)
        fprintf(stderr, "%s: %s\n", path, found);
    CHECK(strcmp(found, names) == 0);
}

static void group_lists(wholly_group *group, const char *path, const char *names)
{
    wholly_dir *dir;
    OK(wholly_group_open_dir(group, path, &dir));
    CHECK(strcmp(listed(dir), names) == 0);
}

/* One of each. */
static void change(wholly_group *group)
{
    wholly_file *file;
    OK(wholly_group_mkdir(group, "new", 0750));
    OK(wholly_group_create(group, "new/file", 0640, &file));
    OK(wholly_group_write(group, file, 0, "content", 7));
    OK(wholly_file_close(file));
    OK(wholly_group_mknod(group, "new/fifo", S_IFIFO | 0600, 0));
    OK(wholly_group_mknod(group, "new/plain", 0604, 0));
    OK(wholly_group_symlink(group, "new/file", "to"));
    OK(wholly_group_link(group, "a", "new/a"));
    OK(wholly_group_unlink(group, "b"));
    OK(wholly_group_rmdir(group, "empty"));
    OK(wholly_group_rename(group, "c", "d", 0));
    OK(wholly_group_rename(group, "x", "y", WHOLLY_RENAME_EXCHANGE));
    OK(wholly_group_rename(group, "sub", "new/sub", WHOLLY_RENAME_NOREPLACE));
}

static const char *const before = "a- b- c- d- empty/ sub/ x- y/", *const after = "a- d- new/ to@ x/ y-";

static void an_abort(wholly_store *store, const char *dir)
{
    wholly_group *group;
    OK(wholly_store_begin(store, &group));
    change(group);
    group_lists(group, ".", after);
    store_lists(store, ".", before);
    OK(wholly_group_abort(group));
    store_lists(store, ".", before);
    OK(wholly_store_checkpoint(store, NULL));
    struct stat home;
    CHECK(lstat(in(dir, "new"), &home) != 0 && lstat(in(dir, "b"), &home) == 0);
}

/* As the group sees it, and later everybody. */
static void a_commit(wholly_store *store)
{
    wholly_group *group;
    OK(wholly_store_begin(store, &group));
    change(group);
    group_lists(group, ".", after);
    group_lists(group, "new", "a- fifo| file- plain- sub/");
    CHECK(of_group(group, "new").mode == (S_IFDIR | 0750) && of_group(group, "new/fifo").mode == (S_IFIFO | 0600));
    CHECK(of_group(group, "new/plain").mode == (S_IFREG | 0604) && of_group(group, "new/plain").nlink == 1);
    wholly_metadata file = of_group(group, "new/file");
    CHECK(file.bytes == 7 && file.mode == (S_IFREG | 0640) && file.uid == geteuid());
    CHECK(file.ino != 0 && file.mtime_ns > 0);
    CHECK(of_group(group, "a").nlink == 2 && of_group(group, "new/a").ino == of_group(group, "a").ino);
    CHECK(S_ISLNK(of_group(group, "to").mode) && of_group(group, "to").bytes == 8);
    char target[16];
    memset(target, '#', sizeof target);
    GIVES(8, wholly_group_readlink(group, "to", target, sizeof target));
    CHECK(memcmp(target, "new/file##", 10) == 0);
    GIVES(3, wholly_group_readlink(group, "to", target, 3));
    /* Nobody else sees it. */
    store_lists(store, ".", before);
    CHECK(of_store(store, "a").nlink == 1);
    wholly_dir *early;
    OK(wholly_group_open_dir(group, ".", &early));
    OK(wholly_group_commit(group));
    /* A listing outlives its group. */
    CHECK(strcmp(listed(early), after) == 0);
}

static void is_there(wholly_store *store)
{
    store_lists(store, ".", after);
    store_lists(store, "new", "a- fifo| file- plain- sub/");
    store_lists(store, "new/sub", "e-");
    store_lists(store, "x", "");
    CHECK(of_store(store, "new").mode == (S_IFDIR | 0750) && of_store(store, "new/fifo").mode == (S_IFIFO | 0600));
    CHECK(of_store(store, "new/plain").mode == (S_IFREG | 0604));
    CHECK(of_store(store, "a").nlink == 2 && of_store(store, "new/a").ino == of_store(store, "a").ino);
    char target[4096];
    GIVES(8, wholly_store_readlink(store, "to", target, sizeof target));
    CHECK(memcmp(target, "new/file", 8) == 0);
    /* At the end of this path a link is followed. */
    wholly_file *file = file_of(store, "to");
    holds(file, "content");
    OK(wholly_file_close(file));
    file = file_of(store, "d");
    holds(file, "c");
    OK(wholly_file_close(file));
}

/* The log keeps it all, and a close takes it home. */
static void again(const char *dir, const wholly_options *options)
{
    wholly_store *store;
    struct stat home;
    OK(wholly_store_open(dir, options, &store));
    is_there(store);
    CHECK(lstat(in(dir, "new"), &home) != 0 && lstat(in(dir, "b"), &home) == 0);
    OK(wholly_store_close(store));
    CHECK(lstat(in(dir, "b"), &home) != 0 && lstat(in(dir, "empty"), &home) != 0);
    CHECK(lstat(in(dir, "new"), &home) == 0 && home.st_mode == (S_IFDIR | 0750));
    CHECK(lstat(in(dir, "new/fifo"), &home) == 0 && home.st_mode == (S_IFIFO | 0600));
    CHECK(lstat(in(dir, "a"), &home) == 0 && home.st_nlink == 2);
    has(dir, "to", "content");
    has(dir, "d", "c");
    has(dir, "y", "x");
    has(dir, "new/sub/e", "e");
    OK(wholly_store_open(dir, options, &store));
    is_there(store);
    CHECK(of_store(store, "a").ino == home.st_ino && of_store(store, "a").device == 0);
    OK(wholly_store_close(store));
}

/* Each call a group of its own: a store that is dropped loses none. */
static void alone(const char *dir, const wholly_options *options)
{
    wholly_store *store;
    wholly_file *file;
    OK(wholly_store_open(dir, options, &store));
    OK(wholly_store_mkdir(store, "alone", 0700));
    OK(wholly_store_mknod(store, "alone/socket", S_IFSOCK | 0700, 0));
    OK(wholly_store_symlink(store, "nowhere", "alone/dangling"));
    OK(wholly_store_create_file(store, "alone/f", 0600, &file));
    OK(wholly_file_write(file, 0, "alone", 5));
    OK(wholly_store_link(store, "alone/f", "alone/g"));
    OK(wholly_store_unlink(store, "alone/f"));
    OK(wholly_store_mkdir(store, "alone/gone", 0700));
    OK(wholly_store_rmdir(store, "alone/gone"));
    OK(wholly_store_rename(store, "alone/g", "alone/h", WHOLLY_RENAME_NOREPLACE));
    OK(wholly_store_rename(store, "alone/h", "d", 0));
    OK(wholly_store_rename(store, "d", "to", WHOLLY_RENAME_EXCHANGE));
    holds(file, "alone");
    OK(wholly_file_close(file));
    wholly_dir *listing;
    OK(wholly_store_open_dir(store, "alone", &listing));
    OK(wholly_store_drop(store));
    /* A listing outlives its store. */
    CHECK(strcmp(listed(listing), "dangling@ socket|") == 0);

    OK(wholly_store_open(dir, options, &store));
    store_lists(store, "alone", "dangling@ socket|");
    file = file_of(store, "to");
    holds(file, "alone");
    OK(wholly_file_close(file));
    CHECK(S_ISSOCK(of_store(store, "alone/socket").mode) && of_store(store, "to").nlink == 1);
    CHECK(S_ISLNK(of_store(store, "d").mode));
    OK(wholly_store_close(store));
    has(dir, "to", "alone");
}

/* A device is tried for as long as nobody makes it. */
static void a_device(wholly_store *store)
{
    wholly_group *group;
    OK(wholly_store_begin(store, &group));
    if (geteuid() == 0) {
        OK(wholly_group_mknod(group, "null", S_IFCHR | 0666, makedev(1, 3)));
        CHECK(of_group(group, "null").mode == (S_IFCHR | 0666) && of_group(group, "null").device == makedev(1, 3));
    } else {
        GIVES(-EPERM, wholly_group_mknod(group, "null", S_IFCHR | 0666, makedev(1, 3)));
    }
    OK(wholly_group_abort(group));
}

/* What was made in the layer comes as it is, or lies there again. */
static void adopted(const char *dir, const wholly_options *options)
{
    wholly_store *store;
    OK(wholly_store_open(dir, options, &store));
    put(dir, "taken", "");
    OK(wholly_store_make_layer(store));
    CHECK(mkdir(in(dir, ".wholly/layer/tree"), 0711) == 0);
    put(dir, ".wholly/layer/tree/file", "adopted");
    for (int commits = 0; commits < 2; commits++) {
        wholly_group *group;
        OK(wholly_store_begin(store, &group));
        FAILS(EINVAL, "layer", wholly_group_import(group, "sub", "tree"));
        FAILS(ENOENT, "none", wholly_group_import(group, ".wholly/layer/none", "tree"));
        FAILS(EEXIST, "taken", wholly_group_import(group, ".wholly/layer/tree", "taken"));
        OK(wholly_group_import(group, ".wholly/layer/tree", "tree"));
        group_lists(group, "tree", "file-");
        CHECK(access(in(dir, ".wholly/layer/tree"), F_OK) != 0);
        if (commits)
            OK(wholly_group_commit(group));
        else
            OK(wholly_group_abort(group));
    }
    OK(wholly_store_checkpoint(store, NULL));
    CHECK(access(in(dir, "tree/file"), F_OK) == 0);
    OK(wholly_store_remove_layer(store));
    CHECK(access(in(dir, ".wholly/layer"), F_OK) != 0);
    OK(wholly_store_close(store));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    const char *dir = argv[1];
    umask(077);
    put(dir, "a", "a");
    put(dir, "b", "b");
    put(dir, "c", "c");
    put(dir, "d", "d");
    put(dir, "x", "x");
    CHECK(mkdir(in(dir, "y"), 0700) == 0 && mkdir(in(dir, "empty"), 0700) == 0 && mkdir(in(dir, "sub"), 0700) == 0);
    put(dir, "sub/e", "e");
    wholly_options options = options_of_size();
    options.no_background = 1;
    wholly_store *store;
    OK(wholly_store_init(dir, &options));
    OK(wholly_store_open(dir, &options, &store));
    an_abort(store, dir);
    a_device(store);
    a_commit(store);
    is_there(store);
    OK(wholly_store_drop(store));
    again(dir, &options);
    alone(dir, &options);
    adopted(dir, &options);
    return 0;
}
