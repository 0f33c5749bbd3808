/* Groups of two stores that commit together, parked ones that are applied together, and groups that are
   parked where others were there first. */
#include "check.h"

#include <sys/stat.h>

static char dirs[2][2048];
static wholly_store *stores[2];

/* A group that gives the file a another text, and makes a file of that name. */
static wholly_group *change(int which, const char *text)
{
    wholly_group *group;
    wholly_file *file;
    OK(wholly_store_begin(stores[which], &group));
    OK(wholly_group_open_file(group, "a", &file));
    OK(wholly_group_write(group, file, 0, text, strlen(text)));
    OK(wholly_file_close(file));
    OK(wholly_group_create(group, text, 0640, &file));
    OK(wholly_file_close(file));
    return group;
}

static void both_hold(const char *text)
{
    for (int which = 0; which < 2; which++) {
        wholly_file *file = file_of(stores[which], "a");
        holds(file, text);
        OK(wholly_file_close(file));
    }
}

static void commit_together(void)
{
    wholly_group *groups[3] = {change(0, "first"), change(1, "first"), NULL};
    FAILS(EINVAL, "NULL", wholly_groups_commit_together(NULL, 2));
    FAILS(EINVAL, "NULL", wholly_groups_commit_together(groups, 3));
    groups[2] = groups[0];
    FAILS(EINVAL, "twice", wholly_groups_commit_together(groups, 3));
    /* None of them has ended by that. */
    both_hold("empty");
    OK(wholly_groups_commit_together(groups, 2));
    both_hold("first");

    wholly_group *of_one[2];
    OK(wholly_store_begin(stores[0], &of_one[0]));
    OK(wholly_store_begin(stores[0], &of_one[1]));
    FAILS(EINVAL, "one store", wholly_groups_commit_together(of_one, 2));
    FAILS(EINVAL, "no groups", wholly_groups_commit_together(of_one, 0));
    /* Not those of writers, whose handles stay. */
    wholly_writer *writer;
    OK(wholly_store_writer(stores[0], &writer));
    wholly_file *file = file_of(stores[0], "a");
    OK(wholly_writer_begin(writer, &groups[0]));
    OK(wholly_group_write(groups[0], file, 0, "other", 5));
    OK(wholly_file_close(file));
    groups[1] = change(1, "other");
    FAILS(EINVAL, "of a writer", wholly_groups_commit_together(groups, 2));
    both_hold("first");
    OK(wholly_writer_begin(writer, &groups[0]));
    OK(wholly_group_abort(groups[0]));
    OK(wholly_writer_close(writer));
}

static void apply_together(void)
{
    const wholly_store *all[2] = {stores[0], stores[1]}, *same[2] = {stores[0], stores[0]};
    uint64_t ids[2], wrong[2];
    for (int which = 0; which < 2; which++)
        OK(wholly_group_park(change(which, "after"), NULL, 0, &ids[which]));
    FAILS(EINVAL, "NULL", wholly_stores_apply_together(all, NULL, 2));
    FAILS(EINVAL, "one store", wholly_stores_apply_together(same, ids, 2));
    wrong[0] = ids[0];
    wrong[1] = ids[1] + 1000;
    FAILS(ENOENT, "parked group", wholly_stores_apply_together(all, wrong, 2));
    both_hold("first");
    OK(wholly_stores_apply_together(all, ids, 2));
    both_hold("after");
    FAILS(ENOENT, "parked group", wholly_stores_apply_together(all, ids, 2));
}

static void commit_or_park(void)
{
    uint64_t id = 7;
    OK(wholly_group_commit_or_park(change(0, "again"), NULL, 0, &id));
    GIVES(0, id);
    OK(wholly_store_checkpoint(stores[0], NULL));
    wholly_group *group = change(0, "later");
    put(dirs[0], "a", "mine!");
    FAILS(ESTALE, "a: ", wholly_group_commit_or_park(group, "note", 0, &id));
    CHECK(id != 0);
    wholly_file *file = file_of(stores[0], "a");
    holds(file, "mine!");
    OK(wholly_file_close(file));
    OK(wholly_store_discard(stores[0], id));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    for (int which = 0; which < 2; which++) {
        snprintf(dirs[which], sizeof dirs[which], "%s/%d", argv[1], which);
        OK(mkdir(dirs[which], 0755));
        put(dirs[which], "a", "empty");
        stores[which] = store_in(dirs[which]);
    }
    commit_together();
    apply_together();
    commit_or_park();
    for (int which = 0; which < 2; which++) {
        OK(wholly_store_close(stores[which]));
        has(dirs[which], "after", "");
    }
    wholly_options options = options_of_size();
    options.release = 1;
    OK(wholly_store_open(dirs[0], &options, &stores[0]));
    OK(wholly_store_close(stores[0]));
    return 0;
}
