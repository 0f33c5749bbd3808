/* Groups that are parked: listed, looked at, applied and discarded, and what is told where they cannot be. */
#include "check.h"

static uint64_t park(wholly_store *store, const char *text, const char *note)
{
    wholly_group *group;
    wholly_file *file;
    uint64_t id = 0;
    OK(wholly_store_begin(store, &group));
    OK(wholly_group_open_file(group, "a", &file));
    OK(wholly_group_write(group, file, 0, text, strlen(text)));
    OK(wholly_file_close(file));
    OK(wholly_group_create(group, text, 0640, &file));
    OK(wholly_file_close(file));
    OK(wholly_group_park(group, note, 0, &id));
    CHECK(id != 0);
    return id;
}

static int parked(wholly_store *store, wholly_parked *first)
{
    wholly_parked_list *list;
    int count = 0;
    wholly_parked one;
    OK(wholly_store_open_parked_list(store, &list));
    for (;;) {
        memset(&one, 0xff, sizeof one);
        one.size = sizeof one;
        int more = wholly_parked_list_read(list, &one);
        if (more == 0)
            break;
        CHECK(more == 1);
        if (count++ == 0)
            *first = one;
    }
    OK(wholly_parked_list_close(list));
    return count;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    put(argv[1], "a", "hello world");
    wholly_store *store = store_in(argv[1]);
    uint64_t first = park(store, "HELLO", "a note"), second = park(store, "other", NULL);
    wholly_parked one;
    GIVES(2, parked(store, &one));
    CHECK(one.id == first && strcmp(one.note, "a note") == 0 && one.bytes == 5 && one.files == 1 && one.names == 1);
    CHECK(one.expires_ns == 0 && one.is_damaged == 0 && one.space > 4096 && one.parked_ns > 0);

    wholly_review *review;
    wholly_change change;
    char buffer[64];
    OK(wholly_store_review(store, first, &review));
    GIVES(-EINVAL, wholly_review_read(review, 0, 0, buffer, sizeof buffer));
    change.size = sizeof change;
    GIVES(1, wholly_review_next(review, &change));
    CHECK(strcmp(change.path, "HELLO") == 0 && change.what == WHOLLY_CHANGE_CREATED && change.mode_after == 0100640);
    GIVES(0, wholly_review_read(review, 1, 0, buffer, sizeof buffer));
    GIVES(-ENOENT, wholly_review_read(review, 0, 0, buffer, sizeof buffer));
    GIVES(1, wholly_review_next(review, &change));
    CHECK(strcmp(change.path, "a") == 0 && change.what == WHOLLY_CHANGE_CHANGED && change.content == 1 && !change.from);
    CHECK(change.bytes_before == 11 && change.bytes_after == 11);
    GIVES(11, wholly_review_read(review, 1, 0, buffer, sizeof buffer));
    CHECK(memcmp(buffer, "HELLO world", 11) == 0);
    GIVES(5, wholly_review_read(review, 0, 6, buffer, sizeof buffer));
    CHECK(memcmp(buffer, "world", 5) == 0);
    GIVES(0, wholly_review_next(review, &change));
    OK(wholly_review_close(review));

    OK(wholly_store_apply(store, first));
    FAILS(ENOENT, "parked group", wholly_store_apply(store, first));
    FAILS(ESTALE, "a: its content has been changed", wholly_store_apply(store, second));
    wholly_stat stat;
    stat.size = sizeof stat;
    OK(wholly_store_stat(store, &stat));
    CHECK(stat.parked_groups == 1 && stat.parked_bytes > 4096);
    OK(wholly_store_discard(store, second));
    FAILS(ENOENT, "parked group", wholly_store_discard(store, second));
    GIVES(-ENOENT, wholly_store_review(store, second, &review));
    GIVES(0, parked(store, &one));

    wholly_group *group;
    uint64_t id;
    OK(wholly_store_begin(store, &group));
    FAILS(EINVAL, "changed nothing", wholly_group_park(group, "x", 0, &id));
    OK(wholly_store_close(store));
    has(argv[1], "a", "HELLO world");
    has(argv[1], "HELLO", "");
    return 0;
}
