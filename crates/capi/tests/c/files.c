/* Stores, and files outside of groups: what succeeds. */
#include "check.h"
#include <sys/stat.h>

static void life_of_a_store(const char *dir)
{
    wholly_options options = options_of_size();
    options.segment_bytes = 64 << 10;
    options.log_min_bytes = 256 << 10;
    options.no_background = 1;
    OK(wholly_store_init(dir, &options));
    wholly_store *store;
    OK(wholly_store_open(dir, &options, &store));

    wholly_stat stat;
    stat.size = sizeof stat;
    OK(wholly_store_stat(store, &stat));
    CHECK(stat.size == sizeof stat && stat.segment_bytes == 64 << 10 && stat.segments >= 4);
    CHECK(stat.medium[0] && stat.pending_blocks == 0 && stat.emulated <= 1);

    wholly_file *file;
    OK(wholly_store_create_file(store, "new", 0640, &file));
    struct stat home;
    CHECK(stat.incarnation > 0 && lstat(in(dir, "new"), &home) != 0);
    CHECK(strcmp(wholly_file_path(file), "new") == 0);
    GIVES(0, wholly_file_len(file));
    OK(wholly_file_write(file, 0, "hello", 5));
    GIVES(5, wholly_file_append(file, ", world", 7));
    holds(file, "hello, world");
    OK(wholly_file_set_len(file, 4));
    OK(wholly_file_write(file, 6, "!", 1));
    char buffer[8];
    GIVES(7, wholly_file_read(file, 0, buffer, sizeof buffer));
    CHECK(memcmp(buffer, "hell\0\0!", 7) == 0);
    GIVES(1, wholly_file_read(file, 6, buffer, 5));
    GIVES(0, wholly_file_read(file, 100, buffer, 5));
    GIVES(0, wholly_file_read(file, 0, NULL, 0));
    OK(wholly_file_write(file, 0, NULL, 0));
    OK(wholly_file_fatomic(file));
    OK(wholly_file_fdataatomic(file));
    OK(wholly_file_sync(file));
    OK(wholly_store_sync(store));

    OK(wholly_store_stat(store, &stat));
    CHECK(stat.pending_blocks >= 1 && stat.open_files == 1 && stat.log_bytes_written > 0);
    wholly_checkpoint_report report;
    report.size = sizeof report;
    OK(wholly_store_checkpoint(store, &report));
    CHECK(report.size == sizeof report && report.files == 1 && report.blocks >= 1 && report.bytes > 0);
    CHECK(lstat(in(dir, "new"), &home) == 0 && (home.st_mode & 07777) == 0640);
    OK(wholly_store_checkpoint(store, NULL));
    OK(wholly_file_close(file));
    OK(wholly_store_close(store));
    FILE *ordinary = fopen(in(dir, "new"), "r");
    CHECK(ordinary && fread(buffer, 1, 8, ordinary) == 7 && memcmp(buffer, "hell\0\0!", 7) == 0);
    fclose(ordinary);
}

static void what_was_dropped_is_recovered(const char *dir)
{
    wholly_options options = options_of_size();
    options.no_background = 1;
    wholly_store *store;
    OK(wholly_store_open(dir, &options, &store));
    wholly_file *file = file_of(store, "new"), *other = file_of(store, "a");
    OK(wholly_file_set_len(file, 0));
    OK(wholly_file_write(file, 0, "kept in the log", 15));
    OK(wholly_file_write(other, 0, "A", 1));
    OK(wholly_file_close(file));
    OK(wholly_file_close(other));
    OK(wholly_store_drop(store));
    has(dir, "a", "first");

    store = store_in(dir);
    wholly_recovery recovery;
    recovery.size = sizeof recovery;
    OK(wholly_store_recovery(store, &recovery));
    CHECK(recovery.groups == 3 && recovery.files == 2 && recovery.conflicts == 0 && recovery.rejected == 0);
    file = file_of(store, "new");
    holds(file, "kept in the log");
    /* Handles may be closed in any order. */
    OK(wholly_store_close(store));
    OK(wholly_file_close(file));
    has(dir, "a", "Airst");
}

static void holes_and_space(const char *dir)
{
    const unsigned punch = WHOLLY_FALLOCATE_PUNCH_HOLE | WHOLLY_FALLOCATE_KEEP_SIZE;
    wholly_store *store = store_in(dir);
    wholly_file *file = file_of(store, "new");
    OK(wholly_file_set_len(file, 0));
    OK(wholly_file_write(file, 0, "0123456789", 10));
    OK(wholly_file_fallocate(file, punch, 2, 3));
    char buffer[16];
    GIVES(10, wholly_file_read(file, 0, buffer, sizeof buffer));
    CHECK(memcmp(buffer, "01\0\0\00056789", 10) == 0);
    OK(wholly_file_fallocate(file, 0, 5, 7));
    GIVES(12, wholly_file_len(file));
    GIVES(-EOPNOTSUPP, wholly_file_fallocate(file, WHOLLY_FALLOCATE_PUNCH_HOLE, 0, 1));
    GIVES(-EINVAL, wholly_file_fallocate(file, punch, 0, 0));
    GIVES(-EFBIG, wholly_file_fallocate(file, punch, INT64_MAX, 1));
    GIVES(-EINVAL, wholly_file_fallocate(NULL, punch, 0, 1));

    wholly_group *group;
    OK(wholly_store_begin(store, &group));
    OK(wholly_group_fallocate(group, file, WHOLLY_FALLOCATE_ZERO_RANGE, 8, 20));
    OK(wholly_group_fallocate(group, file, WHOLLY_FALLOCATE_KEEP_SIZE, 0, 1 << 20));
    GIVES(-EOPNOTSUPP, wholly_group_fallocate(group, file, 8, 0, 4096));
    GIVES(28, wholly_group_len(group, file));
    GIVES(12, wholly_file_len(file));
    OK(wholly_group_commit(group));
    GIVES(16, wholly_file_read(file, 0, buffer, sizeof buffer));
    CHECK(memcmp(buffer, "01\0\0\000567\0\0\0\0\0\0\0", 16) == 0);
    OK(wholly_file_close(file));
    OK(wholly_store_close(store));
}

static void policies(const char *dir)
{
    wholly_options options = options_of_size();
    wholly_store *store;
    options.policy = WHOLLY_POLICY_PER_SYNC;
    OK(wholly_store_open(dir, &options, &store));
    wholly_file *file = file_of(store, "b");
    OK(wholly_file_write(file, 0, "1", 1));
    OK(wholly_file_sync(file));
    OK(wholly_file_write(file, 1, "2", 1));
    holds(file, "12cond");
    OK(wholly_file_close(file));
    OK(wholly_store_close(store));
    has(dir, "b", "12cond");

    options.policy = WHOLLY_POLICY_SHARED;
    options.shared_interval_ms = 50;
    options.checkpoint_threads = 1;
    options.gather_bytes = 4096;
    OK(wholly_store_open(dir, &options, &store));
    file = file_of(store, "b");
    OK(wholly_file_write(file, 2, "3", 1));
    OK(wholly_store_sync(store));
    OK(wholly_file_close(file));
    OK(wholly_store_close(store));
    has(dir, "b", "123ond");
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    CHECK(wholly_version_number() ==
          WHOLLY_VERSION_MAJOR * 1000000 + WHOLLY_VERSION_MINOR * 1000 + WHOLLY_VERSION_PATCH);
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", WHOLLY_VERSION_MAJOR, WHOLLY_VERSION_MINOR, WHOLLY_VERSION_PATCH);
    CHECK(strcmp(version, wholly_version()) == 0);
    CHECK(strcmp(wholly_error_text(), "") == 0);
    put(argv[1], "a", "first");
    put(argv[1], "b", "second");
    life_of_a_store(argv[1]);
    what_was_dropped_is_recovered(argv[1]);
    holes_and_space(argv[1]);
    policies(argv[1]);
    return 0;
}
