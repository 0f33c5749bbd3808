/* Threads share the handles of a store and its files, and each has groups of its own. */
#include "check.h"
#include <pthread.h>
#include <unistd.h>

enum { ROUNDS = 300, THREADS = 2 };

static wholly_store *store;
static wholly_file *shared, *own[THREADS];
static int busy;

/* Groups on the thread's own file and the shared one, which only one group has at a time. */
static void *work(void *number)
{
    int me = *(int *)number;
    wholly_writer *writer;
    OK(wholly_store_writer(store, &writer));
    for (int round = 1; round <= ROUNDS; round++) {
        char text[32];
        snprintf(text, sizeof text, "%d%07d", me, round);
        wholly_group *group;
        OK(round % 2 ? wholly_writer_begin(writer, &group) : wholly_store_begin(store, &group));
        int error = wholly_group_add(group, shared);
        if (error == -EBUSY) {
            __atomic_fetch_add(&busy, 1, __ATOMIC_RELAXED);
            CHECK(strstr(wholly_error_text(), "shared"));
            OK(wholly_group_abort(group));
            OK(wholly_file_write(own[me], 8, "alone", 5));
            usleep(100);
            round--;
            continue;
        }
        OK(error);
        OK(wholly_group_write(group, own[me], 0, text, 8));
        long long end = wholly_group_len(group, shared);
        GIVES(end, wholly_group_append(group, shared, text, 8));
        OK(wholly_group_commit(group));
    }
    OK(wholly_writer_close(writer));
    return NULL;
}

/* Two groups that want one file, one after the other for certain. */
static void *wants(void *file)
{
    wholly_group *group;
    OK(wholly_store_begin(store, &group));
    FAILS(EBUSY, "shared", wholly_group_write(group, (wholly_file *)file, 0, "x", 1));
    OK(wholly_group_abort(group));
    return NULL;
}

/* Which thread calls with a group may change. */
static void *commits(void *group)
{
    OK(wholly_group_commit((wholly_group *)group));
    return NULL;
}

static void in_a_thread(void *(*call)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, call, argument) == 0 && pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
    static int numbers[THREADS] = {0, 1};
    CHECK(argc == 2);
    put(argv[1], "shared", "");
    put(argv[1], "own0", "");
    put(argv[1], "own1", "");
    store = store_in(argv[1]);
    shared = file_of(store, "shared");
    own[0] = file_of(store, "own0");
    own[1] = file_of(store, "own1");

    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    fprintf(stderr, "%d of %d groups found the file busy\n", busy, busy + THREADS * ROUNDS);

    /* Each thread's groups are all in the shared file, in its order. */
    static char all[THREADS * ROUNDS * 8];
    int next[THREADS] = {1, 1};
    GIVES(sizeof all, wholly_file_len(shared));
    GIVES(sizeof all, wholly_file_read(shared, 0, all, sizeof all));
    for (size_t at = 0; at < sizeof all; at += 8) {
        char text[32];
        int who = all[at] - '0';
        CHECK(who == 0 || who == 1);
        snprintf(text, sizeof text, "%d%07d", who, next[who]++);
        CHECK(memcmp(all + at, text, 8) == 0);
    }

    wholly_group *group;
    OK(wholly_store_begin(store, &group));
    OK(wholly_group_write(group, shared, 0, "moved", 5));
    in_a_thread(wants, shared);
    in_a_thread(commits, group);
    GIVES(5, wholly_file_read(shared, 0, all, 5));
    CHECK(memcmp(all, "moved", 5) == 0);

    OK(wholly_file_close(shared));
    OK(wholly_file_close(own[0]));
    OK(wholly_file_close(own[1]));
    OK(wholly_store_close(store));
    return 0;
}
