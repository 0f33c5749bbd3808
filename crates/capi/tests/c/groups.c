/* Groups and writers: what succeeds. */
#include "check.h"

static void a_group(wholly_store *store, wholly_file *a, wholly_file *b)
{
    wholly_group *group;
    OK(wholly_store_begin(store, &group));
    CHECK(wholly_group_id(group) != 0);
    OK(wholly_group_add(group, a));
    OK(wholly_group_write(group, a, 0, "F", 1));
    GIVES(6, wholly_group_append(group, b, " thoughts", 9));
    wholly_file *made, *same;
    OK(wholly_group_create(group, "made", 0600, &made));
    OK(wholly_group_write(group, made, 3, "x", 1));
    OK(wholly_group_set_len(group, made, 2));
    OK(wholly_group_open_file(group, "made", &same));
    GIVES(2, wholly_group_len(group, same));
    GIVES(15, wholly_group_len(group, b));
    char buffer[32];
    GIVES(15, wholly_group_read(group, b, 0, buffer, sizeof buffer));
    CHECK(memcmp(buffer, "second thoughts", 15) == 0);
    /* Nobody else sees it. */
    holds(a, "first");
    holds(b, "second");
    wholly_file *other;
    GIVES(-ENOENT, wholly_store_open_file(store, "made", &other));
    CHECK(other == NULL);
    OK(wholly_group_commit(group));
    holds(a, "First");
    holds(b, "second thoughts");
    GIVES(2, wholly_file_len(made));
    OK(wholly_file_close(made));
    OK(wholly_file_close(same));
}

static void an_abort(wholly_store *store, wholly_file *a)
{
    wholly_group *group;
    wholly_file *made;
    OK(wholly_store_begin(store, &group));
    OK(wholly_group_write(group, a, 0, "lost", 4));
    OK(wholly_group_create(group, "lost", 0600, &made));
    OK(wholly_file_close(made));
    OK(wholly_group_abort(group));
    holds(a, "First");
    GIVES(-ENOENT, wholly_store_open_file(store, "lost", &made));
    /* The file is free again. */
    OK(wholly_store_begin(store, &group));
    OK(wholly_group_write(group, a, 0, "f", 1));
    OK(wholly_group_commit_atomic(group));
    holds(a, "first");
}

static void a_writer(wholly_store *store, wholly_file *a)
{
    wholly_writer *writer;
    wholly_group *group, *second;
    OK(wholly_store_writer(store, &writer));
    for (int round = 0; round < 1000; round++) {
        char digit = (char)('0' + round % 10);
        OK(wholly_writer_begin(writer, &group));
        OK(wholly_group_write(group, a, 0, &digit, 1));
        OK(round % 7 ? wholly_group_commit(group) : wholly_group_abort(group));
    }
    holds(a, "9irst");
    OK(wholly_writer_begin(writer, &group));
    FAILS(EBUSY, "not ended", wholly_writer_begin(writer, &second));
    CHECK(second == NULL);
    OK(wholly_group_write(group, a, 0, "f", 1));
    OK(wholly_group_commit(group));
    /* Of a writer it can be told, because the handle is not freed. */
    FAILS(EINVAL, "ended", wholly_group_write(group, a, 0, "x", 1));
    FAILS(EINVAL, "ended", wholly_group_commit(group));
    CHECK(wholly_group_id(group) == 0);
    /* A writer that is closed aborts its group. */
    OK(wholly_writer_begin(writer, &group));
    OK(wholly_group_write(group, a, 0, "x", 1));
    OK(wholly_writer_close(writer));
    holds(a, "first");
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    put(argv[1], "a", "first");
    put(argv[1], "b", "second");
    wholly_store *store = store_in(argv[1]);
    wholly_file *a = file_of(store, "a"), *b = file_of(store, "b");
    a_group(store, a, b);
    an_abort(store, a);
    a_writer(store, a);
    OK(wholly_file_close(a));
    OK(wholly_file_close(b));
    OK(wholly_store_close(store));
    has(argv[1], "a", "first");
    has(argv[1], "b", "second thoughts");
    return 0;
}
