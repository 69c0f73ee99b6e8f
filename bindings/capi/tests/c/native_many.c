/* Many sessions of one process with calls in flight at once. Arguments: the accelerator's address, how many sessions. */
#include "native_check.h"
#ifdef __linux__
#include <sys/epoll.h>
#include <unistd.h>
#endif

enum { MOST = 256 };

static unsigned char memory[MOST][64];
static naa_session *sessions[MOST];
static size_t count;

static void connect_all(const char *address) {
    naa_options options;
    OK(naa_options_init(&options, sizeof options));
    options.setup_timeout_ms = 60000;
    for (size_t i = 0; i < count; i++) {
        const naa_region regions[] = {region(memory[i], 64, NAA_INOUT)};
        OK(naa_session_connect(address, regions, 1, &options, &sessions[i]));
    }
}

static void start_all(int function, uint32_t user) {
    for (size_t i = 0; i < count; i++) {
        memset(memory[i], (int)i, 64);
        OK(naa_call_start(sessions[i], function, user));
    }
}

static void ended(size_t i) {
    for (int byte = 0; byte < 64; byte++) {
        CHECK(memory[i][byte] == (unsigned char)(i + 1));
    }
    memory[i][0] = 0;
}

static void one_after_the_other(void) {
    start_all(INCREMENT, 0);
    int64_t index = 0;
    for (size_t n = 0; n < count; n++) {
        naa_outcome outcome;
        OK(naa_call_wait_any(sessions, count, 20000, &index, &outcome));
        CHECK(index >= 0 && (size_t)index < count && outcome.function == INCREMENT);
        ended((size_t)index);
    }
    OK(naa_call_wait_any(sessions, count, 20000, &index, NULL));
    CHECK(index == NAA_UNDEFINED);
    OK(naa_call_wait_any(NULL, 0, 20000, &index, NULL));
    CHECK(index == NAA_UNDEFINED);
}

static void all_at_once(void) {
    static naa_outcome outcomes[MOST];
    start_all(INCREMENT, 0);
    OK(naa_call_wait_all(sessions, count, 20000, outcomes));
    for (size_t i = 0; i < count; i++) {
        ended(i);
        CHECK(outcomes[i].function == INCREMENT && outcomes[i].last_output_bytes == 64);
    }
    OK(naa_call_wait_all(sessions, count, 20000, outcomes));
    CHECK(outcomes[0].function == 0 && outcomes[0].result == NAA_OK);
}

/* The quickest comes first, whatever its place; time-outs leave all running; failures name their session. */
static void in_order_of_ending(void) {
    naa_session *some[] = {sessions[0], NULL, sessions[1], sessions[2]};
    naa_outcome outcome, outcomes[4];
    int64_t index = 0;
    OK(naa_call_start(some[0], SLEEP, 400));
    OK(naa_call_start(some[2], SLEEP, 100));
    OK(naa_call_start(some[3], FAIL, 0x55));
    IS(NAA_ERROR_FUNCTION, naa_call_wait_any(some, 4, 5000, &index, &outcome));
    CHECK(index == 3 && outcome.return_code == 0x55);
    IS(NAA_ERROR_TIMEOUT, naa_call_wait_any(some, 4, 0, &index, &outcome));
    CHECK(index == NAA_UNDEFINED);
    const double start = seconds();
    IS(NAA_ERROR_TIMEOUT, naa_call_wait_any(some, 4, 20, &index, &outcome));
    CHECK(index == NAA_UNDEFINED && seconds() - start >= 0.02);
    OK(naa_call_wait_any(some, 4, 5000, &index, &outcome));
    CHECK(index == 2);
    IS(NAA_ERROR_TIMEOUT, naa_call_wait_all(some, 4, 10, outcomes));
    CHECK(outcomes[0].result == NAA_ERROR_TIMEOUT && outcomes[0].function == SLEEP && outcomes[2].function == 0);
    OK(naa_call_start(some[3], FAIL, 0x56));
    IS(NAA_ERROR_FUNCTION, naa_call_wait_all(some, 4, 5000, outcomes));
    CHECK(outcomes[0].result == NAA_OK && outcomes[3].result == NAA_ERROR_FUNCTION && outcomes[3].return_code == 0x56);
    OK(naa_call_wait_any(some, 4, 5000, &index, &outcome));
    CHECK(index == NAA_UNDEFINED);
}

/* An event loop of the program's. */
static void by_epoll(void) {
    const int loop = epoll_create1(0);
    CHECK(loop >= 0);
    for (size_t i = 0; i < count; i++) {
        int32_t fd = -1;
        OK(naa_session_fd(sessions[i], &fd));
        struct epoll_event event;
        memset(&event, 0, sizeof event);
        event.events = EPOLLIN;
        event.data.u64 = i;
        CHECK(epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) == 0);
    }
    for (int round = 0; round < 3; round++) {
        size_t running = 0;
        bool done = false;
        start_all(INCREMENT, 0);
        for (size_t i = 0; i < count; i++) {
            OK(naa_call_test(sessions[i], &done, NULL));
            running += !done;
        }
        const double limit = seconds() + 20;
        while (running > 0) {
            struct epoll_event events[16];
            const int ready = epoll_wait(loop, events, 16, 5000);
            CHECK(ready > 0 && seconds() < limit);
            for (int k = 0; k < ready; k++) {
                int32_t state = 0;
                naa_session *session = sessions[events[k].data.u64];
                OK(naa_session_state(session, &state));
                if (state == NAA_SESSION_RUNNING) {
                    OK(naa_call_test(session, &done, NULL));
                    running -= done;
                }
            }
        }
        for (size_t i = 0; i < count; i++) {
            ended(i);
        }
    }
    CHECK(close(loop) == 0);
}

int main(int argc, char **arguments) {
    CHECK(argc == 3);
    count = (size_t)atoi(arguments[2]);
    CHECK(count >= 3 && count <= MOST);
    connect_all(arguments[1]);
    for (int round = 0; round < 5; round++) {
        one_after_the_other();
        all_at_once();
    }
    in_order_of_ending();
    by_epoll();
    one_after_the_other();
    for (size_t i = 0; i < count; i++) {
        OK(naa_session_close(sessions[i]));
    }
    puts("ok");
    return 0;
}
