/* A store's life under the interposer, which counts calls of libc's file functions: the library makes none. */
#include "check.h"
#include <dlfcn.h>

typedef unsigned long (*calls_function)(char *names, unsigned long size);

static calls_function calls;

static void none_since(const char *what)
{
    char names[4096];
    unsigned long made = calls(names, sizeof names);
    if (made) {
        fprintf(stderr, "%s: %lu file calls through libc: %s\n", what, made, names);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    char names[4096], bytes[5000];
    CHECK(argc == 2);
    void *found = dlsym(RTLD_DEFAULT, "wholly_calls");
    CHECK(found);
    memcpy(&calls, &found, sizeof calls);
    calls(names, sizeof names);
    put(argv[1], "a", "first");
    CHECK(calls(names, sizeof names) > 0); /* it sees what it should */

    wholly_options options = options_of_size();
    options.no_background = 1; /* threads map their stacks through libc: memory, not a file */
    memset(bytes, 'x', sizeof bytes);
    for (int round = 0; round < 2; round++) {
        wholly_store *store;
        wholly_file *a, *made;
        wholly_group *group;
        wholly_writer *writer;
        if (round == 0)
            OK(wholly_store_init(argv[1], &options));
        GIVES(-EEXIST, wholly_store_init(argv[1], &options));
        OK(wholly_store_open(argv[1], &options, &store));
        OK(wholly_store_open_file(store, "a", &a));
        GIVES(-ENOENT, wholly_store_open_file(store, "nothing", &made));
        OK(wholly_file_write(a, 3, bytes, sizeof bytes));
        OK(wholly_store_begin(store, &group));
        OK(wholly_group_create(group, round ? "one" : "zero", 0600, &made));
        for (uint64_t at = 0; at < 5000000; at += 100 * sizeof bytes)
            OK(wholly_group_write(group, made, at, bytes, sizeof bytes));
        OK(wholly_group_commit(group));
        OK(wholly_store_writer(store, &writer));
        OK(wholly_writer_begin(writer, &group));
        OK(wholly_group_set_len(group, made, 10));
        OK(wholly_group_commit(group));
        OK(wholly_writer_close(writer));
        GIVES(10, wholly_file_read(made, 0, bytes, sizeof bytes));
        OK(wholly_file_sync(a));
        OK(wholly_file_close(a));
        OK(wholly_file_close(made));
        if (round == 0) {
            OK(wholly_store_drop(store));
        } else {
            OK(wholly_store_checkpoint(store, NULL));
            OK(wholly_store_close(store));
        }
        none_since(round ? "the second life" : "the first life");
    }
    puts("watched: no file call through libc");
    return 0;
}
