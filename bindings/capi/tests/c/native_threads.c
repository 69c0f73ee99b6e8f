/* Sixteen threads with a session each, and sessions handed from thread to thread. Argument: the accelerator's address. */
#include "native_check.h"
#include <pthread.h>

enum { THREADS = 16, CALLS = 200 };

static const char *address;

/* Sessions outlive their threads, so their memory does too. */
static unsigned char memory[THREADS][300];

static void *calls(void *number) {
    unsigned char *bytes = memory[*(unsigned char *)number];
    memset(bytes, *(unsigned char *)number, sizeof memory[0]);
    const naa_region regions[] = {region(bytes, sizeof memory[0], NAA_INOUT)};
    naa_session *session = NULL;
    OK(naa_session_connect(address, regions, 1, NULL, &session));
    for (int i = 1; i <= CALLS; i++) {
        OK(naa_call(session, INCREMENT, 0, 20000, NULL));
        CHECK(bytes[0] == (unsigned char)(*(unsigned char *)number + i) && bytes[299] == bytes[0]);
    }
    /* Errors are each thread's own. */
    IS(NAA_ERROR_FUNCTION, naa_call(session, FAIL, 0x40u + *(unsigned char *)number, 20000, NULL));
    char expected[16];
    snprintf(expected, sizeof expected, "0x%02x", 0x40 + *(unsigned char *)number);
    CHECK(strstr(naa_last_error(), expected) != NULL);
    OK(naa_call_start(session, SLEEP, 10));
    return session;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    address = arguments[1];
    pthread_t threads[THREADS];
    unsigned char numbers[THREADS];
    naa_session *sessions[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = (unsigned char)i;
        CHECK(pthread_create(&threads[i], NULL, calls, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *session = NULL;
        CHECK(pthread_join(threads[i], &session) == 0);
        sessions[i] = (naa_session *)session;
    }
    CHECK(strcmp(naa_last_error(), "") == 0);
    OK(naa_call_wait_all(sessions, THREADS, 20000, NULL));
    for (int i = 0; i < THREADS; i++) {
        OK(naa_session_close(sessions[i]));
    }
    puts("ok");
    return 0;
}
