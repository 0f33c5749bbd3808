/* What fails, and how. */
#include "check.h"
#include <sys/stat.h>
#include <unistd.h>

/* Every function, with NULL where a handle, a text or a place belongs. */
static void nulls(const char *dir, wholly_store *store, wholly_file *file, wholly_group *group)
{
    wholly_store *s;
    wholly_file *f;
    wholly_group *g;
    wholly_writer *w;
    wholly_stat stat;
    wholly_recovery recovery;
    wholly_conflict *conflict = (wholly_conflict *)calloc(1, sizeof *conflict);
    CHECK(conflict);
    stat.size = sizeof stat;
    recovery.size = sizeof recovery;
    conflict->size = sizeof *conflict;
    FAILS(EINVAL, "NULL", wholly_store_init(NULL, NULL));
    FAILS(EINVAL, "NULL", wholly_store_open(NULL, NULL, &s));
    CHECK(s == NULL);
    FAILS(EINVAL, "NULL", wholly_store_open(dir, NULL, NULL));
    FAILS(EINVAL, "store is NULL", wholly_store_close(NULL));
    FAILS(EINVAL, "store is NULL", wholly_store_drop(NULL));
    FAILS(EINVAL, "store is NULL", wholly_store_checkpoint(NULL, NULL));
    FAILS(EINVAL, "store is NULL", wholly_store_sync(NULL));
    FAILS(EINVAL, "store is NULL", wholly_store_stat(NULL, &stat));
    FAILS(EINVAL, "stat", wholly_store_stat(store, NULL));
    FAILS(EINVAL, "store is NULL", wholly_store_recovery(NULL, &recovery));
    FAILS(EINVAL, "recovery", wholly_store_recovery(store, NULL));
    FAILS(EINVAL, "store is NULL", wholly_store_conflict(NULL, 0, conflict));
    FAILS(EINVAL, "conflict", wholly_store_conflict(store, 0, NULL));
    FAILS(EINVAL, "there is no conflict 0", wholly_store_conflict(store, 0, conflict));
    FAILS(EINVAL, "store is NULL", wholly_store_open_file(NULL, "a", &f));
    FAILS(EINVAL, "path is NULL", wholly_store_open_file(store, NULL, &f));
    FAILS(EINVAL, "NULL", wholly_store_open_file(store, "a", NULL));
    FAILS(EINVAL, "store is NULL", wholly_store_create_file(NULL, "n", 0600, &f));
    FAILS(EINVAL, "path is NULL", wholly_store_create_file(store, NULL, 0600, &f));
    FAILS(EINVAL, "NULL", wholly_store_create_file(store, "n", 0600, NULL));
    FAILS(EINVAL, "store is NULL", wholly_store_begin(NULL, &g));
    FAILS(EINVAL, "NULL", wholly_store_begin(store, NULL));
    FAILS(EINVAL, "store is NULL", wholly_store_writer(NULL, &w));
    FAILS(EINVAL, "NULL", wholly_store_writer(store, NULL));
    FAILS(EINVAL, "writer is NULL", wholly_writer_begin(NULL, &g));
    FAILS(EINVAL, "writer is NULL", wholly_writer_close(NULL));
    FAILS(EINVAL, "file is NULL", wholly_file_close(NULL));
    FAILS(EINVAL, "file is NULL", wholly_file_read(NULL, 0, conflict, 1));
    FAILS(EINVAL, "buffer is NULL", wholly_file_read(file, 0, NULL, 1));
    FAILS(EINVAL, "file is NULL", wholly_file_write(NULL, 0, "x", 1));
    FAILS(EINVAL, "buffer is NULL", wholly_file_write(file, 0, NULL, 1));
    FAILS(EINVAL, "file is NULL", wholly_file_append(NULL, "x", 1));
    FAILS(EINVAL, "buffer is NULL", wholly_file_append(file, NULL, 1));
    FAILS(EINVAL, "file is NULL", wholly_file_set_len(NULL, 1));
    FAILS(EINVAL, "file is NULL", wholly_file_len(NULL));
    FAILS(EINVAL, "file is NULL", wholly_file_sync(NULL));
    FAILS(EINVAL, "file is NULL", wholly_file_fatomic(NULL));
    FAILS(EINVAL, "file is NULL", wholly_file_fdataatomic(NULL));
    CHECK(wholly_file_path(NULL) == NULL);
    CHECK(wholly_group_id(NULL) == 0);
    FAILS(EINVAL, "group is NULL", wholly_group_open_file(NULL, "a", &f));
    FAILS(EINVAL, "path is NULL", wholly_group_open_file(group, NULL, &f));
    FAILS(EINVAL, "NULL", wholly_group_open_file(group, "a", NULL));
    FAILS(EINVAL, "group is NULL", wholly_group_create(NULL, "n", 0600, &f));
    FAILS(EINVAL, "path is NULL", wholly_group_create(group, NULL, 0600, &f));
    FAILS(EINVAL, "NULL", wholly_group_create(group, "n", 0600, NULL));
    FAILS(EINVAL, "group is NULL", wholly_group_add(NULL, file));
    FAILS(EINVAL, "file is NULL", wholly_group_add(group, NULL));
    FAILS(EINVAL, "group is NULL", wholly_group_write(NULL, file, 0, "x", 1));
    FAILS(EINVAL, "file is NULL", wholly_group_write(group, NULL, 0, "x", 1));
    FAILS(EINVAL, "buffer is NULL", wholly_group_write(group, file, 0, NULL, 1));
    FAILS(EINVAL, "group is NULL", wholly_group_append(NULL, file, "x", 1));
    FAILS(EINVAL, "file is NULL", wholly_group_append(group, NULL, "x", 1));
    FAILS(EINVAL, "buffer is NULL", wholly_group_append(group, file, NULL, 1));
    FAILS(EINVAL, "group is NULL", wholly_group_set_len(NULL, file, 1));
    FAILS(EINVAL, "file is NULL", wholly_group_set_len(group, NULL, 1));
    FAILS(EINVAL, "group is NULL", wholly_group_read(NULL, file, 0, conflict, 1));
    FAILS(EINVAL, "file is NULL", wholly_group_read(group, NULL, 0, conflict, 1));
    FAILS(EINVAL, "buffer is NULL", wholly_group_read(group, file, 0, NULL, 1));
    FAILS(EINVAL, "group is NULL", wholly_group_len(NULL, file));
    FAILS(EINVAL, "file is NULL", wholly_group_len(group, NULL));
    FAILS(EINVAL, "group is NULL", wholly_group_commit(NULL));
    FAILS(EINVAL, "group is NULL", wholly_group_commit_atomic(NULL));
    FAILS(EINVAL, "group is NULL", wholly_group_abort(NULL));
    free(conflict);
}

static void arguments(const char *dir, wholly_store *store, wholly_file *file, wholly_group *group)
{
    wholly_file *f;
    static const char *const refused[] = {"", "/etc/passwd", "../a", "sub/../a", ".wholly/log", "."};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        FAILS(EINVAL, "path", wholly_store_open_file(store, refused[i], &f));
    GIVES(-EISDIR, wholly_store_open_file(store, "sub", &f));
    GIVES(-EINVAL, wholly_store_open_file(store, "fifo", &f));
    GIVES(-EXDEV, wholly_store_open_file(store, "out", &f));
    FAILS(ENOENT, "nothing", wholly_store_open_file(store, "nothing", &f));
    FAILS(ENOENT, "nothing", wholly_group_open_file(group, "nothing", &f));
    GIVES(-ENOENT, wholly_group_create(group, "nowhere/n", 0600, &f));
    FAILS(EEXIST, "a", wholly_group_create(group, "a", 0600, &f));
    FAILS(EEXIST, "a", wholly_store_create_file(store, "a", 0600, &f));
    FAILS(EINVAL, "beyond", wholly_file_write(file, UINT64_MAX, "x", 1));
    FAILS(EINVAL, "beyond", wholly_group_write(group, file, UINT64_MAX, "x", 1));
    GIVES(-EINVAL, wholly_file_set_len(file, UINT64_MAX));
    GIVES(-EINVAL, wholly_group_set_len(group, file, UINT64_MAX));
    GIVES(-EINVAL, wholly_file_write(file, 0, "x", SIZE_MAX));
    static char byte;
    GIVES(-EINVAL, wholly_file_read(file, 0, &byte, SIZE_MAX));

    wholly_options options = options_of_size();
    options.size = 0;
    FAILS(EINVAL, "size", wholly_store_init(dir, &options));
    options = options_of_size();
    options.policy = 3;
    FAILS(EINVAL, "policy", wholly_store_init(dir, &options));
    options.policy = WHOLLY_POLICY_SHARED;
    FAILS(EINVAL, "interval", wholly_store_init(dir, &options));
    options = options_of_size();
    options.medium = 3;
    FAILS(EINVAL, "medium", wholly_store_init(dir, &options));
    /* Of a newer version: what it does not ask for does no harm. */
    struct {
        wholly_options known;
        uint64_t unknown;
    } newer;
    memset(&newer, 0, sizeof newer);
    newer.known.size = sizeof newer;
    newer.unknown = 1;
    FAILS(EOPNOTSUPP, "newer", wholly_store_init(dir, &newer.known));
    newer.unknown = 0;
    FAILS(EEXIST, "already", wholly_store_init(dir, &newer.known));
    wholly_stat stat;
    stat.size = 8;
    FAILS(EINVAL, "size", wholly_store_stat(store, &stat));
}

static void busy(const char *dir, wholly_store *store, wholly_file *file)
{
    wholly_group *first, *second;
    wholly_file *made, *again;
    wholly_store *other;
    OK(wholly_store_begin(store, &first));
    OK(wholly_store_begin(store, &second));
    OK(wholly_group_write(first, file, 0, "1", 1));
    FAILS(EBUSY, "a", wholly_group_write(second, file, 0, "2", 1));
    GIVES(-EBUSY, wholly_group_add(second, file));
    OK(wholly_group_set_busy_timeout(second, 1));
    GIVES(-EBUSY, wholly_group_append(second, file, "2", 1));
    GIVES(-EBUSY, wholly_group_set_len(second, file, 0));
    GIVES(-EBUSY, wholly_file_write(file, 0, "3", 1));
    OK(wholly_group_create(first, "name", 0600, &made));
    GIVES(-EBUSY, wholly_group_create(second, "name", 0600, &again));
    CHECK(again == NULL);
    /* Those who failed can go on. */
    OK(wholly_group_abort(first));
    OK(wholly_group_write(second, file, 0, "2", 1));
    OK(wholly_group_commit(second));
    OK(wholly_file_close(made));
    holds(file, "2irst");
    FAILS(EBUSY, "process", wholly_store_open(dir, NULL, &other));
}

static void stores(const char *dir, const char *plain)
{
    wholly_store *store, *other;
    wholly_file *file, *mine;
    wholly_group *group;
    FAILS(ENODEV, "init", wholly_store_open(plain, NULL, &store));
    GIVES(-ENOENT, wholly_store_init(in(plain, "nothing"), NULL));
    GIVES(-ENOTDIR, wholly_store_init(in(dir, "a"), NULL));
    FAILS(EEXIST, "already", wholly_store_init(dir, NULL));

    /* A file of another store. */
    put(plain, "mine", "mine");
    store = store_in(dir);
    other = store_in(plain);
    file = file_of(store, "a");
    mine = file_of(other, "mine");
    OK(wholly_store_begin(store, &group));
    FAILS(EINVAL, "another store", wholly_group_write(group, mine, 0, "x", 1));
    FAILS(EINVAL, "another store", wholly_group_add(group, mine));
    char byte;
    FAILS(EINVAL, "another store", wholly_group_read(group, mine, 0, &byte, 1));
    OK(wholly_group_abort(group));
    OK(wholly_file_close(mine));
    OK(wholly_store_close(other));
    OK(wholly_file_close(file));
    OK(wholly_store_close(store));
}

/* Another program writes to a file of which the log holds updates. */
static void conflict(const char *dir)
{
    wholly_options options = options_of_size();
    options.no_background = 1;
    wholly_store *store;
    OK(wholly_store_open(dir, &options, &store));
    wholly_file *file = file_of(store, "sub/c");
    OK(wholly_file_write(file, 0, "ours", 4));
    OK(wholly_file_close(file));
    OK(wholly_store_drop(store));
    put(dir, "sub/c", "the bystander's");

    OK(wholly_store_open(dir, &options, &store));
    wholly_recovery recovery;
    recovery.size = sizeof recovery;
    OK(wholly_store_recovery(store, &recovery));
    CHECK(recovery.conflicts == 1);
    wholly_conflict *found = (wholly_conflict *)calloc(1, sizeof *found);
    CHECK(found);
    found->size = sizeof *found;
    OK(wholly_store_conflict(store, 0, found));
    CHECK(strcmp(found->path, "sub/c") == 0 && found->change[0]);
    GIVES(-EINVAL, wholly_store_conflict(store, 1, found));
    free(found);
    FAILS(ESTALE, "sub/c", wholly_store_checkpoint(store, NULL));
    FAILS(ESTALE, "sub/c", wholly_store_close(store));
    has(dir, "sub/c", "the bystander's");
}

/* One byte of the log rots, in a group that is not the last one. */
static void rot(const char *dir)
{
    enum { BYTES = 3000, LOG = 8 << 20 };
    static char bytes[BYTES], log[LOG];
    wholly_options options = options_of_size();
    options.no_background = 1;
    wholly_store *store;
    wholly_file *file;
    OK(wholly_store_init(dir, &options));
    for (int life = 0; life < 2; life++) {
        OK(wholly_store_open(dir, &options, &store));
        file = file_of(store, life ? "later" : "rots");
        memset(bytes, life ? 'y' : 'x', sizeof bytes);
        OK(wholly_file_write(file, 0, bytes, sizeof bytes));
        OK(wholly_file_close(file));
        OK(wholly_store_drop(store));
    }
    FILE *medium = fopen(in(dir, ".wholly/log"), "r+");
    CHECK(medium);
    size_t length = fread(log, 1, sizeof log, medium);
    memset(bytes, 'x', sizeof bytes);
    char *at = (char *)memmem(log, length, bytes, sizeof bytes);
    CHECK(at && fseek(medium, at - log + BYTES / 2, SEEK_SET) == 0 && fputc('z', medium) == 'z' && fclose(medium) == 0);

    OK(wholly_store_open(dir, &options, &store));
    file = file_of(store, "rots");
    FAILS(EUCLEAN, "corrupt", wholly_file_read(file, 0, bytes, sizeof bytes));
    OK(wholly_file_close(file));
    /* What is intact is served. */
    file = file_of(store, "later");
    GIVES(BYTES, wholly_file_read(file, 0, bytes, sizeof bytes));
    OK(wholly_file_close(file));
    FAILS(EUCLEAN, "corrupt", wholly_store_close(store));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    const char *dir = argv[1];
    char *plain = strdup(in(dir, "plain"));
    CHECK(plain && mkdir(plain, 0700) == 0 && mkdir(in(dir, "sub"), 0700) == 0);
    put(dir, "a", "first");
    put(dir, "sub/c", "c");
    CHECK(mkfifo(in(dir, "fifo"), 0600) == 0);
    CHECK(symlink("/etc/passwd", in(dir, "out")) == 0);

    wholly_store *store = store_in(dir);
    wholly_file *file = file_of(store, "a");
    wholly_group *group;
    OK(wholly_store_begin(store, &group));
    nulls(dir, store, file, group);
    arguments(dir, store, file, group);
    OK(wholly_group_abort(group));
    busy(dir, store, file);
    OK(wholly_file_close(file));
    OK(wholly_store_close(store));
    stores(dir, plain);
    conflict(dir);
    free(plain);
    CHECK(mkdir(in(dir, "rot"), 0700) == 0);
    put(dir, "rot/rots", "");
    put(dir, "rot/later", "");
    char *rotten = strdup(in(dir, "rot"));
    CHECK(rotten);
    rot(rotten);
    free(rotten);
    return 0;
}
