/* Attributes in groups, and each by itself: what succeeds, and what fails and how. */
#include "check.h"
#include <limits.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static wholly_metadata of_store(wholly_store *store, const char *path)
{
    wholly_metadata metadata;
    metadata.size = sizeof metadata;
    OK(wholly_store_metadata(store, path, &metadata));
    return metadata;
}

static wholly_metadata of_group(wholly_group *group, const char *path)
{
    wholly_metadata metadata;
    metadata.size = sizeof metadata;
    OK(wholly_group_metadata(group, path, &metadata));
    return metadata;
}

static void in_a_group(wholly_store *store)
{
    wholly_group *group;
    char value[8], names[32];
    OK(wholly_store_begin(store, &group));
    OK(wholly_group_chmod(group, "file", 0640));
    OK(wholly_group_chown(group, "file", WHOLLY_KEEP_OWNER, (uint32_t)getegid()));
    OK(wholly_group_utimens(group, "file", 5, WHOLLY_KEEP_TIME));
    OK(wholly_group_utimens(group, "sub", WHOLLY_KEEP_TIME, 7000000001));
    OK(wholly_group_setxattr(group, "file", "user.a", "one", 3, WHOLLY_XATTR_CREATE));
    OK(wholly_group_setxattr(group, "file", "user.b", "", 0, 0));
    OK(wholly_group_setxattr(group, "file", "user.a", "three", 5, WHOLLY_XATTR_REPLACE));
    OK(wholly_group_removexattr(group, "file", "user.b"));
    wholly_metadata file = of_group(group, "file");
    CHECK((file.mode & 07777) == 0640 && file.atime_ns == 5 && file.gid == getegid());
    CHECK(of_group(group, "sub").mtime_ns == 7000000001);
    CHECK(wholly_group_getxattr(group, "file", "user.a", NULL, 0) == 5);
    CHECK(wholly_group_getxattr(group, "file", "user.a", value, sizeof value) == 5 && memcmp(value, "three", 5) == 0);
    CHECK(wholly_group_listxattr(group, "file", NULL, 0) == 7);
    CHECK(wholly_group_listxattr(group, "file", names, sizeof names) == 7 && memcmp(names, "user.a", 7) == 0);
    /* Nobody else sees any of it. */
    CHECK((of_store(store, "file").mode & 07777) == 0600);
    GIVES(-ENODATA, (int)wholly_store_getxattr(store, "file", "user.a", NULL, 0));

    FAILS(ENODATA, "user.b", (int)wholly_group_getxattr(group, "file", "user.b", value, sizeof value));
    FAILS(ERANGE, "room for 5 bytes", (int)wholly_group_getxattr(group, "file", "user.a", value, 4));
    FAILS(ERANGE, "room for 7 bytes", (int)wholly_group_listxattr(group, "file", names, 6));
    GIVES(-EEXIST, wholly_group_setxattr(group, "file", "user.a", "x", 1, WHOLLY_XATTR_CREATE));
    GIVES(-ENODATA, wholly_group_setxattr(group, "file", "user.c", "x", 1, WHOLLY_XATTR_REPLACE));
    FAILS(EINVAL, "flags", wholly_group_setxattr(group, "file", "user.c", "x", 1, 4));
    GIVES(-EOPNOTSUPP, wholly_group_setxattr(group, "file", "other.c", "x", 1, 0));
    GIVES(-ENODATA, wholly_group_removexattr(group, "file", "user.c"));
    GIVES(-ENOENT, wholly_group_chmod(group, "nothing", 0600));
    GIVES(-EINVAL, wholly_group_chmod(group, "file", 0100600));
    GIVES(-EOPNOTSUPP, wholly_group_chmod(group, "link", 0600));
    OK(wholly_group_commit(group));
}

static void alone(wholly_store *store)
{
    char value[8];
    CHECK((of_store(store, "file").mode & 07777) == 0640);
    OK(wholly_store_chmod(store, "sub", 0750));
    OK(wholly_store_chown(store, "sub", WHOLLY_KEEP_OWNER, WHOLLY_KEEP_OWNER));
    OK(wholly_store_utimens(store, "file", WHOLLY_KEEP_TIME, 9000000001));
    OK(wholly_store_setxattr(store, "sub", "user.s", "s", 1, 0));
    OK(wholly_store_setxattr(store, "sub", "user.t", "t", 1, 0));
    OK(wholly_store_removexattr(store, "sub", "user.t"));
    CHECK(wholly_store_getxattr(store, "sub", "user.s", value, sizeof value) == 1 && value[0] == 's');
    CHECK(wholly_store_listxattr(store, "sub", NULL, 0) == 7);
}

static void nulls(wholly_store *store)
{
    wholly_group *group;
    OK(wholly_store_begin(store, &group));
    FAILS(EINVAL, "group is NULL", wholly_group_chmod(NULL, "file", 0600));
    FAILS(EINVAL, "path is NULL", wholly_group_chmod(group, NULL, 0600));
    FAILS(EINVAL, "group is NULL", wholly_group_chown(NULL, "file", 1, 1));
    FAILS(EINVAL, "group is NULL", wholly_group_utimens(NULL, "file", 1, 1));
    FAILS(EINVAL, "name is NULL", wholly_group_setxattr(group, "file", NULL, "x", 1, 0));
    FAILS(EINVAL, "buffer is NULL", wholly_group_setxattr(group, "file", "user.a", NULL, 1, 0));
    FAILS(EINVAL, "name is NULL", wholly_group_removexattr(group, "file", NULL));
    FAILS(EINVAL, "buffer is NULL", (int)wholly_group_getxattr(group, "file", "user.a", NULL, 1));
    FAILS(EINVAL, "buffer is NULL", (int)wholly_group_listxattr(group, "file", NULL, 1));
    FAILS(EINVAL, "store is NULL", wholly_store_chmod(NULL, "file", 0600));
    FAILS(EINVAL, "store is NULL", wholly_store_chown(NULL, "file", 1, 1));
    FAILS(EINVAL, "store is NULL", wholly_store_utimens(NULL, "file", 1, 1));
    FAILS(EINVAL, "store is NULL", wholly_store_setxattr(NULL, "file", "user.a", "x", 1, 0));
    FAILS(EINVAL, "store is NULL", wholly_store_removexattr(NULL, "file", "user.a"));
    FAILS(EINVAL, "store is NULL", (int)wholly_store_getxattr(NULL, "file", "user.a", NULL, 0));
    FAILS(EINVAL, "store is NULL", (int)wholly_store_listxattr(NULL, "file", NULL, 0));
    OK(wholly_group_abort(group));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    const char *dir = argv[1];
    umask(077);
    put(dir, "file", "content");
    CHECK(mkdir(in(dir, "sub"), 0700) == 0 && symlink("file", in(dir, "link")) == 0);
    if (setxattr(in(dir, "file"), "user.probe", "x", 1, 0) != 0 && errno == EOPNOTSUPP) {
        /* A file system without extended attributes: only what needs none is left, and other tests have that. */
        return 0;
    }
    CHECK(removexattr(in(dir, "file"), "user.probe") == 0);
    wholly_options options = options_of_size();
    options.no_background = 1;
    wholly_store *store;
    OK(wholly_store_init(dir, &options));
    OK(wholly_store_open(dir, &options, &store));
    nulls(store);
    in_a_group(store);
    alone(store);
    OK(wholly_store_drop(store));
    OK(wholly_store_open(dir, &options, &store));
    CHECK((of_store(store, "file").mode & 07777) == 0640 && of_store(store, "file").mtime_ns == 9000000001);
    OK(wholly_store_close(store));

    struct stat stat_;
    char value[8];
    CHECK(stat(in(dir, "file"), &stat_) == 0);
    CHECK((stat_.st_mode & 07777) == 0640 && stat_.st_mtim.tv_sec == 9 && stat_.st_mtim.tv_nsec == 1);
    CHECK(stat(in(dir, "sub"), &stat_) == 0);
    CHECK((stat_.st_mode & 07777) == 0750 && stat_.st_mtim.tv_sec == 7 && stat_.st_mtim.tv_nsec == 1);
    CHECK(getxattr(in(dir, "file"), "user.a", value, sizeof value) == 5 && memcmp(value, "three", 5) == 0);
    CHECK(getxattr(in(dir, "sub"), "user.s", value, sizeof value) == 1 && value[0] == 's');
    return 0;
}
