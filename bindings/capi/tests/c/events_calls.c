/* Every function of naa_events.h as it is meant to be used. Argument: the bridge's source. */
#include "native_check.h"

#include <naa_events.h>
#include <poll.h>
#include <pthread.h>

enum { EVENTS = 600, SLOTS = 64, SLOT_BYTES = 64, KEPT = 5 };

/* As the test's bridge fills events. */
static void check_event(const naa_event *event, uint64_t number) {
    const unsigned char *bytes = (const unsigned char *)event->data;
    CHECK(event->event == number && event->data_id == number % 4 && event->sequence == number + 1);
    CHECK(event->has_tick == (number % 2 == 0) && event->tick == (event->has_tick ? number : 0));
    CHECK(event->first_segment_ns == 1 && event->assembly_ns == 2);
    unsigned char copy[SLOT_BYTES * 4];
    CHECK(event->length <= sizeof copy);
    OK(naa_event_copy(event->token, 0, copy, event->length));
    for (uint64_t at = 0; at < event->length; at++) {
        CHECK(bytes[at] == (unsigned char)(number * 31 + at * 7) && copy[at] == bytes[at]);
    }
    if (event->length > 2) {
        OK(naa_event_copy(event->token, event->length - 2, copy, 2));
        CHECK(copy[0] == bytes[event->length - 2] && copy[1] == bytes[event->length - 1]);
    }
}

static void *release(void *token) {
    OK(naa_event_release(*(uint64_t *)token));
    return NULL;
}

static naa_event next(naa_worker *worker) {
    naa_event event;
    OK(naa_worker_next(worker, 10000, &event));
    return event;
}

/* By the descriptor, as an event loop does. */
static naa_event next_by_poll(naa_worker *worker, int fd) {
    for (;;) {
        naa_event event;
        const naa_result result = naa_worker_next(worker, 0, &event);
        if (result == NAA_OK) {
            return event;
        }
        IS(NAA_ERROR_TIMEOUT, result);
        CHECK(event.data == NULL && event.token == 0);
        struct pollfd entry = {fd, POLLIN, 0};
        CHECK(poll(&entry, 1, 10000) == 1);
    }
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    naa_worker_options options;
    OK(naa_worker_options_init(&options, sizeof options));
    options.slots = SLOTS;
    options.slot_bytes = SLOT_BYTES;
    options.name = "calls";
    options.reconnect_ms = -1;
    naa_worker *worker = NULL;
    OK(naa_worker_open(arguments[1], &options, &worker));
    CHECK(strstr(naa_worker_describe(worker), "worker 1 of ") != NULL);
    int32_t fd = -1, again = -1;
    OK(naa_worker_fd(worker, &fd));
    OK(naa_worker_fd(worker, &again));
    CHECK(fd >= 0 && fd == again);
    /* Given back out of order, and by another thread. */
    naa_event kept[KEPT];
    size_t held = 0;
    for (uint64_t number = 0; number < EVENTS; number++) {
        naa_event event = number % 3 == 0 ? next_by_poll(worker, fd) : next(worker);
        check_event(&event, number);
        kept[held++] = event;
        if (held == KEPT) {
            for (size_t at = 1; at < KEPT; at += 2) {
                check_event(&kept[at], kept[at].event);
                OK(naa_event_release(kept[at].token));
            }
            for (size_t at = 0; at < KEPT; at += 2) {
                pthread_t thread;
                CHECK(pthread_create(&thread, NULL, release, &kept[at].token) == 0);
                CHECK(pthread_join(thread, NULL) == 0);
            }
            held = 0;
        }
    }
    CHECK(held == 0);
    naa_worker_stats stats;
    OK(naa_worker_get_stats(worker, &stats));
    CHECK(stats.events == EVENTS && stats.bytes > 0 && stats.reconnects == 0 && stats.held == 0);
    /* One more, which outlives its worker. */
    naa_event last = next(worker);
    OK(naa_worker_close(worker));
    check_event(&last, EVENTS);
    OK(naa_event_release(last.token));
    puts("ok");
    return 0;
}
