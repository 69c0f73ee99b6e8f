/* A program of naa.h: offload ADDRESS PORT: calls the kernel of triple.c, two calls of two sessions at once. */
#include <naa.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 100000
#define TRIPLE 96
#define SECONDS(s) ((s) * 1000)

static int fail(const char *what) {
    fprintf(stderr, "offload: %s: %s\n", what, naa_last_error());
    return EXIT_FAILURE;
}

int main(int argc, char **argv) {
    static unsigned char data[2][BYTES];
    naa_session *sessions[2] = {NULL, NULL};
    char address[300];
    if (argc < 3) {
        fprintf(stderr, "usage: offload ADDRESS PORT\n");
        return 2;
    }
    snprintf(address, sizeof address, "%s:%s", argv[1], argv[2]);
    for (int i = 0; i < 2; i++) {
        naa_region region = {data[i], sizeof data[i], NAA_INOUT};
        memset(data[i], 2 + i, sizeof data[i]);
        if (naa_session_connect(address, &region, 1, NULL, &sessions[i]) != NAA_OK)
            return fail("naa_session_connect");
        if (naa_call_start(sessions[i], TRIPLE, 0) != NAA_OK)
            return fail("naa_call_start");
    }
    for (int left = 2; left > 0; left--) {
        int64_t which = NAA_UNDEFINED;
        naa_outcome outcome;
        if (naa_call_wait_any(sessions, 2, SECONDS(20), &which, &outcome) != NAA_OK || which == NAA_UNDEFINED)
            return fail("naa_call_wait_any");
        for (size_t i = 0; i < BYTES; i++)
            if (data[which][i] != 3 * (2 + which)) {
                fprintf(stderr, "offload: byte %zu of session %d is %d\n", i, (int)which, data[which][i]);
                return EXIT_FAILURE;
            }
    }
    for (int i = 0; i < 2; i++)
        if (naa_session_close(sessions[i]) != NAA_OK)
            return fail("naa_session_close");
    puts("naa.h: 2 calls right");
    return EXIT_SUCCESS;
}
