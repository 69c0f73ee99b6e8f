/* What programs that test naa.h have in common. They compile as C11, C17 and C++17. */
#ifndef NATIVE_CHECK_H
#define NATIVE_CHECK_H

#include <naa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Functions of the test's accelerator. */
enum { INCREMENT = 1, SHA256 = 16, DGEMM = 18, ZSTD = 22, UNZSTD = 23, SLEEP = 100, FAIL = 101, SUM = 102, COUNT = 103 };

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, naa_last_error());                     \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* The result of a call is this one. */
#define IS(expected, call)                                                                                   \
    do {                                                                                                     \
        const int32_t result_ = (call);                                                                      \
        if (result_ != (expected)) {                                                                         \
            printf("%s:%d: %s is %s: %s\n", __FILE__, __LINE__, #call, naa_result_name(result_),             \
                   naa_last_error());                                                                        \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#define OK(call) IS(NAA_OK, call)

/* It fails so, and the text has these words. */
#define REFUSED(expected, words, call)                                                                       \
    do {                                                                                                     \
        IS(expected, call);                                                                                  \
        if (!strstr(naa_last_error(), words)) {                                                              \
            printf("%s:%d: %s says \"%s\", not \"%s\"\n", __FILE__, __LINE__, #call, naa_last_error(), words); \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static inline double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline naa_region region(void *addr, uint64_t size, uint32_t flags) {
    naa_region region;
    region.addr = addr;
    region.size = size;
    region.flags = flags;
    return region;
}

#endif
