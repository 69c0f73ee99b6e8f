/* The accelerator is killed during a call: every way of waiting says so in time, and the program goes on. Arguments: the
 * accelerator's address, how to wait. */
#include "native_check.h"
#include <poll.h>

/* It is noticed within this, seconds: a sign of life is asked for every 0.1 s, silence counts after 0.1 s or 0.2 s. */
#define NOTICED 2.0

static unsigned char bytes[2][64];
static naa_session *sessions[2];

static int32_t by_testing(naa_outcome *outcome) {
    bool done = false;
    int32_t result = NAA_OK;
    while (!done && result == NAA_OK) {
        const struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
        result = naa_call_test(sessions[0], &done, outcome);
    }
    CHECK(done);
    return result;
}

static int32_t by_poll(naa_outcome *outcome) {
    struct pollfd fd;
    memset(&fd, 0, sizeof fd);
    fd.events = POLLIN;
    OK(naa_session_fd(sessions[0], &fd.fd));
    bool done = false;
    for (;;) {
        const int32_t result = naa_call_test(sessions[0], &done, outcome);
        if (result != NAA_OK || done) {
            return result;
        }
        CHECK(poll(&fd, 1, 5000) == 1);
    }
}

static int32_t wait(const char *how, naa_outcome *outcome) {
    int64_t index = 0;
    if (strcmp(how, "wait") == 0) {
        return naa_call_wait(sessions[0], -1, outcome);
    }
    if (strcmp(how, "any") == 0) {
        const int32_t result = naa_call_wait_any(sessions, 2, 20000, &index, outcome);
        CHECK(index == 0 || index == 1);
        return result;
    }
    if (strcmp(how, "all") == 0) {
        naa_outcome outcomes[2];
        const int32_t result = naa_call_wait_all(sessions, 2, 20000, outcomes);
        CHECK(outcomes[1].result == NAA_ERROR_GONE);
        *outcome = outcomes[0];
        return result;
    }
    return strcmp(how, "poll") == 0 ? by_poll(outcome) : by_testing(outcome);
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    naa_options options;
    OK(naa_options_init(&options, sizeof options));
    options.probe_interval_ms = 100;
    options.silence_ms = 100;
    for (int i = 0; i < 2; i++) {
        const naa_region regions[] = {region(bytes[i], 64, NAA_INOUT)};
        OK(naa_session_connect(arguments[1], regions, 1, &options, &sessions[i]));
        OK(naa_call_start(sessions[i], SLEEP, 30000));
    }
    IS(NAA_ERROR_TIMEOUT, naa_call_wait(sessions[0], 300, NULL));
    puts("kill it");
    fflush(stdout);
    /* From the line above to the kill passes little. */
    const double start = seconds();
    naa_outcome outcome;
    IS(NAA_ERROR_GONE, wait(arguments[2], &outcome));
    CHECK(seconds() - start < NOTICED);
    CHECK(outcome.result == NAA_ERROR_GONE && outcome.function == SLEEP);
    int32_t state = 0;
    bool over = false;
    for (int i = 0; i < 2; i++) {
        OK(naa_session_state(sessions[i], &state));
        over = over || state == NAA_SESSION_OVER;
    }
    CHECK(over);
    if (strcmp(arguments[2], "any") != 0) {
        REFUSED(NAA_ERROR_OVER, "is over", naa_call(sessions[0], SLEEP, 0, 1000, NULL));
        IS(NAA_ERROR_STATE, naa_call_wait(sessions[0], 1000, NULL));
    }
    OK(naa_session_close(sessions[0]));
    OK(naa_session_close(sessions[1]));
    puts("ok");
    return 0;
}
