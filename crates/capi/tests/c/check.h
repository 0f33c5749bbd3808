/* What the test programs share. They are C11 and C++17 at once. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wholly.h>

#define CHECK(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, wholly_error_text()); \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

/* The call gives this number. */
#define GIVES(number, call)                                                                           \
    do {                                                                                              \
        long long given_ = (long long)(call);                                                         \
        if (given_ != (long long)(number)) {                                                          \
            fprintf(stderr, "%s:%d: %s gives %lld, not %s (last error: %s)\n", __FILE__, __LINE__, #call, given_, \
                    #number, wholly_error_text());                                                    \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

#define OK(call) GIVES(0, call)

/* The call fails with this number, and the text names that. */
#define FAILS(number, word, call)                                                                     \
    do {                                                                                              \
        GIVES(-(number), call);                                                                       \
        CHECK(strstr(wholly_error_text(), word) != NULL);                                             \
    } while (0)

static inline wholly_options options_of_size(void)
{
    wholly_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    return options;
}

/* The store in a directory, made if it is not there. */
static inline wholly_store *store_in(const char *dir)
{
    wholly_store *store;
    int made = wholly_store_init(dir, NULL);
    CHECK(made == 0 || made == -EEXIST);
    OK(wholly_store_open(dir, NULL, &store));
    return store;
}

static inline wholly_file *file_of(wholly_store *store, const char *path)
{
    wholly_file *file;
    OK(wholly_store_open_file(store, path, &file));
    return file;
}

/* The file has exactly this content. */
static inline void holds(wholly_file *file, const char *text)
{
    char buffer[4096];
    size_t length = strlen(text);
    GIVES(length, wholly_file_len(file));
    GIVES(length, wholly_file_read(file, 0, buffer, sizeof buffer));
    CHECK(memcmp(buffer, text, length) == 0);
}

/* A name in a directory. The text stays until the next call. */
static inline const char *in(const char *dir, const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* An ordinary file, by ordinary calls. */
static inline void put(const char *dir, const char *name, const char *text)
{
    FILE *file = fopen(in(dir, name), "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* As other programs see it. */
static inline void has(const char *dir, const char *name, const char *text)
{
    char buffer[4096];
    FILE *file = fopen(in(dir, name), "r");
    CHECK(file);
    size_t length = fread(buffer, 1, sizeof buffer, file);
    fclose(file);
    CHECK(length == strlen(text) && memcmp(buffer, text, length) == 0);
}

#endif
