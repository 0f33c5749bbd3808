/* A process is killed in the middle of a group, again and again. Killing a process is not a power failure: what it
 * wrote stays, and only its memory is gone.
 */
#include "check.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILLS = 12, BYTES = 20000 };

/* Commits round after round, and says so; is killed at any point, or at one that it chooses. */
static void work(const char *dir, int round, int to, int in_a_group)
{
    static char bytes[BYTES];
    wholly_store *store = store_in(dir);
    wholly_file *a = file_of(store, "a"), *b = file_of(store, "b");
    for (;;) {
        wholly_group *group;
        memset(bytes, ++round % 256, sizeof bytes);
        OK(wholly_store_begin(store, &group));
        OK(wholly_group_write(group, a, 0, bytes, sizeof bytes));
        if (in_a_group)
            kill(getpid(), SIGKILL);
        OK(wholly_group_write(group, b, 0, bytes, sizeof bytes));
        OK(wholly_group_commit(group));
        CHECK(write(to, &round, sizeof round) == sizeof round);
    }
}

int main(int argc, char **argv)
{
    static char bytes[2][BYTES];
    CHECK(argc == 2);
    put(argv[1], "a", "");
    put(argv[1], "b", "");
    OK(wholly_store_close(store_in(argv[1])));
    int round = 0;
    for (int kills = 0; kills < KILLS; kills++) {
        int turns[2], status;
        CHECK(pipe(turns) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            work(argv[1], round, turns[1], kills % 2);
        close(turns[1]);
        if (kills % 2 == 0) {
            for (int heard = 0; heard < 3 + kills; heard++)
                CHECK(read(turns[0], &round, sizeof round) == sizeof round);
            CHECK(kill(child, SIGKILL) == 0);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        while (read(turns[0], &round, sizeof round) == sizeof round)
            ;
        close(turns[0]);

        wholly_store *store = store_in(argv[1]);
        wholly_file *a = file_of(store, "a"), *b = file_of(store, "b");
        GIVES(BYTES, wholly_file_read(a, 0, bytes[0], BYTES));
        GIVES(BYTES, wholly_file_read(b, 0, bytes[1], BYTES));
        CHECK(memcmp(bytes[0], bytes[1], BYTES) == 0);
        /* What it was told is committed, or the group after that, which it was not told of any more. */
        int found = (unsigned char)bytes[0][0], next = (round + 1) % 256;
        CHECK(found == round % 256 || (kills % 2 == 0 && found == next));
        if (found == next)
            round++;
        OK(wholly_file_close(a));
        OK(wholly_file_close(b));
        OK(wholly_store_close(store));
    }
    return 0;
}
